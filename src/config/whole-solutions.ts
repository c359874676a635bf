// A rule of every method that learns or samples whole solutions.
import { type Conflict, conflict, type DataConfig } from './schema.js';

/** Conflicts with settings that take the steps of a solution apart: one would be learned in part, or in training and test alike. */
export function* wholeSolutions(method: string, data: DataConfig): Generator<Conflict> {
  const { split_unit, max_steps, balance } = data;
  if (split_unit === 'sample')
    yield conflict(
      'data.split_unit',
      `data.split_unit "sample" splits verdicts, and method ${method} learns whole solutions, which would stand in training and test alike; remove it`,
    );
  if (max_steps !== 'all')
    yield conflict(
      'data.max_steps',
      `data.max_steps ${max_steps} cuts solutions for a judge, and method ${method} learns whole ones, which would seem to end there; remove it`,
    );
  if (balance !== 'none')
    yield conflict(
      'data.balance',
      `data.balance ${JSON.stringify(balance)} balances verdicts, and method ${method} has none; remove it`,
    );
  yield* unchangedLabels(`method ${method}`, data);
}

/** Labels of steps alone are withheld or flipped. */
export function* unchangedLabels(
  what: string,
  { labelled, label_noise: noise, rationales }: DataConfig,
): Generator<Conflict> {
  const refused = (key: string) =>
    conflict(
      `data.${key}`,
      `data.${key} is for methods that learn verdicts on steps, and ${what} learns whole solutions; remove it`,
    );
  if (labelled !== 'all') yield refused('labelled');
  if (rationales !== 'all') yield refused('rationales');
  if (noise !== 0) yield refused('label_noise');
}
