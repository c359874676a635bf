/** A judge whose probabilities are calibrated. */
import { probabilityOf, type Scorer, verdictsIn } from '../scorer.js';
import { type Calibration, calibratedProbability, logOdds } from './calibration.js';

/**
 * The same scorer with calibrated scores, on the scale that it had. A step is right from the calibrated probability `least` on; one
 * for which the judge has no verdict has none still.
 *
 * @param scorer of steps, by probabilities or log-odds
 */
export function calibrated(scorer: Scorer, calibration: Calibration, least: number): Scorer {
  const isOdds = scorer.scale === 'log_odds';
  return {
    ...scorer,
    threshold: isOdds ? logOdds(least) : least,
    async score(solutions, options) {
      const found = await scorer.score(solutions, options);
      return found?.map((own) => {
        const probabilities = own.scores.map((score) =>
          score === null ? null : calibratedProbability(calibration, probabilityOf(scorer, score) as number),
        );
        return {
          ...own,
          scores: probabilities.map((p) => (p === null || !isOdds ? p : logOdds(p))),
          verdicts: verdictsIn(scorer, own).map((verdict, step) => {
            const p = probabilities[step] ?? null;
            return verdict === null || p === null ? null : p >= least ? 1 : 0;
          }),
        };
      });
    },
  };
}
