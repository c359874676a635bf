// Reads records with the options of `data`, and deals them out to the parts.
import type { DataConfig } from '../config/schema.js';
import { isGenerated } from '../data/generated.js';
import { type LoadOptions, loadRecords } from '../data/load.js';
import { PARTS, type Part, splitter } from '../data/split.js';
import { type StepRecord, verdictSamples } from '../records/record.js';

export interface DividedRecord {
  readonly part: Part;
  readonly record: StepRecord;
  /** True of a solution that came before, once more because of its file's weight. */
  readonly again?: true;
}

/** The records of files, read with the options of `data`. */
export function readRecords(
  data: DataConfig,
  paths: string | readonly string[],
  options: Pick<LoadOptions, 'problems'> = {},
): ReturnType<typeof loadRecords> {
  const { source, neutral, on_bad_row, prm800k, columns, group_by, turns, label_threshold } = data;
  if (isGenerated(source)) throw new RangeError('generated problems are not read from a file');
  return loadRecords(paths, {
    ...prm800k,
    source,
    neutral,
    on_bad_row,
    columns,
    group_by,
    turns,
    label_threshold,
    ...options,
  });
}

/** The parts of samples: one that has a file of its own gets none of those of the training files. */
export function splitterOf({ split, seed, split_unit, validation, test }: DataConfig): PartOf {
  const shares = [
    split[0],
    validation === undefined ? split[1] : 0,
    test === undefined ? split[2] : 0,
  ] as const;
  return splitter({ seed, split: shares, split_unit });
}

/** The parts of a record, by the part of the data that each belongs to. */
export function divided(record: StepRecord, data: DataConfig, partOf: PartOf): DividedRecord[] {
  return divide(record, data, partOf).flatMap(([part, share]) =>
    firstSteps(share, data.max_steps).map((record) => ({ part, record })),
  );
}

export type PartOf = ReturnType<typeof splitter>;

/** The record in each part: whole in one or, split by sample, without the labels of the other parts. */
function divide(record: StepRecord, { split_unit }: DataConfig, partOf: PartOf): [Part, StepRecord][] {
  const { original, problem } = record;
  if (split_unit === 'problem') return [[partOf({ problem: original ?? problem, steps: [] }), record]];
  const partOfStep = new Map<number, Part>();
  for (const sample of verdictSamples(record)) partOfStep.set(sample.steps.length - 1, partOf(sample));
  return PARTS.filter((part) => [...partOfStep.values()].includes(part)).map((part) => {
    const steps = record.steps.map((step, i) =>
      partOfStep.get(i) === part ? step : { ...step, label: null },
    );
    return [part, { ...record, steps }];
  });
}

/** The record up to `limit` steps; nothing if only its context would be left. */
export function firstSteps(record: StepRecord, limit: DataConfig['max_steps']): StepRecord[] {
  if (limit === 'all' || record.steps.length <= limit) return [record];
  return (record.context_steps ?? 0) >= limit ? [] : [{ ...record, steps: record.steps.slice(0, limit) }];
}
