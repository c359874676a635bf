import type { StepRecord } from '../../records/record.js';
import type { Row } from '../columns.js';

/** Names of the layouts that can be read; `data.source` in a run's configuration. */
export const SOURCE_NAMES = [
  'prm800k',
  'processbench',
  'prmbench',
  'big_bench_mistake',
  'stepwise',
  'math_shepherd',
  'math_step_dpo',
  'record',
  'problems',
  'trl',
  'llama_factory',
] as const;
export type SourceName = (typeof SOURCE_NAMES)[number];

/** What a converter reports besides records, so that nothing disappears silently. */
export interface ConversionLog {
  /** A whole row left out on purpose. */
  skipRow(reason: string): void;
  /** A step that stays without a label. */
  unlabelled(reason: string): void;
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
