// Two evaluations of the same problems: the differences of their metrics, and the problems that only one solved.
import type { EqualityOptions } from '../../answers/equal.js';
import { plural } from '../../native/shown.js';
import { RunError } from '../../run/error.js';
import { formatTable, wrapped } from '../../terminal/table.js';
import { formatProbability } from '../comparison.js';
import {
  BOOTSTRAP,
  type BootstrapOptions,
  CONFIDENCE,
  resample,
  resampledInterval,
  SHARE,
} from '../statistics/bootstrap.js';
import { type McNemar, mcnemar } from '../statistics/mcnemar.js';
import { type Difference, twoSided } from '../statistics/paired.js';
import { formatSigned } from '../statistics/percent.js';
import type { SolvedProblem } from './dump.js';
import { type EqualTokenVotes, equalTokenVotes } from './equal-tokens.js';
import { type Contributions, contributions, defaultKs, metricOf } from './metrics.js';
import { formatMetric, metricTitle } from './solving-report.js';
import { ballots, votedRight } from './votes.js';

export interface SolvingDifference extends Omit<Difference, 'interval'> {
  readonly a: number;
  readonly b: number;
  /** See `Difference`; absent if a metric without bounds differs by the same on every problem. */
  readonly interval?: readonly [number, number];
}

export interface SolvingComparison {
  readonly problems: number;
  /** Samples of each problem. */
  readonly n: { readonly a: number; readonly b: number };
  readonly bootstrap: BootstrapOptions;
  /**
   * Differences by metric, of the metrics that both have. The bootstrap is paired: both get the same resampled
   * problems.
   */
  readonly metrics: Readonly<Record<string, SolvingDifference>>;
  /**
   * Votes by metric `maj_equal@k`, where there are samples enough: the numbers of votes of A and of B with the same
   * number of tokens.
   */
  readonly equal_tokens: Readonly<Record<string, EqualTokenVotes>>;
  /** McNemar's test over problems. A problem is solved if its most frequent answer is more likely right than not. */
  readonly mcnemar: McNemar;
}

/**
 * Compares evaluations of the same problems. Deterministic for a seed.
 *
 * @param options how the evaluations compared answers, so that the same ones count as one in a vote, and the resamples
 * @throws RunError with one sentence where the problems differ
 */
export function compareSolving(
  a: readonly SolvedProblem[],
  b: readonly SolvedProblem[],
  { digits, units, steps, ...options }: Partial<BootstrapOptions> & EqualityOptions = {},
): SolvingComparison {
  refuseOtherProblems(a, b);
  const bootstrap = { ...BOOTSTRAP, ...options };
  const equality = { digits, units, steps };
  const samplesOf = (problems: readonly SolvedProblem[]) => problems.map(({ samples }) => samples);
  const n = { a: a[0]?.samples.length ?? 0, b: b[0]?.samples.length ?? 0 };
  const ks = defaultKs(Math.min(n.a, n.b));
  const equal = equalTokenVotes(samplesOf(a), samplesOf(b), equality);
  const ofA = new Map([...contributions(samplesOf(a), { ks, ...equality }), ...equal.a]);
  const ofB = new Map([...contributions(samplesOf(b), { ks, ...equality }), ...equal.b]);
  const contributed = (of: typeof ofA, name: string) => of.get(name) as Contributions;
  /** Both values; undefined where one of them is a share of nothing. */
  const values = (name: string, weights?: Uint32Array): readonly [a: number, b: number] | undefined => {
    const [ofThis, ofOther] = [ofA, ofB].map((of) => metricOf(contributed(of, name), weights));
    return ofThis === undefined || ofOther === undefined ? undefined : [ofThis, ofOther];
  };
  const names = [...ofA.keys()].filter((name) => ofB.has(name) && values(name) !== undefined);
  const resampled = new Map(names.map((name) => [name, [] as number[]]));
  resample(a.length, bootstrap, (weights) => {
    for (const [name, differences] of resampled) {
      const found = values(name, weights);
      if (found) differences.push(found[1] - found[0]);
    }
  });
  const differences = names.map((name) => {
    const [ofThis, ofOther] = values(name) as readonly [number, number];
    const resampledDifferences = resampled.get(name) ?? [];
    const [{ counts, range: [low, high] = SHARE }, other] = [contributed(ofA, name), contributed(ofB, name)];
    const counted = counts.filter((count, i) => count > 0 && other.counts[i]! > 0).length;
    const interval =
      resampledDifferences.length === 0
        ? undefined
        : resampledInterval(resampledDifferences, counted, [low - high, high - low]);
    const difference = {
      ...{ a: ofThis, b: ofOther, difference: ofOther - ofThis },
      ...(interval ? { interval } : {}),
      p: twoSided(resampledDifferences, counted),
    };
    return [name, difference] as const;
  });
  const [solvedA, solvedB] = [solved(a, equality), solved(b, equality)];
  return {
    problems: a.length,
    n,
    bootstrap,
    metrics: Object.fromEntries(differences),
    equal_tokens: Object.fromEntries(equal.votes),
    mcnemar: mcnemar(
      solvedA.filter((is, i) => is && !solvedB[i]).length,
      solvedA.filter((is, i) => !is && solvedB[i]).length,
    ),
  };
}

function solved(problems: readonly SolvedProblem[], equality: EqualityOptions): boolean[] {
  return problems.map(({ samples }) => votedRight(ballots(samples, equality), [...samples.keys()]) > 0.5);
}

function refuseOtherProblems(a: readonly SolvedProblem[], b: readonly SolvedProblem[]): void {
  const advice = 'only evaluations of the same problems can be compared';
  if (a.length !== b.length)
    throw new RunError(`the first has ${plural(a.length, 'problem')} and the second ${b.length}; ${advice}`);
  for (const [i, problem] of a.entries()) {
    const key = (['problem', 'answer'] as const).find((key) => problem[key] !== b[i]?.[key]);
    if (key === undefined) continue;
    const shown = (text: string | undefined) => JSON.stringify((text ?? '').slice(0, 60));
    throw new RunError(
      `problem ${i + 1} has the ${key} ${shown(problem[key])} in the first and ${shown(b[i]?.[key])} in the second; ${advice}`,
    );
  }
}

/** A table of the differences, in points for shares, and the test on problems below it. */
export function formatSolvingComparison(
  {
    problems,
    n,
    metrics,
    equal_tokens: equal,
    bootstrap,
    mcnemar: { only_a, only_b, exact_p, mid_p },
  }: SolvingComparison,
  { boxed }: { readonly boxed: boolean },
): string {
  const signed = (name: string, value: number) => formatSigned(value, (size) => formatMetric(name, size));
  const rows = [
    [`${plural(problems, 'problem')}, %`, 'A', 'B', 'B − A', `${100 * CONFIDENCE} % CI`, 'p'],
    ...Object.entries(metrics).map(([name, { a, b, difference, interval, p }]) => [
      metricTitle(name),
      formatMetric(name, a),
      formatMetric(name, b),
      signed(name, difference),
      interval?.map((end) => signed(name, end)).join(' to ') ?? '–',
      p.toFixed(3),
    ]),
  ];
  return [
    formatTable(rows, { boxed }),
    wrapped(
      `intervals and p: ${bootstrap.resamples} paired bootstrap samples of ${problems} problems (seed ${bootstrap.seed}); ` +
        `samples of each problem: ${n.a} in A, ${n.b} in B`,
    ),
    ...equalTokensLines(equal),
    wrapped(
      `McNemar on problems: ${only_a} solved only in A, ${only_b} only in B, exact p ${formatProbability(exact_p)}, mid-p ` +
        formatProbability(mid_p),
    ),
  ].join('\n');
}

function equalTokensLines(equal: SolvingComparison['equal_tokens']): string[] {
  const votes = Object.values(equal);
  if (votes.length === 0) return [];
  const list = (which: keyof EqualTokenVotes, digits: number) =>
    votes.map((of) => of[which].toFixed(digits)).join(', ');
  return [
    wrapped(
      `maj_equal@k: votes of as many tokens on average, ${list('a', 0)} of A and ${list('b', 1)} of B; between two whole numbers ` +
        'of votes the mean of both, weighted',
    ),
  ];
}
