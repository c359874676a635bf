// A rule of every method that learns or samples whole solutions.
import type { Conflict, DataConfig } from './schema.js';

/** What takes the steps of a solution apart: one would be learned in part, or in training and test alike. */
export function wholeSolutions(method: string, { split_unit, max_steps }: DataConfig): Conflict[] {
  const found: Conflict[] = [];
  if (split_unit === 'sample')
    found.push({
      path: ['data', 'split_unit'],
      message: `data.split_unit "sample" splits verdicts, and method ${method} learns whole solutions, which would stand in training and test alike; remove it`,
    });
  if (max_steps !== 'all')
    found.push({
      path: ['data', 'max_steps'],
      message: `data.max_steps ${max_steps} cuts solutions for a judge, and method ${method} learns whole ones, which would seem to end there; remove it`,
    });
  return found;
}
