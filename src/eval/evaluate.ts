// Computes a report from verdicts: pure functions, independent of the judge.
import { basename } from 'node:path';
import { normalizeProblem, type StepRecord } from '../records/record.js';
import { BOOTSTRAP, type BootstrapOptions, bootstrapIntervals, type ProblemStep } from './bootstrap.js';
import { calibration } from './calibration.js';
import { failureSigns } from './failure-signs.js';
import {
  baselineMetrics,
  confusionMetrics,
  countConfusion,
  type JudgedStep,
  rocAuc,
  type VerdictMetrics,
} from './metrics.js';
import type { EvalReport } from './report.js';
import { type FirstErrorCase, firstWrongLabel, firstWrongVerdict, processBenchReport } from './solutions.js';
import { type ScoredStep, thresholdSweep } from './thresholds.js';
import type { JudgedVerdict } from './verdicts.js';

export interface EvaluationOptions {
  /** The training method, as in the configuration. */
  readonly method: string;
  /** Where the steps came from; the counts of judged steps are added. */
  readonly data: Readonly<Record<string, unknown>>;
  /** The judged solutions: `records[solution]` belongs to a verdict. */
  readonly records: readonly StepRecord[];
  /** An unreadable verdict is wrong for its class, or left out. */
  readonly invalidAsWrong: boolean;
  /** Share of correct steps in the training data, for the baselines that use nothing else. */
  readonly positivePrior: number;
  /** Verdicts on the validation steps that select the thresholds. */
  readonly validation?: readonly ScoredStep[] | undefined;
  /** Models judged on the same steps, by name; `sft` is the one that the run started from. */
  readonly baselines?: Readonly<Record<string, VerdictMetrics>>;
  /** Value losses of the run, in order. */
  readonly valueLosses?: readonly number[] | undefined;
  /** Sentences about the data, reported with the signs of failure. */
  readonly warnings?: readonly string[];
  readonly bootstrap?: Partial<BootstrapOptions>;
}

/** The part of eval.json about verdicts on held-out steps. */
export function evaluateVerdicts(judged: readonly JudgedVerdict[], options: EvaluationOptions): EvalReport {
  const { method, records, invalidAsWrong, positivePrior, validation, baselines = {} } = options;
  const metrics = verdictMetrics(judged, { invalidAsWrong });
  const positives = judged.filter(({ label }) => label === 1).length;
  const steps = judged.map(
    ({ solution, label, verdict, probability }): ProblemStep => ({
      problem: normalizeProblem(records[solution]!.problem),
      label,
      verdict,
      probability,
    }),
  );
  const optional = {
    intervals: bootstrapIntervals(steps, { ...BOOTSTRAP, ...options.bootstrap, invalidAsWrong }),
    calibration: calibration(judged),
    threshold_sweep: judged.length > 0 ? thresholdSweep(judged, validation) : undefined,
    processbench: processBenchReport(firstErrorCases(judged, records)),
  };
  const warnings = [
    ...(options.warnings ?? []),
    ...(judged.length > 0
      ? failureSigns({ metrics, sft: baselines.sft, valueLosses: options.valueLosses })
      : ['no step was judged']),
  ];
  return {
    method,
    data: { ...options.data, test_solutions: records.length, test_steps: judged.length },
    metrics,
    baselines: {
      ...baselineMetrics({ positives, negatives: judged.length - positives, positivePrior }),
      ...baselines,
    },
    ...defined(optional),
    ...(warnings.length > 0 ? { warnings } : {}),
  };
}

/** The metrics of one judge that need no resampling. */
export function verdictMetrics(
  judged: readonly (JudgedStep & ScoredStep)[],
  options: { readonly invalidAsWrong: boolean },
): VerdictMetrics {
  const { confusion, invalid } = countConfusion(judged, options);
  const auc = rocAuc(
    judged.map(({ probability }) => probability),
    judged.map(({ label }) => label),
  );
  return { ...confusionMetrics(confusion), invalid, ...(auc === undefined ? {} : { auc }) };
}

/** Every solution whose labels determine its first wrong step. */
function firstErrorCases(judged: readonly JudgedVerdict[], records: readonly StepRecord[]): FirstErrorCase[] {
  const verdicts = records.map((): JudgedVerdict[] => []);
  for (const verdict of judged) verdicts[verdict.solution]!.push(verdict);
  return records.flatMap(({ steps, provenance }, i): FirstErrorCase[] => {
    const labels = steps.map((step) => step.label);
    const label = firstWrongLabel(labels);
    if (label === undefined) return [];
    const labelled = labels.filter((each) => each !== null).length;
    return [
      { subset: subsetOf(provenance?.file), label, prediction: firstWrongVerdict(verdicts[i]!, labelled) },
    ];
  });
}

/** The part of a benchmark that a file holds, by the file's name: `math` of math.json.gz and math-00000-of-00001.parquet. */
function subsetOf(file: string | undefined): string {
  if (!file) return 'all';
  return basename(file).replace(/(-\d+-of-\d+)?\.(jsonl?|ndjson|parquet)(\.gz)?$/, '');
}

function defined<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}
