// Computes a report from verdicts: pure functions, independent of the judge.
import { basename } from 'node:path';
import type { SeenSteps } from '../data/overlap.js';
import { defined } from '../native/defined.js';
import { plural } from '../native/shown.js';
import { normalizeProblem, type StepRecord } from '../records/record.js';
import { notFinite } from '../scoring/scorer.js';
import type { JudgedStep, JudgedVerdict } from '../scoring/verdict/judged.js';
import { metricsByGroup } from './groups.js';
import type { LikelihoodVerdicts } from './likelihood-weights.js';
import type { EvalReport, VerdictReport } from './reports/eval-report.js';
import { failureSigns } from './reports/failure-signs.js';
import { evidenceOf } from './reports/likelihood-report.js';
import { MIN_PROBLEMS } from './reports/reading.js';
import {
  BOOTSTRAP,
  type BootstrapOptions,
  bootstrapIntervals,
  type ProblemStep,
} from './statistics/bootstrap.js';
import { calibration } from './statistics/calibration.js';
import {
  aucOf,
  baselineMetrics,
  confusionMetrics,
  countConfusion,
  ratio,
  type VerdictMetrics,
} from './statistics/metrics.js';
import { pairedDifferences } from './statistics/paired.js';
import { percent } from './statistics/percent.js';
import {
  type FirstErrorCase,
  firstWrongLabel,
  firstWrongVerdict,
  processBenchReport,
} from './statistics/solutions.js';
import { type ScoredStep, thresholdSweep } from './statistics/thresholds.js';
import { metricsByError } from './step-errors.js';

export interface EvaluationOptions {
  /** The training method, as in the configuration. */
  readonly method: string;
  /** Source of the steps; the counts of judged steps are added. */
  readonly data: Readonly<Record<string, unknown>>;
  /** The judged solutions: `records[solution]` belongs to a verdict. */
  readonly records: readonly StepRecord[];
  /** An unreadable verdict is wrong for its class, or left out. */
  readonly invalidAsWrong: boolean;
  /** Share of correct steps in the training data, for the baselines that use nothing else. */
  readonly positivePrior: number;
  /** Verdicts on the validation steps, which select the thresholds. */
  readonly validation?: readonly (JudgedStep & ScoredStep)[] | undefined;
  /** Models judged on the same steps, by name; `sft` is the one that the run started from. */
  readonly baselines?: Readonly<Record<string, VerdictMetrics>>;
  /** The same models on the steps that are not `seen`. */
  readonly baselinesUnseen?: Readonly<Record<string, VerdictMetrics>>;
  /** The verdicts of such models, in the order of the model's own, for paired differences. */
  readonly others?: Readonly<Record<string, readonly JudgedVerdict[]>>;
  /** Tells which judged steps occur word for word in the training data; absent if that is not known. */
  readonly seen?: SeenSteps | undefined;
  /** Whether training weighed both classes alike. */
  readonly balanced?: boolean | undefined;
  /** Value losses of the run, in order. */
  readonly valueLosses?: readonly number[] | undefined;
  /** The reward network of the run, judged as a judge. */
  readonly rewardNetwork?: EvalReport['reward_network'];
  /** The same steps by the judge that weighs the words with more. */
  readonly likelihood?: LikelihoodVerdicts | undefined;
  /** Probability from which a step is right. Default: the more likely word decides. */
  readonly threshold?: number | undefined;
  /** Default steps. */
  readonly unit?: 'steps' | 'solutions';
  readonly outcomes?: EvalReport['outcomes'];
  /** Sentences about the data, reported with the signs of failure. */
  readonly warnings?: readonly string[];
  /** Whether the base is none of the package's small models. */
  readonly pretrained?: boolean | undefined;
  readonly bootstrap?: Partial<BootstrapOptions>;
}

/**
 * The part of eval.json on verdicts on held-out steps: those of the words, or those that weigh the words with other
 * evidence.
 */
export function evaluateVerdicts(judged: readonly JudgedVerdict[], options: EvaluationOptions): EvalReport {
  const { likelihood, rewardNetwork, ...ofWords } = options;
  const { weights, isChance } = likelihood ?? {};
  const isByMore = likelihood && !isChance;
  const read = isByMore ? judged.filter(({ unread }) => !unread) : judged;
  const words = verdictReport(read, ofWords);
  const kept = isByMore ? byMore(likelihood, ofWords) : words;
  const warnings = [...warningsOf(kept, words, options), ...unreadWarning(isByMore ? likelihood.both : [])];
  return {
    ...kept,
    ...defined({ reward_network: rewardNetwork }),
    ...(weights ? { likelihood: { weights, ...(isChance ? { kept: false as const } : {}) } } : {}),
    ...(isByMore ? { words } : {}),
    ...(warnings.length > 0 ? { warnings } : {}),
  };
}

function unreadWarning(judged: readonly JudgedVerdict[]): string[] {
  const n = judged.filter(({ unread }) => unread).length;
  if (n === 0) return [];
  return [
    `${n} of the judged steps lie beyond what the model reads: they are judged by their calculations alone`,
  ];
}

type ReportOptions = Omit<EvaluationOptions, 'likelihood' | 'rewardNetwork'>;

/** The report of the judge that weighs words with other evidence, compared with each of them alone. */
function byMore(
  { weights, words, both, validation, alone }: LikelihoodVerdicts,
  options: ReportOptions,
): VerdictReport {
  const others = { words, ...(alone ? { [evidenceOf(weights)]: alone } : {}) };
  const metricsOf = (steps: (of: readonly JudgedVerdict[]) => readonly JudgedVerdict[]) =>
    Object.fromEntries(
      Object.entries(others).map(([name, of]) => [name, verdictMetrics(steps(of), options)] as const),
    );
  return verdictReport(both, {
    ...options,
    validation,
    others,
    baselines: metricsOf((of) => of),
    baselinesUnseen: metricsOf((of) => of.filter((step) => !options.seen?.(step))),
  });
}

function verdictReport(judged: readonly JudgedVerdict[], options: ReportOptions): VerdictReport {
  const {
    method,
    records,
    invalidAsWrong,
    positivePrior,
    validation,
    baselines = {},
    baselinesUnseen = {},
  } = options;
  const metrics = verdictMetrics(judged, { invalidAsWrong });
  const positives = judged.filter(({ label }) => label === 1).length;
  const steps = problemStepsOf(judged, records);
  const bootstrap = { ...BOOTSTRAP, ...options.bootstrap, invalidAsWrong };
  const counted = <T extends ScoredStep>(all: readonly T[] = []) =>
    invalidAsWrong ? all : all.filter(({ unreadable }) => !unreadable);
  const split = seenAndUnseen(judged, steps, options.seen);
  const optional = {
    ...unseenReport(split, { ...options, bootstrap, baselinesUnseen }),
    intervals: bootstrapIntervals(steps, bootstrap),
    differences: differencesTo(options, { judged, steps }, bootstrap),
    calibration: calibration(judged),
    threshold_sweep: judged.length > 0 ? thresholdSweep(counted(judged), counted(validation)) : undefined,
    threshold: options.threshold,
    outcomes: options.outcomes,
    unit: options.unit === 'solutions' ? options.unit : undefined,
    processbench: processBenchReport(firstErrorCases(judged, records)),
    errors: metricsByError(judged, records, options.seen),
    groups: metricsByGroup(judged, records, (part) => verdictMetrics(part, { invalidAsWrong })),
  };
  return {
    method,
    data: {
      ...options.data,
      test_solutions: records.length,
      test_steps: judged.length,
      ...(split ? { seen_share: ratio(split.seen.judged.length, judged.length) } : {}),
    },
    metrics,
    ...(validation?.length ? { metrics_validation: verdictMetrics(validation, { invalidAsWrong }) } : {}),
    baselines: {
      ...baselineMetrics({ positives, negatives: judged.length - positives, positivePrior }),
      ...baselines,
    },
    ...defined(optional),
  };
}

/** The warnings on the kept judge, and on the training of its words. */
function warningsOf(
  kept: VerdictReport,
  words: VerdictReport,
  { warnings = [], baselines = {}, unit, balanced, valueLosses, likelihood, pretrained }: EvaluationOptions,
): string[] {
  const { n } = kept.metrics;
  const evidence = likelihood && !likelihood.isChance ? evidenceOf(likelihood.weights) : undefined;
  const signs =
    n > 0
      ? failureSigns({
          metrics: kept.metrics,
          aucInterval: kept.intervals?.metrics.auc,
          words: words.metrics,
          evidence,
          pretrained,
          unit,
          balanced,
          sft: baselines.sft,
          network: baselines.reward_network,
          valueLosses,
        })
      : ['no step was judged'];
  return [
    ...warnings,
    ...(signs.length > 0 ? signs : fewProblems(kept)),
    ...seenWarning(kept.metrics_seen?.n ?? 0, n),
  ];
}

/** A sentence where all looks well, on so few problems that it says nothing. */
function fewProblems({ intervals, metrics: { n } }: VerdictReport): string[] {
  if (intervals === undefined || intervals.problems >= MIN_PROBLEMS) return [];
  const { problems } = intervals;
  return [
    `${plural(n, 'step')} of ${plural(problems, 'test problem')} say little of any judge: hold out more`,
  ];
}

function problemStepsOf(judged: readonly JudgedVerdict[], records: readonly StepRecord[]): ProblemStep[] {
  return judged.map(({ solution, label, verdict, probability }) => ({
    problem: normalizeProblem(records[solution]!.problem),
    label,
    verdict,
    probability,
  }));
}

interface JudgedSteps {
  readonly judged: readonly JudgedVerdict[];
  readonly steps: readonly ProblemStep[];
}

type SeenAndUnseen = Readonly<Record<'seen' | 'unseen', JudgedSteps>>;

function seenAndUnseen(
  judged: readonly JudgedVerdict[],
  steps: readonly ProblemStep[],
  isSeen: SeenSteps | undefined,
): SeenAndUnseen | undefined {
  if (isSeen === undefined) return undefined;
  const flags = judged.map(isSeen);
  const part = (wanted: boolean) => ({
    judged: judged.filter((_, i) => flags[i] === wanted),
    steps: steps.filter((_, i) => flags[i] === wanted),
  });
  return { seen: part(true), unseen: part(false) };
}

/** Paired differences in F1 macro to each other model, and to chance; undefined without any, or with a single problem. */
function differencesTo(
  { others = {}, seen, positivePrior }: Pick<EvaluationOptions, 'others' | 'seen' | 'positivePrior'>,
  { judged, steps }: JudgedSteps,
  bootstrap: BootstrapOptions & { readonly invalidAsWrong: boolean },
): EvalReport['differences'] {
  const named = Object.entries(others).filter(([, of]) => of.length === judged.length);
  const fresh = judged.flatMap((verdict, i) => (seen?.(verdict) ? [] : [i]));
  const chosen = fresh.length > 0 ? fresh : judged.map((_, i) => i);
  const own = chosen.map((i) => steps[i] as ProblemStep);
  const intervals = bootstrapIntervals(own, bootstrap);
  if (named.length === 0 || !intervals) return undefined;
  const positives = own.filter(({ label }) => label === 1).length;
  const chance = baselineMetrics({ positives, negatives: own.length - positives, positivePrior }).random;
  const { f1_macro } = verdictMetrics(own, bootstrap);
  const [low, high] = intervals.metrics.f1_macro as readonly [number, number];
  const paired = named.map(([name, of]) => {
    const other = chosen.map((i): ProblemStep => {
      const { verdict, probability } = of[i] as JudgedVerdict;
      return { ...(steps[i] as ProblemStep), verdict, probability };
    });
    const { difference, interval } = pairedDifferences(other, own, ['f1_macro'], bootstrap).differences
      .f1_macro;
    return [name, { difference, interval }] as const;
  });
  return {
    steps: fresh.length > 0 && fresh.length < judged.length ? 'unseen' : 'all',
    n: own.length,
    to: {
      ...Object.fromEntries(paired),
      random: {
        difference: f1_macro - chance.f1_macro,
        interval: [low - chance.f1_macro, high - chance.f1_macro],
      },
    },
  };
}

/** The breakdown; a part without a step is left out. */
function unseenReport(
  split: SeenAndUnseen | undefined,
  options: Pick<EvaluationOptions, 'invalidAsWrong' | 'positivePrior'> & {
    readonly bootstrap: BootstrapOptions & { readonly invalidAsWrong: boolean };
    readonly baselinesUnseen: Readonly<Record<string, VerdictMetrics>>;
  },
): Pick<EvalReport, 'metrics_seen' | 'metrics_unseen' | 'baselines_unseen' | 'intervals_unseen'> {
  if (!split) return {};
  const { seen, unseen } = split;
  const positives = unseen.judged.filter(({ label }) => label === 1).length;
  return {
    ...(seen.judged.length > 0 ? { metrics_seen: verdictMetrics(seen.judged, options) } : {}),
    ...(unseen.judged.length > 0
      ? {
          metrics_unseen: verdictMetrics(unseen.judged, options),
          baselines_unseen: {
            ...baselineMetrics({
              positives,
              negatives: unseen.judged.length - positives,
              positivePrior: options.positivePrior,
            }),
            ...options.baselinesUnseen,
          },
          ...defined({ intervals_unseen: bootstrapIntervals(unseen.steps, options.bootstrap) }),
        }
      : {}),
  };
}

function seenWarning(seen: number, judged: number): string[] {
  if (seen === 0) return [];
  if (seen === judged)
    return ['every judged step stands word for word in the training data: nothing is held out'];
  return [
    `${percent(seen / judged)} % of the judged steps stand word for word in the training data: read the metrics of the ` +
      `${judged - seen} unseen ones`,
  ];
}

/**
 * The metrics of one judge that need no resampling.
 *
 * @throws StepTrainError E_NONFINITE for a probability that is not a number
 */
export function verdictMetrics(
  judged: readonly (JudgedStep & ScoredStep)[],
  options: { readonly invalidAsWrong: boolean },
): VerdictMetrics {
  const odd = judged.findIndex(({ probability }) => Number.isNaN(probability));
  if (odd >= 0) throw notFinite('the model', `judged step ${odd + 1}`);
  const { confusion, invalid } = countConfusion(judged, options);
  const auc = aucOf(judged);
  return { ...confusionMetrics(confusion), invalid, ...(auc === undefined ? {} : { auc }) };
}

/** Every solution whose labels determine its first wrong step. */
export function firstErrorCases(
  judged: readonly Pick<JudgedVerdict, 'solution' | 'step' | 'label' | 'verdict'>[],
  records: readonly StepRecord[],
): FirstErrorCase[] {
  const verdicts = records.map((): (typeof judged)[number][] => []);
  for (const verdict of judged) verdicts[verdict.solution]!.push(verdict);
  return records.flatMap(({ steps, provenance, group }, i): FirstErrorCase[] => {
    const labels = steps.map((step) => step.label);
    const label = firstWrongLabel(labels);
    if (label === undefined) return [];
    const labelled = labels.filter((each) => each !== null).length;
    return [
      {
        subset: group ?? subsetOf(provenance?.file),
        label,
        prediction: firstWrongVerdict(verdicts[i]!, labelled),
      },
    ];
  });
}

/** The part of a benchmark in a file, by the file's name: `math` for math.json.gz and math-00000-of-00001.parquet. */
export function subsetOf(file: string | undefined): string {
  if (!file) return 'all';
  return basename(file).replace(/(-\d+-of-\d+)?\.(jsonl?|ndjson|csv|parquet)(\.gz)?$/, '');
}
