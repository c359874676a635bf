// A rule of every method that learns or samples whole solutions.
import type { Conflict, DataConfig } from './schema.js';

/** What takes the steps of a solution apart: one would be learned in part, or in training and test alike. */
export function wholeSolutions(method: string, data: DataConfig): Conflict[] {
  const { split_unit, max_steps, balance } = data;
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
  if (balance !== 'none')
    found.push({
      path: ['data', 'balance'],
      message: `data.balance ${JSON.stringify(balance)} balances verdicts, and method ${method} has none; remove it`,
    });
  return [...found, ...unchangedLabels(`method ${method}`, data)];
}

/** Labels of steps alone are withheld or flipped. */
export function unchangedLabels(what: string, { labelled, label_noise: noise }: DataConfig): Conflict[] {
  const message = (key: string) =>
    `data.${key} is for methods that learn verdicts on steps, and ${what} learns whole solutions; remove it`;
  return [
    ...(labelled === 'all' ? [] : [{ path: ['data', 'labelled'], message: message('labelled') }]),
    ...(noise === 0 ? [] : [{ path: ['data', 'label_noise'], message: message('label_noise') }]),
  ];
}
