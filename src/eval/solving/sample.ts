import type { FinishReason } from '../../generate/rows/sample-row.js';
import type { Turns } from '../../records/turns.js';

/** Position of a sample: the index of its problem, and its number among that problem's samples; both from 0. */
export interface SamplePlace {
  readonly problem: number;
  readonly sample: number;
}

/** Text drawn after one problem. Keys are snake_case because it is also a file format. */
export interface DrawnSample extends SamplePlace {
  readonly text: string;
  /** Number of drawn tokens. */
  readonly tokens: number;
  /** `too_long`: the prompt fills the model, so that no token can follow. */
  readonly finish_reason: Exclude<FinishReason, 'abort'> | 'too_long';
}

/** A line of samples.jsonl. */
export interface SolvingSample extends DrawnSample {
  /** A hash of the prompt's tokens. */
  readonly prompt: string;
}

/** A sample with the expected answer and the grade. */
export interface GradedSample extends SolvingSample {
  /** null where the text gives none. */
  readonly answer: string | null;
  readonly right: boolean;
  /** Score by a reward model; null where it could not read the sample. */
  readonly score?: number | null;
  /** The scores by aggregation of step scores, if all aggregations were asked for. */
  readonly scores?: Readonly<Record<string, number | null>>;
  /** The conversation of an episode, whose turns are the steps, and what its environment paid for each; problems.jsonl has them to read. */
  readonly episode?: { readonly conversation: Turns; readonly rewards: readonly (number | null)[] };
  /** Verdicts by step: 1 right, 0 wrong, null where the judge gives none. */
  readonly steps?: readonly (0 | 1 | null)[];
}
