// Calibration beside scikit-learn and scipy (test/golden/make_calibration.py).
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import {
  type CalibrationStep,
  fitCalibration,
  fitIsotonic,
  fitTemperature,
} from '../../../src/eval/statistics/calibration-fit.js';
import { calibratedProbability } from '../../../src/scoring/calibration/calibration.js';

const golden = JSON.parse(
  readFileSync(new URL('../../golden/calibration.json', import.meta.url), 'utf8'),
) as {
  readonly steps: readonly CalibrationStep[];
  readonly temperature: number;
  readonly grid: readonly number[];
  readonly isotonic: readonly number[];
  readonly quality: Readonly<
    Record<'none' | 'temperature' | 'isotonic', Readonly<Record<'nll' | 'brier', number>>>
  >;
};

it('finds the temperature that scipy finds', () => {
  const found = fitTemperature(golden.steps);
  expect(found.kind === 'temperature' && found.temperature).toBeCloseTo(golden.temperature, 5);
});

it('is the isotonic regression of scikit-learn, also between its points and at its ends', () => {
  const found = fitIsotonic(golden.steps);
  const values = golden.grid.map((p) => calibratedProbability(found, p));
  expect(Math.max(...values.map((value, i) => Math.abs(value - golden.isotonic[i]!)))).toBeLessThan(1e-12);
});

it('chooses the kind with the least cross-validated NLL', () => {
  const { chosen, quality, calibration } = fitCalibration(golden.steps);
  for (const kind of ['none', 'temperature', 'isotonic'] as const) {
    expect(quality[kind].nll).toBeCloseTo(golden.quality[kind].nll, 6);
    expect(quality[kind].brier).toBeCloseTo(golden.quality[kind].brier, 6);
  }
  expect(chosen).toBe('temperature');
  expect(calibration).toEqual(fitTemperature(golden.steps));
});

it('leaves probabilities that are borne out as they are', () => {
  // At 0.25 one of four is right, at 0.75 three: no temperature is better than 1 by more than rounding.
  const steps = Array.from({ length: 200 }, (_, i) => {
    const isHigh = i % 2 === 1;
    const label = (Math.floor(i / 2) % 4 === 0) === !isHigh ? 1 : 0;
    return { problem: Math.floor(i / 40), label, probability: isHigh ? 0.75 : 0.25 } as const;
  });
  expect(fitCalibration(steps)).toMatchObject({ chosen: 'none', calibration: undefined });
});

it('keeps away from 0 and 1 where the steps are told apart without error', () => {
  const steps = Array.from({ length: 50 }, (_, i) => {
    const label = i % 2 === 1 ? 1 : 0;
    return { problem: i, label, probability: label ? 0.7 : 0.4 } as const;
  });
  expect(calibratedProbability(fitIsotonic(steps), 0.99)).toBeCloseTo(1 - 1 / 52, 12);
  expect(calibratedProbability(fitTemperature(steps), 0.7)).toBeLessThan(1);
});
