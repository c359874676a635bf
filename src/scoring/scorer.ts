/** The one interface of whatever gives numbers to solutions: models, oracle, files, servers, rules, functions. */

import type { Problem } from '../data/benchmarks/problem.js';
import { DataError } from '../files/data-error.js';
import { exp } from '../native/elementary.js';
import { invalid, StepTrainError } from '../native/errors.js';
import { plural, shown } from '../native/shown.js';
import type { Segmentation } from '../records/segment.js';
import type { Turns } from '../records/turns.js';
import { RunError } from '../run/error.js';

/** A solution as scorers read it. */
export interface Solution {
  /** The text of the problem. */
  readonly problem: string;
  readonly steps: readonly string[];
  /** The conversation whose turns of the assistant the steps are; only scorers that `readsTurns` score it. */
  readonly turns?: Turns | undefined;
  /** The solution as written. Default: the steps, each on a line. */
  readonly text?: string | undefined;
  /** Further facts about the problem: its answer, a reference solution, the plan of a generated one. */
  readonly of?: Problem | undefined;
  /** Position of the solution in an evaluation: its problem, and its number among that problem's samples. */
  readonly place?: { readonly problem: number; readonly sample: number } | undefined;
  /** Number of drawn tokens. */
  readonly tokens?: number | undefined;
  /** Whether it was cut off at the most tokens. */
  readonly truncated?: boolean | undefined;
}

export interface SolutionScores {
  /**
   * Score of each step. It is null for a step that the scorer cannot read or does not score, and for all but the last
   * step where it scores outcomes.
   */
  readonly scores: readonly (number | null)[];
  /**
   * Score of the whole solution, where the scorer gives one, with or without scores of steps; null where it cannot read
   * it.
   */
  readonly outcome?: number | null;
  /**
   * Verdict on each step, where it does not follow from the scores and `threshold`; null where the model gives none.
   */
  readonly verdicts?: readonly (1 | 0 | null)[];
  /**
   * The reason for the verdict on each step: what the model wrote before it, or the calculations that were computed; null
   * where there is none. Absent for a scorer that gives none.
   */
  readonly reasons?: readonly (string | null)[];
  /** Text that the scorer learned nothing like; absent where there is none, or it is not known. */
  readonly unlike?: UnlikeTraining;
  /** Number of tokens that were read. */
  readonly tokens?: number;
}

/** Parts of a solution that a judge learned nothing like: its verdicts there say little. */
export interface UnlikeTraining {
  /** Indices of the steps that are unlike, from 0; all where the problem is. */
  readonly places: readonly number[];
  /** The step from which on the judge is unsure, whatever the probability. Absent for calculations, each of which stands for itself. */
  readonly from?: number;
  /** Steps of the forms that it learned, commonest first; empty where it goes by calculations, in any words. */
  readonly forms: readonly string[];
  /** Words of those steps, or of the problem, that were in none that it learned from; empty where the form is another. */
  readonly words: readonly string[];
  /** Set where the problem is unlike. Words of it that never were neighbours, where each of them is known. */
  readonly inProblem?: readonly string[];
}

/** More is better. Whatever implements this is served, evaluated, judged by and learned from. */
export interface Scorer {
  /** The name in reports. */
  readonly name: string;
  /** The scored unit: every step, or only whole solutions. */
  readonly unit: 'step' | 'outcome';
  /** The scale of a score: the probability of right, its log-odds, or a reward without bounds. */
  readonly scale: 'probability' | 'log_odds' | 'reward';
  /** Score from which a step is right; NaN where nothing says which that is. */
  readonly threshold: number;
  /** A verdict that is less probable than this, from 0.5 to 1, is none: the scorer is unsure. Default: it is never. */
  readonly unsure?: number;
  /** The rule by which a text becomes the steps that it scores. Default: paragraphs, or lines. */
  readonly segmentation?: Segmentation;
  /** Whether it scores turns of conversations too. Default: it refuses them. */
  readonly readsTurns?: boolean;
  /** Sentences on the defects that its run found. */
  readonly warnings?: readonly string[];
  /** Whether its scores tell what it learned nothing like. Default: they do not. */
  readonly tellsUnlike?: boolean;
  /**
   * Scores in the order of the solutions; undefined if the signal stopped it. A score depends on its own solution
   * alone.
   */
  score(
    solutions: readonly Solution[],
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<readonly SolutionScores[] | undefined>;
  /** The scorer's own counts, such as requests, tokens and cost. */
  report?(): Readonly<Record<string, number>>;
  /** Frees everything that was opened for it. */
  dispose(): void;
}

/**
 * A scorer from its name and scores, with defaults for the rest: it scores steps by probabilities and has nothing to
 * free.
 */
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
      if (!own.readsTurns && solutions.some(({ turns }) => turns !== undefined))
        throw new DataError(
          'option',
          `${own.name} reads problems with steps alone, and here are turns of a conversation; a judge of turns comes from method reward on ` +
            'rows of data.source "turns"',
        );
      const found = await own.score(solutions, options);
      found?.forEach(({ scores, outcome = null }, i) => {
        const odd = scores.findIndex(isOdd);
        if (odd < 0 && !isOdd(outcome)) return;
        const part = odd < 0 ? 'a solution' : `step ${odd + 1} of a solution`;
        throw notFinite(own.name, `${part} of the problem ${shown(solutions[i]?.problem)}`);
      });
      return found;
    },
  };
}

const isOdd = (score: number | null): boolean => score !== null && !Number.isFinite(score);

/** The error of a model that gives something that is not a number, which JSON would write as the null of a step that it cannot read. */
export function notFinite(name: string, place: string): StepTrainError {
  return new StepTrainError(
    'E_NONFINITE',
    `${name} gives something that is not a number for ${place}: its weights are damaged, or it was trained too fast (learning_rate)`,
  );
}

/** Whether a model gave something that is not a number for one solution: those of others are right. */
export const isNotFinite = (error: unknown): error is StepTrainError =>
  error instanceof StepTrainError && error.code === 'E_NONFINITE';

/** @throws StepTrainError for a value that is no list of problems with their steps */
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

/** The probability of a score; null for a reward without bounds. */
export function probabilityOf({ scale }: Pick<Scorer, 'scale'>, score: number): number | null {
  if (scale === 'reward') return null;
  return scale === 'probability' ? score : 1 / (1 + exp(-score));
}

/**
 * The numbers that an aggregation takes: the score of the whole solution where there is one, else those of its steps.
 * For probabilities, steps behind the last one that was read count as 0, since an error there must not cost less than
 * one that was seen. Empty where nothing was read.
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

/** Verdicts by step of a scored solution: 1 right, 0 wrong, null where there is none. */
export function verdictsIn(
  { threshold }: Pick<Scorer, 'threshold'>,
  { scores, verdicts }: SolutionScores,
): readonly (1 | 0 | null)[] {
  return verdicts ?? scores.map((score) => (score === null ? null : score >= threshold ? 1 : 0));
}

/** Whether a scorer is unsure of a step: it learned from none like it, or its verdict there is less probable than `unsure`. */
export function isUnsure(
  scorer: Pick<Scorer, 'scale' | 'unsure'>,
  { scores, unlike }: SolutionScores,
  step: number,
  verdict: 1 | 0 | null | undefined,
): boolean {
  if (verdict == null) return false;
  return step >= (unlike?.from ?? Infinity) || isImprobable(scorer, scores[step], verdict);
}

/** Whether a verdict on a step is less probable than the scorer's `unsure`. */
export function isImprobable(
  scorer: Pick<Scorer, 'scale' | 'unsure'>,
  score: number | null | undefined,
  verdict: 1 | 0 | null | undefined,
): boolean {
  const { unsure } = scorer;
  if (unsure === undefined || score == null || verdict == null) return false;
  const p = probabilityOf(scorer, score);
  return p !== null && (verdict === 1 ? p : 1 - p) < unsure;
}

/** Whether its verdicts may be none although it gives a probability. */
export const maybeUnsure = ({ unsure, tellsUnlike }: Pick<Scorer, 'unsure' | 'tellsUnlike'>): boolean =>
  unsure !== undefined || tellsUnlike === true;

/** The verdicts of a scored solution in words; null where the scorer says nothing of a step. */
export function verdictWords(
  scorer: Pick<Scorer, 'scale' | 'threshold' | 'unsure'>,
  own: SolutionScores,
): readonly ('right' | 'wrong' | 'unsure' | null)[] {
  return verdictsIn(scorer, own).map((verdict, step) => {
    if (verdict === null) return null;
    if (isUnsure(scorer, own, step, verdict)) return 'unsure';
    return verdict === 1 ? 'right' : 'wrong';
  });
}

/** Verdicts by solution and step. Those of a stopped call are meaningless. */
export type Verdicts = (
  solutions: readonly Solution[],
  signal?: AbortSignal,
) => Promise<readonly (readonly (1 | 0 | null)[])[]>;

/**
 * A scorer as a judge, which says nothing where it is unsure.
 *
 * @throws RunError for one of outcomes or without a threshold; when asked, for another number of scores than of steps
 */
export function verdictsOf(scorer: Scorer): Verdicts {
  if (scorer.unit === 'outcome') throw ofOutcomes(scorer.name);
  if (Number.isNaN(scorer.threshold))
    throw new RunError(
      `${scorer.name} has scores outside of 0 and 1, which say of no step whether it is right; a judge needs probabilities, or labels of steps`,
    );
  return async (solutions, signal) => {
    const found = await scorer.score(solutions, { signal });
    return solutions.map(({ steps }, i) => {
      const own = found?.[i];
      if (!own) return steps.map(() => null);
      const { length } = own.verdicts ?? own.scores;
      if (length !== steps.length)
        throw new RunError(
          `${scorer.name} has ${plural(length, 'score')} for a solution of ${plural(steps.length, 'step')}; a judge needs one for each`,
        );
      return verdictsIn(scorer, own).map((verdict, step) =>
        isUnsure(scorer, own, step, verdict) ? null : verdict,
      );
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
