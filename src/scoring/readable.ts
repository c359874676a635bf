import type { JudgedRecord, VerdictPromptOptions } from '../data/verdict.js';
import { DataError } from '../files/data-error.js';
import type { Role } from '../models/decoder.js';
import type { Step, StepLabel } from '../records/record.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import type { Solution } from './scorer.js';

/** Options for how a trained model reads the solutions that it scores. */
export interface ReadingOptions {
  readonly name?: string | undefined;
  readonly tokenizer: Tokenizer;
  /** The prompt that the model was trained with. */
  readonly prompt?: VerdictPromptOptions;
  /** The adapter to score with. Default: none, for a decoder that was trained to score by itself. */
  readonly role?: Pick<Role, 'adapter'>;
  /** Max tokens of a sequence. Default: as many as the model reads. */
  readonly maxLength?: number;
  /** Gives no score to a solution that the tokenizer cannot express, instead of throwing. Default false. */
  readonly skipUnreadable?: boolean;
}

/** The result of `read`; undefined, where that is allowed, for text that the tokenizer cannot express. */
export function readable<T>(read: () => T, skip: boolean): T | undefined {
  try {
    return read();
  } catch (error) {
    if (skip && isUnreadable(error)) return undefined;
    throw error;
  }
}

/** Whether the tokenizer cannot express a text. */
export const isUnreadable = (error: unknown): boolean =>
  error instanceof DataError && error.kind === 'tokenizer';

/** A solution as a record whose steps all have one label. Default none. */
export function asRecord(
  { problem, steps, turns }: Pick<Solution, 'problem' | 'steps' | 'turns'>,
  label: StepLabel = null,
): JudgedRecord {
  if (turns)
    return { ...turns, problem, turns: true, steps: turns.steps.map((step) => ({ ...step, label })) };
  return { problem, steps: steps.map((text): Step => ({ text, label, kind: 'normal' })) };
}
