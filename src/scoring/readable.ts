import { DataError } from '../files/data-error.js';
import type { Step } from '../records/record.js';
import type { Solution } from './scorer.js';

/** What `read` gives; undefined, where that is allowed, for text that the tokenizer cannot express. */
export function readable<T>(read: () => T, skip: boolean): T | undefined {
  try {
    return read();
  } catch (error) {
    if (skip && error instanceof DataError && error.kind === 'tokenizer') return undefined;
    throw error;
  }
}

/** A solution as a record of which nothing is known. */
export function unlabelled({ problem, steps }: Pick<Solution, 'problem' | 'steps'>) {
  return { problem, steps: steps.map((text): Step => ({ text, label: null, kind: 'normal' })) };
}

/** Tokens of a forward that scores; no score depends on it. */
export const TOKENS_AT_ONCE = 4096;
