// Keys that several objectives share, under TRL's names.
import { nonNegative, positiveNumber } from '../../config/fields.js';

export const beta = (value = 0.1) =>
  positiveNumber(value).describe('Scale of the log-ratios: larger keeps the policy nearer to the reference.');

/** Weight of a class of answers or steps. */
export const classWeight = (what: string) => nonNegative(1).describe(`Weight of ${what}.`);

export const labelSmoothing = () =>
  nonNegative()
    .lt(0.5)
    .default(0)
    .describe('Share of pairs taken to be labelled the wrong way round (`sigmoid` alone).');
