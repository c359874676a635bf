/** The calculations that steps write out as a scorer, by exact arithmetic and without a model. */
import { calculationsIn } from '../data/equations/calculations.js';
import { type Scorer, scorer } from './scorer.js';
import { WRONG } from './verdict/likelihood.js';

/** Scores 0 where every calculation of a step holds, {@link WRONG} where one does not, null where it writes out none. */
export function calculationScorer(): Scorer {
  return scorer({
    name: 'calculations',
    scale: 'reward',
    readsTurns: true,
    async score(solutions) {
      return solutions.map(({ steps }) => {
        const found = steps.map(calculationsIn);
        const isRight = (step: (typeof found)[number]) => step.every(({ holds }) => holds);
        return {
          scores: found.map((step) => (step.length === 0 ? null : isRight(step) ? 0 : WRONG)),
          reasons: found.map((step) =>
            step.length === 0
              ? null
              : step.map(({ text, holds }) => (holds ? text : `${text} is wrong`)).join(', '),
          ),
        };
      });
    },
  });
}
