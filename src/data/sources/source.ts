import type { StepRecord } from '../../records/record.js';
import type { Row } from '../columns.js';

/** Names of the layouts that can be read; `data.source` in a run's configuration. */
export const SOURCE_NAMES = [
  'prm800k',
  'stepwise',
  'processbench',
  'prmbench',
  'big_bench_mistake',
  'math_shepherd',
  'math_step_dpo',
  'record',
  'problems',
  'turns',
  'trl',
  'llama_factory',
] as const;
export type SourceName = (typeof SOURCE_NAMES)[number];

/** Options for conversations and labels, in every layout. */
export interface ReadingOptions {
  /** The learned replies of a conversation, each after all that comes before it. Default `all`. */
  readonly turns: 'all' | 'last';
  /** A label between 0 and 1 is right from this value on. Default 0.5. */
  readonly label_threshold: number;
}

export const READING_DEFAULTS: ReadingOptions = { turns: 'all', label_threshold: 0.5 };

/** Reports of a converter on rows that give no record, so that nothing disappears silently. */
export interface ConversionLog {
  /** A whole row left out on purpose. */
  skipRow(reason: string): void;
  /** A step that stays without a label. */
  unlabelled(reason: string): void;
  /** Counts a conversation with several replies, some of which are learned. */
  replies(learned: number, all: number): void;
  /** Counts a row with a part that is not read, such as a system message before the question of a problem. */
  unasked(part: string): void;
}

/** One layout: how to recognise it and how to convert its rows into records. */
export interface Source<Options> {
  readonly name: SourceName;
  /** The required columns, for the error about an unknown layout. */
  readonly columns: string;
  matches(row: Row): boolean;
  /** @throws BadRow for a row that does not fit the layout */
  convert(row: Row, options: Options, log: ConversionLog): readonly StepRecord[];
}
