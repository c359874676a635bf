/** Fits the calibration of a judge to labelled steps, and chooses among its kinds by steps that it was not fitted to. */
import { exp, log } from '../../native/elementary.js';
import { type Calibration, calibratedProbability, logOdds } from '../../scoring/calibration/calibration.js';
import { calibration as reliability } from './calibration.js';
import type { ScoredStep } from './thresholds.js';

export type CalibrationKind = 'none' | Calibration['kind'];

/** The quality on steps that the calibration was not fitted to. */
export interface CalibrationQuality {
  /** Mean negative log-likelihood of the labels, in nats a step. */
  readonly nll: number;
  readonly ece: number;
  readonly brier: number;
}

export interface FittedCalibration {
  /** Undefined where the probabilities are best left as they are. */
  readonly calibration: Calibration | undefined;
  readonly chosen: CalibrationKind;
  /** The quality of each kind, cross-validated over problems. */
  readonly quality: Readonly<Record<CalibrationKind, CalibrationQuality>>;
}

export interface CalibrationStep extends ScoredStep {
  /** Number of the problem: its steps are in one fold. */
  readonly problem: number;
}

const FOLDS = 5;

/** No step of either class tells a probability of 0 from one in 10 million. */
const LEAST = 1e-7;

const IDENTITY: Calibration = { kind: 'temperature', temperature: 1 };

const FITS: Readonly<Record<CalibrationKind, (steps: readonly ScoredStep[]) => Calibration>> = {
  none: () => IDENTITY,
  temperature: fitTemperature,
  isotonic: fitIsotonic,
};

/** The calibration with the least cross-validated NLL, fitted to all steps; of equal ones the simpler. */
export function fitCalibration(steps: readonly CalibrationStep[]): FittedCalibration {
  const kinds = Object.keys(FITS) as CalibrationKind[];
  const quality = Object.fromEntries(
    kinds.map((kind) => [kind, qualityOf(heldOut(steps, FITS[kind]))]),
  ) as Record<CalibrationKind, CalibrationQuality>;
  const chosen = kinds.reduce((best, kind) => (quality[kind].nll < quality[best].nll ? kind : best));
  return { calibration: chosen === 'none' ? undefined : FITS[chosen](steps), chosen, quality };
}

/** Every step by the calibration of the other folds. */
function heldOut(
  steps: readonly CalibrationStep[],
  fitTo: (steps: readonly ScoredStep[]) => Calibration,
): ScoredStep[] {
  return Array.from({ length: FOLDS }, (_, fold) => {
    const own = steps.filter(({ problem }) => problem % FOLDS === fold);
    if (own.length === 0) return [];
    const others = steps.filter(({ problem }) => problem % FOLDS !== fold);
    const found = fitTo(others);
    return own.map((step) => ({ ...step, probability: calibratedProbability(found, step.probability) }));
  }).flat();
}

export function qualityOf(steps: readonly ScoredStep[]): CalibrationQuality {
  const { ece = 0, brier = 0 } = reliability(steps) ?? {};
  const nll = steps.reduce((sum, { label, probability }) => {
    const p = Math.max(LEAST, label === 1 ? probability : 1 - probability);
    return sum - log(p);
  }, 0);
  return { nll: nll / Math.max(1, steps.length), ece, brier };
}

/** Bounds of 1 / T; steps that are told apart without error would have it grow for ever. */
const SLOPES = [0.01, 100] as const;

/** The temperature with the least NLL: a convex function of 1 / T, whose slope is halved to 0. */
export function fitTemperature(steps: readonly ScoredStep[]): Calibration {
  const rows = steps.map(({ label, probability }) => ({ label, x: logOdds(probability) }));
  const slope = (a: number) =>
    rows.reduce((sum, { label, x }) => sum + x * (1 / (1 + exp(-a * x)) - label), 0);
  let [low, high] = SLOPES.map(log) as [number, number];
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (slope(exp(middle)) > 0) high = middle;
    else low = middle;
  }
  return { kind: 'temperature', temperature: exp(-(low + high) / 2) };
}

/**
 * Isotonic regression by adjacent violators (Zadrozny and Elkan 2002). Values are kept 1 / (n + 2) away from 0 and 1: n steps of
 * one class do not prove that there are none of the other.
 */
export function fitIsotonic(steps: readonly ScoredStep[]): Calibration {
  const sorted = [...steps].sort((a, b) => a.probability - b.probability);
  const blocks: { sum: number; n: number; from: number; to: number }[] = [];
  for (let at = 0; at < sorted.length; ) {
    const { probability } = sorted[at] as ScoredStep;
    const block = { sum: 0, n: 0, from: probability, to: probability };
    for (; at < sorted.length && (sorted[at] as ScoredStep).probability === probability; at++) {
      block.sum += (sorted[at] as ScoredStep).label;
      block.n++;
    }
    blocks.push(block);
    for (let last = blocks.length - 1; last > 0; last--) {
      const [a, b] = [blocks[last - 1]!, blocks[last]!];
      if (a.sum * b.n < b.sum * a.n) break;
      blocks.splice(last - 1, 2, { sum: a.sum + b.sum, n: a.n + b.n, from: a.from, to: b.to });
    }
  }
  const least = 1 / (steps.length + 2);
  const points = blocks.flatMap(({ sum, n, from, to }) => {
    const value = Math.max(least, Math.min(1 - least, sum / n));
    return from === to ? [{ x: from, value }] : [from, to].map((x) => ({ x, value }));
  });
  if (points.length === 0) return IDENTITY;
  return { kind: 'isotonic', from: points.map(({ x }) => x), to: points.map(({ value }) => value) };
}
