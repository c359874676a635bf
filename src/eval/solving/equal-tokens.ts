// Votes that cost the same: a model that writes longer solutions has fewer of them for as many tokens.
import type { EqualityOptions } from '../../answers/equal.js';
import { type Contributions, defaultKs } from './metrics.js';
import type { GradedSample } from './sample.js';
import { meanOverSubsets } from './subsets.js';
import { ballots, votedRight } from './votes.js';

type Samples = readonly (readonly GradedSample[])[];

export interface EqualTokenVotes {
  /** Votes of A. */
  readonly a: number;
  /**
   * Number of samples of B with as many tokens on average. Between two whole numbers the result is the mean of both,
   * weighted by distance.
   */
  readonly b: number;
}

export interface EqualTokens {
  /** Votes by name of the metric, `maj_equal@k` for k votes of A. */
  readonly votes: ReadonlyMap<string, EqualTokenVotes>;
  readonly a: ReadonlyMap<string, Contributions>;
  readonly b: ReadonlyMap<string, Contributions>;
}

/**
 * Majority votes of two models for the same number of generated tokens: k of A against k · tA / tB of B, where t is the
 * mean number of tokens of a sample over all problems. k is 4, 8, … and all that A has, as long as B has enough
 * samples.
 */
export function equalTokenVotes(a: Samples, b: Samples, equality: EqualityOptions = {}): EqualTokens {
  const [drawnA, drawnB] = [a[0]?.length ?? 0, b[0]?.length ?? 0];
  const ratio = tokensOf(a) / tokensOf(b);
  const votes = defaultKs(drawnA)
    .filter((k) => k > 2 && k * ratio >= 1 && k * ratio <= drawnB)
    .map((k) => [`maj_equal@${k}`, { a: k, b: k * ratio }] as const);
  const [rightA, rightB] = [votedRightOf(a, equality), votedRightOf(b, equality)];
  const all = (right: (votes: number) => number[], which: keyof EqualTokenVotes) =>
    new Map(votes.map(([name, of]) => [name, { sums: right(of[which]), counts: a.map(() => 1) }]));
  return { votes: new Map(votes), a: all(rightA, 'a'), b: all(rightB, 'b') };
}

/** Mean number of tokens of a sample. */
export function tokensOf(problems: Samples): number {
  const samples = problems.flat();
  return samples.reduce((sum, { tokens }) => sum + tokens, 0) / samples.length;
}

/** The probability, by problem, that the given number of votes elects a right answer. The number may be fractional. */
function votedRightOf(problems: Samples, equality: EqualityOptions): (votes: number) => number[] {
  const cast = problems.map((samples) => ballots(samples, equality));
  const whole = (k: number) =>
    cast.map((of, problem) =>
      meanOverSubsets({ n: of.length, k, problem }, (subset) => votedRight(of, subset)),
    );
  return (votes) => {
    const [fewer, share] = [Math.floor(votes), votes % 1];
    const [below, above] = [whole(fewer), share > 0 ? whole(fewer + 1) : []];
    return below.map((right, problem) => (1 - share) * right + share * (above[problem] ?? 0));
  };
}
