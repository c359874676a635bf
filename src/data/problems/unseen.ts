/** Measures how much of the held-out arithmetic training has not seen. */
import type { StepRecord } from '../../records/record.js';
import type { Part } from '../split.js';
import { type Fact, factKey } from './facts.js';
import { readLine } from './line.js';

/** Steps of a held-out part that compute something, and those whose fact is in no step of training. */
export interface UnseenSteps {
  readonly steps: number;
  readonly unseen: number;
}

/** Shares by part, for lines such as `Ann: 12 + 7 = 19`; `7 + 12` is the same fact. */
export async function unseenSteps(
  records: AsyncIterable<{ readonly part: Part; readonly record: StepRecord }>,
): Promise<Readonly<Record<'validation' | 'test', UnseenSteps>>> {
  const keys: Record<Part, string[]> = { train: [], validation: [], test: [] };
  for await (const { part, record } of records)
    for (const { text } of record.steps) {
      const fact: Fact | undefined = readLine(text);
      if (fact !== undefined) keys[part].push(factKey(fact));
    }
  const seen = new Set(keys.train);
  const of = (part: 'validation' | 'test'): UnseenSteps => ({
    steps: keys[part].length,
    unseen: keys[part].filter((key) => !seen.has(key)).length,
  });
  return { validation: of('validation'), test: of('test') };
}
