// The records of each part of the configured data: read or generated, split, sampled.
import type { DataConfig } from '../config/schema.js';
import { arithmeticRecords } from '../data/arithmetic.js';
import { chooseToTrain } from '../data/balance.js';
import { inMemory } from '../data/dataset.js';
import { areWordProblems } from '../data/generated.js';
import type { LoadOptions, LoadReport } from '../data/load.js';
import type { WordProblem } from '../data/problems/problem.js';
import { wordProblemRecords } from '../data/problems/records.js';
import { type Part, sampleRanks } from '../data/split.js';
import { describeTraining } from '../data/training-files.js';
import { solutionsWithReasons, withholdLabels } from '../data/withheld.js';
import { badFile, badOption, type DataError } from '../files/data-error.js';
import type { StepRecord } from '../records/record.js';
import { type DividedRecord, divided, firstSteps, readRecords, splitterOf } from './divide.js';
import { mixedRecords } from './mixture.js';

/** The records of each part, and the reports of reading them. */
export interface ConfiguredRecords {
  readonly parts: Readonly<Record<Part, readonly StepRecord[]>>;
  /** One report per file that the configuration names; none for generated problems. */
  readonly reports: readonly LoadReport[];
}

/**
 * Reads or generates the records of `data` and splits them, as a stream. A separate file for validation or test takes
 * that share out of the split of the training files, and the weight or share of a training file decides how often each of its
 * training solutions comes. `reports` gets one report per configured file, complete once the
 * stream has ended. Throws DataError if a file is unusable.
 *
 * @param options `problems`: see `LoadOptions`
 */
export async function* dividedRecords(
  data: DataConfig,
  reports: LoadReport[] = [],
  options: Pick<LoadOptions, 'problems'> = {},
): AsyncGenerator<DividedRecord> {
  const partOf = splitterOf(data);
  if (areWordProblems(data.source)) {
    // A problem is made for its part: the facts that it may hold depend on it.
    const { seed, split } = data;
    const turns = data.source === 'word_problem_turns';
    const options = { ...data.word_problems, seed, split, turns };
    for (const { part, record, problem } of wordProblemRecords(options)) {
      const grouped = { ...record, ...generatedGroup(data, problem) };
      for (const kept of firstSteps(grouped, data.max_steps)) yield { part, record: kept };
    }
    return;
  }
  if (data.source === 'arithmetic') {
    generatedGroup(data);
    for await (const record of arithmeticRecords({ ...data.arithmetic, seed: data.seed }))
      yield* divided(record, data, partOf);
  } else yield* mixedRecords(data, reports, options);
  for (const part of ['validation', 'test'] as const) {
    const path = data[part];
    if (path === undefined) continue;
    const { records, report } = readRecords(data, path, options);
    reports.push(report);
    for await (const whole of records) {
      for (const record of firstSteps(whole, data.max_steps)) yield { part, record };
    }
  }
}

/**
 * The same in memory, with the training part limited to `max_samples` solutions and balanced. Throws DataError also if
 * nothing is left to train on.
 */
export async function configuredRecords(
  data: DataConfig,
  options: Pick<LoadOptions, 'problems'> = {},
): Promise<ConfiguredRecords> {
  const parts: Record<Part, StepRecord[]> = { train: [], validation: [], test: [] };
  const reports: LoadReport[] = [];
  for await (const { part, record } of dividedRecords(data, reports, options)) parts[part].push(record);
  const read = { train: parts.train.length, validation: parts.validation.length, test: parts.test.length };
  if (data.max_samples !== 'all' || data.balance !== 'none') parts.train = chosenRecords(parts.train, data);
  if (parts.train.length === 0) throw nothingToTrainOn(data, read);
  return { parts, reports };
}

/** @param parts how many solutions were read into each, where that was counted */
export function nothingToTrainOn(data: DataConfig, parts?: Readonly<Record<Part, number>>): DataError {
  const drawn = parts?.train === 0 && data.validation === undefined && data.test === undefined;
  const heldOut = drawn ? parts.validation + parts.test : 0;
  const overlap =
    data.on_overlap === 'skip'
      ? ': data.on_overlap skip leaves out problems that the file of validation or test has; give others'
      : '';
  const why =
    heldOut === 0
      ? overlap
      : `: all ${heldOut} were drawn for validation and test; give more rows, or a larger first share in data.split`;
  return badFile(`${describeTraining(data)} gives no solution for training${why}`);
}

function chosenRecords(records: readonly StepRecord[], data: DataConfig): StepRecord[] {
  const labels = records.map(({ steps }) => steps.map(({ label }) => label));
  const ranksOf = (index: number) => recordRanks(records[index] as StepRecord, data.seed);
  return chooseToTrain(inMemory(labels), ranksOf, data).map((chosen) => {
    const record = records[chosen.index] as StepRecord;
    return {
      ...record,
      steps: record.steps.map((step, i) => ({ ...step, label: chosen.labels[i] ?? null })),
    };
  });
}

/**
 * The training records without the labels and reasons that `labelled`, `label_noise` and `rationales` withhold: the
 * input of a run with the same `data` section.
 */
export function withheldRecords(records: readonly StepRecord[], data: DataConfig): StepRecord[] {
  const labelled = records.map(({ steps }, index) => ({ index, labels: steps.map(({ label }) => label) }));
  const ranksOf = (index: number, seed: number) => recordRanks(records[index] as StepRecord, seed);
  const reasons = solutionsWithReasons(labelled, ranksOf, data);
  return withholdLabels(labelled, ranksOf, data).map(({ index, labels }) => {
    const record = records[index] as StepRecord;
    const steps = record.steps.map(({ rationale, ...step }, i) => ({
      ...step,
      label: labels[i] ?? null,
      ...(rationale === undefined || reasons?.has(index) === false ? {} : { rationale }),
    }));
    return { ...record, steps };
  });
}

/** The ranks that select a solution and its steps; see `sampleRanks`. */
export function recordRanks({ problem, steps }: StepRecord, seed: number): number[] {
  return sampleRanks(
    seed,
    problem,
    steps.map(({ text }) => text),
  );
}

/** The group of a generated problem; a drill has neither level nor template. */
function generatedGroup(
  { group_by: by, source }: DataConfig,
  problem?: WordProblem,
): { readonly group?: string } {
  if (by === undefined) return {};
  if (areWordProblems(source) && (by === 'level' || by === 'template'))
    return { group: problem === undefined ? 'drill' : `${by} ${problem[by]}` };
  throw badOption(
    areWordProblems(source)
      ? `generated word problems are grouped by level or template, found ${JSON.stringify(by)}`
      : `data.source ${JSON.stringify(source)} has no column to group by`,
  );
}
