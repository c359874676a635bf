// The records of training files, mixed by their weights or shares.
import type { DataConfig } from '../config/schema.js';
import type { LoadOptions, LoadReport, TrainingPart } from '../data/load.js';
import { likenessTo, type ProblemKey, problemKey } from '../data/overlap.js';
import { copyRank } from '../data/split.js';
import { copiesOf, countsByShare, type TrainingFile, trainingFiles } from '../data/training-files.js';
import { badFile, type DataError } from '../files/data-error.js';
import { Recent } from '../native/recent.js';
import type { StepRecord } from '../records/record.js';
import { type DividedRecord, divided, readRecords, splitterOf } from './divide.js';

type Reading = Pick<LoadOptions, 'problems'>;

/** Problems of which it stays known whether they are held out. */
const RECENT_PROBLEMS = 20_000;

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
  const rankOf = (record: StepRecord) => copyRank(data.seed, withTexts(record));
  const copiesIn = await copiesByFile(files, async ({ path }) => {
    const ranks: number[] = [];
    let overlapping = 0;
    for await (const record of readRecords(data, path, options).records) {
      if (isHeldOut(record)) overlapping++;
      // At most one part of a record is for training.
      else if (deal(record).some(({ part }) => part === 'train')) ranks.push(rankOf(record));
    }
    return { ranks, overlapping };
  });
  const mixed: TrainingPart[] = [];
  for (const [i, { path }] of files.entries()) {
    const copiesOfRank = copiesIn[i] as CopiesOfRank;
    const { records, report } = readRecords(data, path, options);
    const training = { solutions: 0, share: 1, labelled: 0, wrong: 0, overlapping: 0 };
    if (files.length > 1 || data.on_overlap === 'skip')
      mixed.push(Object.assign(report, { training }).training);
    reports.push(report);
    for await (const whole of records) {
      if (isHeldOut(whole)) {
        training.overlapping++;
        continue;
      }
      for (const { part, record } of deal(whole)) {
        const times = part === 'train' ? copiesOfRank(() => rankOf(whole)) : 1;
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
  // A problem may have many solutions, mostly in a row.
  const known = new Recent<string, boolean>(RECENT_PROBLEMS, () => 1);
  return ({ problem }) => known.get(problem, () => likeness(problemKey(problem)) !== undefined);
}

/**
 * Number of copies in the training part of a solution of a file, by its rank in [0, 1), which is computed only where
 * needed.
 */
type CopiesOfRank = (rank: () => number) => number;

/**
 * Copies of the solutions of each file. With weights each solution decides for itself; with shares those with the
 * smallest ranks of their file are taken.
 */
async function copiesByFile(
  files: readonly TrainingFile[],
  trainedOf: (file: TrainingFile) => Promise<{ readonly ranks: number[]; readonly overlapping: number }>,
): Promise<CopiesOfRank[]> {
  const shares = files.map(({ share }) => share);
  if (files.length < 2 || !shares.every((share) => share !== undefined))
    return files.map(({ weight = 1 }) => (weight === 1 ? () => 1 : (rank) => copiesOf(weight, rank())));
  const ranked: number[][] = [];
  for (const file of files) {
    const { ranks, overlapping } = await trainedOf(file);
    if (ranks.length === 0) throw nothingToShare(file, overlapping);
    ranked.push(ranks.sort((a, b) => a - b));
  }
  const counts = countsByShare(
    shares,
    ranked.map(({ length }) => length),
  );
  const none = counts.indexOf(0);
  if (none >= 0) {
    const { path, share } = files[none] as TrainingFile;
    throw badFile(
      `${path} has a share of ${share} in data.train, which is less than one solution beside those of the other files; give it more`,
    );
  }
  return counts.map((count, i) => smallest(ranked[i] as number[], count));
}

/** Takes the `count` smallest of ascending ranks; of equal ones, which repeated solutions have, the first. */
function smallest(ranks: readonly number[], count: number): CopiesOfRank {
  const last = ranks[count - 1] as number;
  let ties = count - ranks.indexOf(last);
  return (rankOf) => {
    const rank = rankOf();
    if (rank !== last) return rank < last ? 1 : 0;
    return ties-- > 0 ? 1 : 0;
  };
}

function nothingToShare({ path, share }: TrainingFile, overlapping: number): DataError {
  const why =
    overlapping === 0
      ? 'give more rows, or remove it from the list'
      : `its ${overlapping} are of problems that validation or test have (data.on_overlap); give other problems, or remove it from the list`;
  return badFile(`${path} has a share of ${share} in data.train and no solution for training: ${why}`);
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
