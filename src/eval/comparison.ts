// Compares two judges on the same steps: the differences and their confidence intervals over problems.
import { RunError } from '../run/error.js';
import { formatTable, wrapped } from '../terminal/table.js';
import { verdictMetrics } from './evaluate-verdicts.js';
import { problemSteps, type VerdictRow } from './reports/dump.js';
import { BOOTSTRAP, type BootstrapOptions, CONFIDENCE } from './statistics/bootstrap.js';
import { type McNemar, mcnemar } from './statistics/mcnemar.js';
import { needsOtherClass, type VerdictMetrics } from './statistics/metrics.js';
import { type Difference, pairedDifferences } from './statistics/paired.js';
import { formatSigned, percent } from './statistics/percent.js';

const COMPARED = ['f1_macro', 'balanced_accuracy', 'acc_pos', 'acc_neg'] as const;
export type ComparedMetric = (typeof COMPARED)[number];

export interface Comparison {
  readonly steps: number;
  readonly problems: number;
  /** Steps that are right by their labels. */
  readonly positives: number;
  readonly a: VerdictMetrics;
  readonly b: VerdictMetrics;
  readonly mcnemar: McNemar;
  readonly bootstrap: BootstrapOptions;
  /** Differences by metric. The bootstrap is paired: both judges get the same resampled problems. */
  readonly differences: Readonly<Record<ComparedMetric, Difference>>;
}

/**
 * Compares verdicts on the same steps; an unreadable verdict is wrong for its class. Deterministic for a seed.
 *
 * @throws RunError with one sentence where the steps differ
 */
export function compareVerdicts(
  a: readonly VerdictRow[],
  b: readonly VerdictRow[],
  options: Partial<BootstrapOptions> = {},
): Comparison {
  refuseOtherSteps(a, b);
  const bootstrap = { ...BOOTSTRAP, ...options };
  const invalidAsWrong = true;
  const [stepsA, stepsB] = [problemSteps(a), problemSteps(b)];
  const { problems, differences } = pairedDifferences(stepsA, stepsB, COMPARED, {
    ...bootstrap,
    invalidAsWrong,
  });
  const right = ({ label, verdict }: VerdictRow) => label === verdict;
  return {
    steps: a.length,
    problems,
    positives: a.filter(({ label }) => label === 1).length,
    a: verdictMetrics(stepsA, { invalidAsWrong }),
    b: verdictMetrics(stepsB, { invalidAsWrong }),
    mcnemar: mcnemar(
      a.filter((row, i) => right(row) && !right(b[i]!)).length,
      a.filter((row, i) => !right(row) && right(b[i]!)).length,
    ),
    bootstrap,
    differences,
  };
}

function refuseOtherSteps(a: readonly VerdictRow[], b: readonly VerdictRow[]): void {
  const advice = 'only verdicts on the same steps can be compared: judge the same data with the same limits';
  if (a.length !== b.length)
    throw new RunError(`the first judged ${a.length} steps and the second ${b.length}; ${advice}`);
  for (const [i, row] of a.entries()) {
    const other = b[i]!;
    const key = (['problem', 'solution', 'step', 'text', 'label'] as const).find(
      (key) => row[key] !== other[key],
    );
    if (key === undefined) continue;
    throw new RunError(
      `line ${i + 1} has ${key} ${shown(row[key])} in the first and ${shown(other[key])} in the second; ${advice}`,
    );
  }
}

function shown(value: string | number): string {
  const text = JSON.stringify(value);
  return text.length <= 60 ? text : `${text.slice(0, 57)}…"`;
}

const TITLES: Readonly<Record<ComparedMetric, string>> = {
  f1_macro: 'F1 macro',
  balanced_accuracy: 'balanced accuracy',
  acc_pos: 'Acc_pos',
  acc_neg: 'Acc_neg',
};

/** A table of the differences in points, and the test on single verdicts below it. */
export function formatComparison(comparison: Comparison, { boxed }: { readonly boxed: boolean }): string {
  const { steps, problems, positives, a, b, differences, bootstrap } = comparison;
  const classes = { n: steps, accuracy: positives / steps };
  const rows = [
    [`${steps} steps, %`, 'A', 'B', 'B − A', `${100 * CONFIDENCE} % CI`, 'p'],
    ...COMPARED.map((metric) => {
      // Without right or without wrong steps it is 0/0.
      if (needsOtherClass(metric, classes)) return [TITLES[metric], '–', '–', '–', '', ''];
      const { difference, interval, p } = differences[metric];
      const ends = interval.map((end) => formatSigned(end, percent)).join(' to ');
      return [
        TITLES[metric],
        percent(a[metric]),
        percent(b[metric]),
        formatSigned(difference, percent),
        ends,
        p.toFixed(3),
      ];
    }),
  ];
  const { only_a, only_b, exact_p, mid_p } = comparison.mcnemar;
  return [
    formatTable(rows, { boxed }),
    wrapped(
      `intervals and p: ${bootstrap.resamples} paired bootstrap samples of ${problems} problems (seed ${bootstrap.seed})`,
    ),
    wrapped(
      `McNemar on single verdicts: ${only_a} right only in A, ${only_b} only in B, exact p ${formatProbability(exact_p)}, mid-p ` +
        `${formatProbability(mid_p)}; it takes steps of one problem as independent`,
    ),
  ].join('\n');
}

export function formatProbability(p: number): string {
  if (p === 0) return 'below 1e-300';
  return p < 0.001 ? p.toExponential(1) : p.toFixed(3);
}
