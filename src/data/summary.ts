// Statistics of the training and evaluation data, shown before training.

import { basename } from 'node:path';
import { plural } from '../native/shown.js';
import { formatTable } from '../terminal/table.js';
import { unaskedWarning } from './benchmarks/unasked.js';
import { type Dataset, inMemory } from './dataset.js';
import { DistinctNumbers } from './distinct.js';
import type { LoadReport, TrainingPart } from './load.js';
import { ComparedProblems, type Overlap, type ProblemKey } from './overlap.js';
import { PARTS, type Part } from './split.js';
import { type CountedSolution, type DataStatistics, StatisticsCounter } from './statistics.js';

/** A solution of a part after the sampling, balancing and limits of `data`. */
export interface SummarizedSolution extends Omit<CountedSolution, 'problem'> {
  readonly key: ProblemKey;
  /** The problem's text; called only if it is shown. */
  readonly text: () => string;
  /** Fingerprints of all steps, by which repeated solutions are found. Absent: not compared. */
  readonly stepKeys?: readonly number[] | undefined;
  /** Whether each step of a held-out solution occurs word for word in the training part. Absent: not compared. */
  readonly seen?: readonly boolean[] | undefined;
}

export interface TrainingDataSummary {
  readonly parts: Readonly<Record<Part, DataStatistics>>;
  /** Problems of the held-out parts that are also in the training part. */
  readonly overlap: Readonly<Record<'validation' | 'test', Overlap>>;
  /** Labelled steps of the held-out parts that occur word for word in the training part; absent: not compared. */
  readonly seenSteps?: Readonly<Record<'validation' | 'test', number>>;
  /** Sentences on dangers to the training or its evaluation. */
  readonly warnings: readonly string[];
  /** Sentences on defaults that depend on the data. */
  readonly notes?: readonly string[];
}

const HELD_OUT = ['validation', 'test'] as const;
type HeldOut = (typeof HELD_OUT)[number];

/** A class rarer than this gets a warning. */
const RARE = 0.1;

/** Share of repeated training solutions below which none are reported. */
const FEW_REPEATED = 1e-2;

const SHOWN_CHARACTERS = 80;

/**
 * Statistics of the parts: class balance, lengths and truncation, and held-out problems that are also in the training
 * part (equal by `normalizeProblem`, or near by common shingles).
 *
 * @param options `weighed`: whether both classes weigh the same in training; absent where nothing weighs them
 */
export function summarizeTrainingData(
  parts: Readonly<Record<Part, readonly SummarizedSolution[] | Dataset<SummarizedSolution>>>,
  { weighed }: { readonly weighed?: boolean | undefined } = {},
): TrainingDataSummary {
  const heldOut = { validation: summarized(parts.validation), test: summarized(parts.test) };
  for (const { key } of parts.validation) heldOut.test.problems.compare(key);
  const both = heldOut.test.problems.overlap();
  heldOut.test.problems.forget();
  const counter = new StatisticsCounter();
  const fingerprints = new DistinctNumbers();
  let compared = 0;
  // Training solutions may be many: they are read once.
  for (const solution of parts.train) {
    const { key, stepKeys } = solution;
    counter.add(counted(solution));
    if (stepKeys !== undefined && !solution.context_steps) {
      fingerprints.add(folded(key.hash, stepKeys));
      compared++;
    }
    for (const part of HELD_OUT) heldOut[part].problems.compare(key);
  }
  const ofHeldOut = <T>(read: (part: (typeof heldOut)[HeldOut]) => T): Record<HeldOut, T> => ({
    validation: read(heldOut.validation),
    test: read(heldOut.test),
  });
  const overlap = ofHeldOut(({ problems }) => problems.overlap());
  const statistics = { train: counter.result(), ...ofHeldOut(({ statistics }) => statistics) };
  const repeated = compared - fingerprints.count();
  const seenSteps = ofHeldOut(({ seen }) => seen);
  const isCompared = HELD_OUT.some((part) => heldOut[part].isCompared);
  const textOf = (part: HeldOut) => (index: number) => itemsOf(parts[part]).get(index).text();
  const warnings = [
    ...classWarnings(statistics.train, weighed),
    ...HELD_OUT.flatMap((part) => oneClassWarning(part, statistics[part])),
    ...repeatedWarning(repeated, statistics.train),
    ...cutWarnings(statistics),
    ...HELD_OUT.flatMap((part) => trainedWarning(part, overlap[part], textOf(part))),
    ...bothWarning(both, textOf('test')),
    ...likeTrainingWarning(overlap, seenSteps, statistics),
  ];
  return { parts: statistics, overlap, ...(isCompared ? { seenSteps } : {}), warnings };
}

/** Reads a held-out part, of which there may be many too, without keeping its solutions. */
function summarized(solutions: Iterable<SummarizedSolution>) {
  const counter = new StatisticsCounter();
  let seen = 0;
  let isCompared = false;
  function* keys() {
    for (const solution of solutions) {
      counter.add(counted(solution));
      const { labels, seen: steps } = solution;
      if (steps !== undefined) isCompared = true;
      seen += labels.filter((label, step) => label !== null && steps?.[step]).length;
      yield solution.key;
    }
  }
  const problems = new ComparedProblems(keys());
  return {
    problems,
    statistics: counter.result(),
    /** Labelled steps that occur word for word in the training part. */
    seen,
    isCompared,
  };
}

function counted({ key, labels, context_steps, tokens, stepsCut }: SummarizedSolution): CountedSolution {
  return { problem: key.hash, labels, context_steps, tokens, stepsCut };
}

const itemsOf = <T>(items: readonly T[] | Dataset<T>): Dataset<T> =>
  'get' in items ? items : inMemory(items);

/** A table of the parts, then the warnings, one per line. */
export function formatTrainingDataSummary({
  parts,
  seenSteps,
  warnings,
  notes = [],
}: TrainingDataSummary): readonly string[] {
  const columns = PARTS.map((part) => parts[part]);
  const rows: string[][] = [
    ['', ...PARTS],
    ['solutions', ...columns.map(({ solutions }) => String(solutions))],
    ['problems', ...columns.map(({ problems }) => String(problems))],
  ];
  const labels = [
    ['labelled steps', ...columns.map(({ samples }) => String(samples))],
    ['right', ...columns.map(({ positive, samples }) => share(positive, samples))],
    ['wrong', ...columns.map(({ negative, samples }) => share(negative, samples))],
    ...(seenSteps
      ? [
          [
            'steps also in training',
            '',
            ...HELD_OUT.map((part) => share(seenSteps[part], parts[part].samples)),
          ],
        ]
      : []),
    ['steps without a label', ...columns.map(({ unlabelled }) => String(unlabelled))],
  ];
  const steps = [
    // Whole solutions have none.
    ...(columns.some(({ samples }) => samples > 0) ? labels : []),
    [
      'steps per solution',
      ...columns.map(({ stepsPerSolution: { mean, max } }) => `${mean.toFixed(1)}, ≤ ${max}`),
    ],
  ];
  // Problems that a policy solves itself have none.
  if (columns.some(({ stepsPerSolution }) => stepsPerSolution.max > 0)) rows.push(...steps);
  if (columns.some(({ lengths }) => lengths)) {
    const row = (title: string, pick: (lengths: NonNullable<DataStatistics['lengths']>) => string | number) =>
      rows.push([title, ...columns.map(({ lengths }) => (lengths ? String(pick(lengths)) : ''))]);
    row('tokens', ({ tokens }) => tokens);
    row('tokens per solution', ({ median, p95, max }) => `${median}, ${p95}, ${max}`);
    row('steps beyond max_length', ({ stepsCut }) => stepsCut);
  }
  return [
    ...formatTable(rows).split('\n'),
    ...(columns.some(({ lengths }) => lengths)
      ? ['(tokens per solution: median, 95th percentile, longest)']
      : []),
    ...notes,
    ...warnings.map((warning) => `Warning: ${warning}`),
  ];
}

/** Lines of a report: the data that were read, those that were left out, and why. */
export function formatLoadReport(report: LoadReport): readonly string[] {
  const { files, rows, records, skipped, unlabelled, firstBadRow } = report;
  const lines = [`${files.join(', ')}: ${plural(rows, 'row')}, ${plural(records, 'solution')}`];
  for (const [title, reasons] of [
    ['rows left out', skipped],
    ['steps left without a label', unlabelled],
  ] as const) {
    if (reasons.size > 0)
      lines.push(`  ${title}: ${[...reasons].map(([reason, n]) => `${reason} ${n}`).join(', ')}`);
  }
  const { count, replies, learned } = report.conversations;
  if (count > 0)
    lines.push(
      `  conversations with several replies: ${count}; ${learned} of their ${replies} replies are learned (data.turns)`,
    );
  lines.push(...unaskedWarning(report.unasked).map((warning) => `  Warning: ${warning}`));
  if (firstBadRow !== undefined) lines.push(`  first bad row: ${firstBadRow}`);
  if (report.training) lines.push(...trainingLines(report.training));
  return lines;
}

function trainingLines(training: TrainingPart): string[] {
  const { solutions, overlapping } = training;
  return [
    `  for training: ${mixedIn(training)}`,
    ...(solutions === 0 ? ['  Warning: nothing of it is trained on'] : []),
    ...(overlapping > 0
      ? [`  left out (data.on_overlap): ${overlapping} of problems that the file of validation or test has`]
      : []),
  ];
}

function mixedIn({ solutions, share: part, labelled, wrong }: TrainingPart): string {
  const steps =
    labelled === 0
      ? ', no labelled step'
      : `, ${plural(labelled, 'labelled step')}, of which wrong ${share(wrong, labelled)}`;
  return `${plural(solutions, 'solution')}, ${(100 * part).toFixed(1)} % of the mixture${steps}`;
}

/** The mixture of files for eval.json; nothing where no files are mixed. */
export function mixtureOf(reports: readonly LoadReport[]): {
  readonly mixture?: readonly (TrainingPart & { readonly files: readonly string[] })[];
} {
  const mixture = reports.flatMap(({ files, training }) => (training ? [{ files, ...training }] : []));
  return mixture.length === 0 ? {} : { mixture };
}

/** A line for each of several mixed files, for a plan. */
export function mixtureLines(reports: readonly LoadReport[]): string[] {
  return reports.flatMap(({ files, training }) => {
    if (!training) return [];
    const { overlapping } = training;
    const leftOut = overlapping === 0 ? '' : `; ${overlapping} left out by data.on_overlap`;
    return [`  ${files.map((file) => basename(file)).join(', ')}: ${mixedIn(training)}${leftOut}`];
  });
}

function classWarnings(
  { samples, positive, negative }: DataStatistics,
  weighed: boolean | undefined,
): string[] {
  if (samples === 0) return [];
  const [name, count] = negative <= positive ? ['wrong', negative] : ['right', positive];
  if (count === 0) return [`no training step is ${name}: a verdict cannot be learned from one class`];
  if (count / samples >= RARE || weighed) return [];
  const advice = weighed === false ? '; class_weight or data.balance weigh them up' : '';
  return [`only ${share(count, samples)} of the training steps are ${name}${advice}`];
}

function oneClassWarning(
  part: 'validation' | 'test',
  { samples, positive, negative }: DataStatistics,
): string[] {
  if (samples === 0 || Math.min(positive, negative) > 0) return [];
  const [missing, other, metrics] =
    negative === 0 ? ['wrong', 'right', 'acc_neg and f1_neg'] : ['right', 'wrong', 'acc_pos and f1_pos'];
  return [
    `no ${part} step is ${missing} (${samples} ${other}): AUC, ${metrics} cannot be told there, and f1_macro is at ` +
      `most 50 %; give more rows, name data.${part}, or give it a larger share in data.split`,
  ];
}

function cutWarnings(parts: Readonly<Record<Part, DataStatistics>>): string[] {
  return PARTS.flatMap((part) => {
    const { lengths, samples } = parts[part];
    if (lengths === undefined || lengths.stepsCut === 0) return [];
    return [
      `${share(lengths.stepsCut, samples)} of the ${part} steps, in ${plural(lengths.solutionsCut, 'solution')}, lie beyond ` +
        `data.max_length and are not read; the longest solution needs ${lengths.max} tokens and the verdict`,
    ];
  });
}

function trainedWarning(
  part: HeldOut,
  { same, examples }: Overlap,
  textOf: (index: number) => string,
): string[] {
  if (same === 0) return [];
  const who = same === 1 ? 'problem is' : 'problems are';
  return [`${same} ${part} ${who} also trained on, such as ${quoted(textOf(examples[0] ?? 0))}`];
}

/** One sentence on all held-out text that resembles the training part. */
function likeTrainingWarning(
  overlap: TrainingDataSummary['overlap'],
  seenSteps: Readonly<Record<HeldOut, number>>,
  statistics: Readonly<Record<Part, DataStatistics>>,
): string[] {
  const alike = HELD_OUT.flatMap((part) => (overlap[part].near > 0 ? [`${overlap[part].near} ${part}`] : []));
  const seen = HELD_OUT.flatMap((part) =>
    seenSteps[part] > 0 ? [`${share(seenSteps[part], statistics[part].samples)} ${part}`] : [],
  );
  const found = [
    ...(alike.length > 0 ? [`half of the wording of ${alike.join(' and ')} problems`] : []),
    ...(seen.length > 0 ? [`${seen.join(' and ')} steps word for word`] : []),
  ];
  if (found.length === 0) return [];
  const advice =
    seen.length > 0 ? '; a verdict on these may be remembered: read the metrics of the unseen steps' : '';
  return [`the training data also have ${found.join(', and ')}${advice}`];
}

function bothWarning({ same, examples }: Overlap, textOf: (index: number) => string): string[] {
  if (same === 0) return [];
  const what =
    same === 1 ? 'test problem is a validation problem too' : 'test problems are validation problems too';
  return [
    `${same} ${what}, such as ${quoted(textOf(examples[0] ?? 0))}: what validation chooses, a threshold or a step, has seen them`,
  ];
}

function quoted(text: string): string {
  const line = text.replace(/\s+/g, ' ');
  return JSON.stringify(line.length > SHOWN_CHARACTERS ? `${line.slice(0, SHOWN_CHARACTERS)}…` : line);
}

function repeatedWarning(repeated: number, { solutions }: DataStatistics): string[] {
  if (repeated === 0 || repeated / solutions < FEW_REPEATED) return [];
  return [
    `${share(repeated, solutions)} of the training solutions stand there already, word for word, with the same problem: ` +
      'they weigh twice or more',
  ];
}

/** One number of 53 bits from numbers of 48. */
function folded(first: number, others: readonly number[]): number {
  let high = 0x811c9dc5;
  let low = 0x9e3779b9;
  const fold = (key: number) => {
    high = Math.imul(high ^ (key / 2 ** 24), 0x01000193);
    low = Math.imul((low ^ key) + high, 0x85ebca6b);
  };
  fold(first);
  for (const key of others) fold(key);
  return (high >>> 0) * 2 ** 21 + (low >>> 11);
}

function share(count: number, whole: number): string {
  return whole === 0 ? String(count) : `${count} (${((100 * count) / whole).toFixed(1)} %)`;
}
