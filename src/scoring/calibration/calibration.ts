/** A monotone map from a judge's scores to probabilities that held-out steps bear out; kept in the card beside its weights. */

import { z } from 'zod';
import { exp, log, log1p } from '../../native/elementary.js';

/** The threshold that the judge had on its own probabilities, where it had one; a later calibration begins with it. */
const own = { own_threshold: z.number().min(0).max(1).exactOptional() };

export const calibrationSettings = z.discriminatedUnion('kind', [
  /** Log-odds are divided by it. */
  z.strictObject({ kind: z.literal('temperature'), temperature: z.number().positive(), ...own }),
  /** Between the points, by probability of the judge, in straight lines; beyond them as at the ends. */
  z.strictObject({
    kind: z.literal('isotonic'),
    from: z.array(z.number().min(0).max(1)).min(1),
    to: z.array(z.number().gt(0).lt(1)).min(1),
    ...own,
  }),
]);
export type Calibration = z.output<typeof calibrationSettings>;

/** Log-odds are cut off here: a probability of 0 or 1 in f32 says no more than this. */
const MAX_ODDS = 30;

/** The log-odds of a probability. */
export function logOdds(p: number): number {
  return Math.max(-MAX_ODDS, Math.min(MAX_ODDS, log(p) - log1p(-p)));
}

/** The calibrated probability of a step to which the judge gives `p`. */
export function calibratedProbability(calibration: Calibration, p: number): number {
  if (calibration.kind === 'temperature') {
    const odds = logOdds(p) / calibration.temperature;
    return 1 / (1 + exp(-Math.max(-MAX_ODDS, Math.min(MAX_ODDS, odds))));
  }
  const { from, to } = calibration;
  const above = from.findIndex((x) => x >= p);
  if (above === 0) return to[0] as number;
  if (above < 0) return to.at(-1) as number;
  const [x0, x1] = [from[above - 1] as number, from[above] as number];
  const [y0, y1] = [to[above - 1] as number, to[above] as number];
  return y0 + ((y1 - y0) * (p - x0)) / (x1 - x0);
}
