/** A function of one's own as a scorer. */
import { badOption } from '../files/data-error.js';
import { outcomeScores, type Scorer, type Solution, scorer } from './scorer.js';

/** For each solution, one number for all of it or a list with one for each step; null for a step without a score. */
export type ScoreFunction = (
  solutions: readonly Solution[],
  context: { readonly signal?: AbortSignal | undefined },
) =>
  | readonly (number | readonly (number | null)[])[]
  | Promise<readonly (number | readonly (number | null)[])[]>;

/** @param how what its numbers are: default rewards without bounds of whole solutions */
export function functionScorer(
  given: ScoreFunction,
  how: Partial<Pick<Scorer, 'name' | 'unit' | 'scale' | 'threshold'>> = {},
): Scorer {
  const { name = given.name || 'function' } = how;
  return scorer({
    unit: 'outcome',
    scale: 'reward',
    ...how,
    name,
    async score(solutions, { signal } = {}) {
      const found = await given(solutions, { signal });
      if (found.length !== solutions.length)
        throw badOption(`${name} gave ${found.length} scores for ${solutions.length} solutions`);
      return found.map((own, i) => {
        const { steps } = solutions[i] as Solution;
        if (typeof own !== 'number' && own.length !== steps.length)
          throw badOption(
            `${name} gave ${own.length} scores for the ${steps.length} steps of solution ${i + 1}; expected one for each`,
          );
        if (typeof own !== 'number') return { scores: own };
        if (how.unit !== 'step') return outcomeScores({ steps }, own);
        throw badOption(
          `${name} gave one number for solution ${i + 1}; a scorer of steps gives a list with one for each step`,
        );
      });
    },
  });
}
