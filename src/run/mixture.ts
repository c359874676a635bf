// The records of training files, mixed by their weights or shares.
import type { DataConfig } from '../config/schema.js';
import type { LoadOptions, LoadReport, TrainingPart } from '../data/load.js';
import { likenessTo, type ProblemKey, problemKey } from '../data/overlap.js';
import { copyRank } from '../data/split.js';
import { copiesOf, type TrainingFile, trainingFiles, weightsOf } from '../data/training-files.js';
import { badFile } from '../files/data-error.js';
import type { StepRecord } from '../records/record.js';
import { type DividedRecord, divided, readRecords, splitterOf } from './divide.js';

type Reading = Pick<LoadOptions, 'problems'>;

/**
 * The records of `data.train`, each in its part and as often as the weight or share of its file says. `reports` gets one
 * report per file.
 *
 * @throws DataError if a file is unusable, or has a share and no solution for training
 */
export async function* mixedRecords(
  data: DataConfig,
  reports: LoadReport[],
  options: Reading,
): AsyncGenerator<DividedRecord> {
  const files = trainingFiles(data.train);
  const partOf = splitterOf(data);
  const isHeldOut = await heldOutProblems(data, options);
  const deal = (record: StepRecord) => divided(record, data, partOf);
  const weights = await weightsOfFiles(files, data, async (path) => {
    let count = 0;
    for await (const record of readRecords(data, path, options).records)
      if (!isHeldOut(record)) count += deal(record).filter(({ part }) => part === 'train').length;
    return count;
  });
  const mixed: TrainingPart[] = [];
  for (const [i, { path }] of files.entries()) {
    const weight = weights[i] as number;
    const { records, report } = readRecords(data, path, options);
    const training = { solutions: 0, share: 1, labelled: 0, wrong: 0, overlapping: 0 };
    if (files.length > 1 || data.on_overlap === 'skip')
      mixed.push(Object.assign(report, { training }).training);
    reports.push(report);
    for await (const whole of records) {
      const copies = weight === 1 ? 1 : copiesOf(weight, copyRank(data.seed, withTexts(whole)));
      const overlaps = isHeldOut(whole);
      for (const { part, record } of deal(whole)) {
        if (part === 'train' && overlaps) {
          training.overlapping++;
          continue;
        }
        const times = part === 'train' ? copies : 1;
        if (part === 'train') count(training, record, times);
        for (let copy = 0; copy < times; copy++) yield { part, record, ...(copy > 0 ? { again: true } : {}) };
      }
    }
  }
  const all = mixed.reduce((sum, { solutions }) => sum + solutions, 0);
  for (const training of mixed) training.share = training.solutions / Math.max(all, 1);
}

/** Is the problem of a record one of the files for validation and test? Never, where such stay. */
async function heldOutProblems(data: DataConfig, options: Reading): Promise<(record: StepRecord) => boolean> {
  if (data.on_overlap === 'warn') return () => false;
  const keys: ProblemKey[] = [];
  for (const path of [data.validation, data.test]) {
    if (path === undefined) continue;
    for await (const { problem } of readRecords(data, path, options).records) keys.push(problemKey(problem));
  }
  const likeness = likenessTo(keys);
  return ({ problem }) => likeness(problemKey(problem)) !== undefined;
}

/** Shares need the number of each file's training solutions, weights do not. */
async function weightsOfFiles(
  files: readonly TrainingFile[],
  data: DataConfig,
  countOf: (path: string) => Promise<number>,
): Promise<number[]> {
  const shares = files.map(({ share }) => share);
  if (files.length < 2 || !shares.every((share) => share !== undefined))
    return files.map(({ weight = 1 }) => weight);
  const counts: number[] = [];
  for (const { path, share } of files) {
    const count = await countOf(path);
    if (count === 0) {
      const why = data.on_overlap === 'skip' ? ' once those of held-out problems are left out' : '';
      throw badFile(
        `${path} has a share of ${share} in data.train and no solution for training${why}; remove it from the list, or give more rows`,
      );
    }
    counts.push(count);
  }
  return weightsOf(shares, counts);
}

function count(training: TrainingPart, { steps }: StepRecord, times: number): void {
  training.solutions += times;
  for (const { label } of steps) {
    if (label !== null) training.labelled += times;
    if (label === 0) training.wrong += times;
  }
}

function withTexts({ problem, steps }: StepRecord) {
  return { problem, steps: steps.map(({ text }) => text) };
}
