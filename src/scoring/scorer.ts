/** The one interface of whatever gives numbers to solutions: models, oracle, files, servers, rules, functions. */
import type { Problem } from '../data/benchmarks/problem.js';
import { invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import { RunError } from '../run/error.js';

/** A solution as scorers read it. */
export interface Solution {
  /** The text of the problem. */
  readonly problem: string;
  readonly steps: readonly string[];
  /** As it was written. Default: the steps, each on a line. */
  readonly text?: string | undefined;
  /** What else is known of the problem: its answer, a reference solution, the plan of a generated one. */
  readonly of?: Problem | undefined;
  /** Which sample of which problem of an evaluation it is. */
  readonly place?: { readonly problem: number; readonly sample: number } | undefined;
  /** How many tokens were drawn. */
  readonly tokens?: number | undefined;
  /** It was cut off at the most tokens. */
  readonly truncated?: boolean | undefined;
}

export interface SolutionScores {
  /** Of each step; null where there is none: of what the scorer cannot read or says nothing, and of all but the last of outcomes. */
  readonly scores: readonly (number | null)[];
  /** Of the whole solution, where the scorer gives one beside those of steps or in their place; null: it cannot read it. */
  readonly outcome?: number | null;
  /** Of each step, where they are not what `threshold` makes of the scores: null where the model says neither. */
  readonly verdicts?: readonly (1 | 0 | null)[];
  /** Of each step, whether a calculation that it writes out was computed. Absent of what computes none. */
  readonly checked?: readonly boolean[];
  /** Of each step, whether it lies beyond what the model reads, so that its score is of its calculations alone. */
  readonly unread?: readonly boolean[];
  /** That were read. */
  readonly tokens?: number;
}

/** More is better. Whatever implements this is served, evaluated, judged by and learned from. */
export interface Scorer {
  /** For reports. */
  readonly name: string;
  /** What it knows: every step, or only whole solutions. */
  readonly unit: 'step' | 'outcome';
  /** What a score is: the probability of right, its log-odds, or a reward without bounds. */
  readonly scale: 'probability' | 'log_odds' | 'reward';
  /** From which score on a step is right. */
  readonly threshold: number;
  /** It goes by calculations alone: all steps that write out none have one score, which says nothing of a single one. */
  readonly byCalculations?: boolean;
  /** What its run found wrong with it, in sentences. */
  readonly warnings?: readonly string[];
  /** By solution; undefined if the signal stopped it. A score depends on its own solution alone. */
  score(
    solutions: readonly Solution[],
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<readonly SolutionScores[] | undefined>;
  /** What it has counted, such as requests, tokens and cost. */
  report?(): Readonly<Record<string, number>>;
  /** Frees what was opened for it. */
  dispose(): void;
}

/** A scorer of which only the name and the scores are its own: of steps, by probabilities, with nothing to free. */
export function scorer(own: Pick<Scorer, 'name' | 'score'> & Partial<Scorer>): Scorer {
  const { scale = 'probability' } = own;
  return {
    unit: 'step',
    scale,
    threshold: scale === 'probability' ? 0.5 : 0,
    dispose() {},
    ...own,
    async score(solutions, options) {
      checkSolutions('score', solutions);
      return own.score(solutions, options);
    },
  };
}

/** @throws StepTrainError for what is no list of problems with their steps */
export function checkSolutions(what: string, solutions: readonly Solution[]): void {
  if (!Array.isArray(solutions))
    throw invalid(
      `${what}: expected a list of solutions such as [{ problem: '…', steps: ['…'] }], found ${shown(solutions)}`,
    );
  for (const [i, solution] of solutions.entries()) {
    const { problem, steps } = solution ?? {};
    const isTexts = Array.isArray(steps) && steps.every((step) => typeof step === 'string');
    if (typeof problem !== 'string' || !isTexts)
      throw invalid(
        `${what}: expected a problem as text and a list of steps as texts${solutions.length > 1 ? ` as solution ${i}` : ''}, ` +
          `found ${shown({ problem, steps })}`,
      );
  }
}

/** The probability that a score stands for; null of a reward without bounds. */
export function probabilityOf({ scale }: Pick<Scorer, 'scale'>, score: number): number | null {
  if (scale === 'reward') return null;
  return scale === 'probability' ? score : 1 / (1 + Math.exp(-score));
}

/**
 * The numbers that are put together to one: the score of the whole where there is one, else those of steps. Of probabilities those of
 * steps behind the last one that was read count as 0, since an error there must not cost less than one that was seen. Empty where
 * nothing was read.
 */
export function numbersOf(
  { unit, scale }: Pick<Scorer, 'unit' | 'scale'>,
  { scores, outcome }: SolutionScores,
): readonly number[] {
  if (outcome !== undefined) return outcome === null ? [] : [outcome];
  const last = scores.findLastIndex((score) => score !== null);
  const read = scores.slice(0, last + 1).filter((score) => score !== null);
  if (unit === 'outcome' || scale !== 'probability' || last < 0) return read;
  return [...read, ...scores.slice(last + 1).map(() => 0)];
}

/** By step of a scored solution: 1 right, 0 wrong, null where it says nothing. */
export function verdictsIn(
  { threshold }: Pick<Scorer, 'threshold'>,
  { scores, verdicts }: SolutionScores,
): readonly (1 | 0 | null)[] {
  return verdicts ?? scores.map((score) => (score === null ? null : score >= threshold ? 1 : 0));
}

/** Verdicts by solution and step. Those of a stopped call say nothing. */
export type Verdicts = (
  solutions: readonly Solution[],
  signal?: AbortSignal,
) => Promise<readonly (readonly (1 | 0 | null)[])[]>;

/**
 * A scorer as a judge.
 *
 * @throws RunError for one of outcomes
 */
export function verdictsOf(scorer: Scorer): Verdicts {
  if (scorer.unit === 'outcome') throw ofOutcomes(scorer.name);
  return async (solutions, signal) => {
    const found = await scorer.score(solutions, { signal });
    return solutions.map(({ steps }, i) => {
      const own = found?.[i];
      return own ? verdictsIn(scorer, own) : steps.map(() => null);
    });
  };
}

export const ofOutcomes = (name: string) =>
  new RunError(
    `${name} scores whole solutions and judges no steps; name a model of steps, such as one of reward_model.type prm or joint`,
  );

/** Scores by step from those of the steps that were judged. */
export function scoresByStep(
  { steps }: Pick<Solution, 'steps'>,
  judged: Iterable<readonly [step: number, score: number]>,
): (number | null)[] {
  const found = new Map(judged);
  return steps.map((_, step) => found.get(step) ?? null);
}

/** A number for the whole solution, at its last step. */
export function outcomeScores({ steps }: Pick<Solution, 'steps'>, outcome: number | null): SolutionScores {
  return { scores: steps.map((_, i) => (i === steps.length - 1 ? outcome : null)), outcome };
}

/** A sample of a problem of an evaluation. */
export function sampled(
  of: Problem,
  { problem, sample, text }: { readonly problem: number; readonly sample: number; readonly text: string },
  steps: readonly string[],
): Solution {
  return { problem: of.problem, of, text, steps, place: { problem, sample } };
}

/** The text of a solution. */
export const textOf = ({ text, steps }: Pick<Solution, 'text' | 'steps'>): string => text ?? steps.join('\n');
