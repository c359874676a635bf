import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AlphaBalance, type StepLosses } from '../../../src/methods/stepamc/alpha.js';

const { stepamc } = JSON.parse(
  readFileSync(new URL('../../golden/vectors.json', import.meta.url), 'utf8'),
) as {
  stepamc: { combine: Record<string, number | number[]> };
};

const ALPHA = { mode: 'fixed', init: 0.5, final: 0.5, lo: 0.1, hi: 0.9, learning_rate: 1e-3 } as const;
type Settings = ConstructorParameters<typeof AlphaBalance>[0];
const balance = (alpha: Partial<Settings['alpha']>, combine: Settings['combine'] = 'rl', steps = 10) =>
  new AlphaBalance({ combine, alpha: { ...ALPHA, ...alpha } }, steps);

const total = ({ policy, value, constraint }: StepLosses, of: AlphaBalance, step = 0) => {
  const weights = of.weights(step);
  return weights.policy * policy + weights.value * value + weights.constraint * constraint;
};

describe('the total loss', () => {
  test('is the golden combination under reading A', () => {
    const {
      alpha,
      L_policy,
      L_value,
      c_v,
      L_const,
      total: golden,
    } = stepamc.combine as Record<string, number>;
    const [init, expected] = [Number(alpha), Number(golden)];
    const losses = {
      policy: Number(L_policy),
      value: Number(c_v) * Number(L_value),
      constraint: Number(L_const),
    };
    expect(total(losses, balance({ init }))).toBeCloseTo(expected, 9);
  });

  test.each([
    ['rl', (a: number, l: StepLosses) => a * (l.policy + l.value) + (1 - a) * l.constraint],
    ['policy', (a: number, l: StepLosses) => a * l.policy + l.value + (1 - a) * l.constraint],
    ['constraint', (a: number, l: StepLosses) => l.policy + l.value + (1 - a) * l.constraint],
  ] as const)('%s: as its reading of equation 12 says', (combine, reading) => {
    const losses = { policy: -0.3, value: 0.2, constraint: 0.7 };
    expect(total(losses, balance({ init: 0.3 }, combine))).toBeCloseTo(reading(0.3, losses), 12);
  });
});

describe('a learned α', () => {
  test('stays within lo … hi, and rises if the constraint costs more than reinforcement', () => {
    const losses = fc.record({
      policy: fc.double({ min: -5, max: 5, noNaN: true }),
      value: fc.double({ min: 0, max: 5, noNaN: true }),
      constraint: fc.double({ min: 0, max: 20, noNaN: true }),
    });
    fc.assert(
      fc.property(fc.array(losses, { minLength: 1, maxLength: 50 }), (steps) => {
        const alpha = balance({ mode: 'learnable_clamped', learning_rate: 1 });
        for (const step of steps) alpha.learn(step);
        expect(alpha.value(0)).toBeGreaterThanOrEqual(0.1);
        expect(alpha.value(0)).toBeLessThanOrEqual(0.9);
      }),
    );
    const rising = balance({ mode: 'learnable_clamped' });
    rising.learn({ policy: 0, value: 0, constraint: 1 });
    expect(rising.value(0)).toBeGreaterThan(0.5);
  });

  test.each(['rl', 'policy', 'constraint'] as const)(
    '%s: moves down the gradient of its total loss without the value loss, which it does not see',
    (combine) => {
      const losses = { policy: -0.05, value: 0, constraint: 0.1 };
      const alpha = balance({ mode: 'learnable_clamped' }, combine);
      const before = total(losses, alpha);
      alpha.learn(losses);
      expect(total(losses, alpha)).toBeLessThan(before);
      const beside = balance({ mode: 'learnable_clamped' }, combine);
      beside.learn({ ...losses, value: 30 });
      expect(beside.save()).toEqual(alpha.save());
    },
  );

  test('uncertainty converges to exp(−w) = 1 / constraint', () => {
    const alpha = balance({ mode: 'uncertainty', learning_rate: 0.05 });
    for (let i = 0; i < 2000; i++) alpha.learn({ policy: -1, value: 1, constraint: 4 });
    expect(alpha.weights(0).constraint).toBeCloseTo(1 / 4, 2);
    expect(alpha.weights(0).policy).toBe(1);
  });

  test('continues identically from its saved state', () => {
    const losses = { policy: 0.1, value: 0.2, constraint: 0.6 };
    const [whole, first] = [balance({ mode: 'learnable_clamped' }), balance({ mode: 'learnable_clamped' })];
    first.learn(losses);
    const second = balance({ mode: 'learnable_clamped' });
    second.restore(JSON.parse(JSON.stringify(first.save())));
    second.learn(losses);
    for (let i = 0; i < 2; i++) whole.learn(losses);
    expect(second.save()).toEqual(whole.save());
  });
});

test('a schedule is linear from init to final', () => {
  const alpha = balance({ mode: 'schedule', init: 0.2, final: 0.8 }, 'rl', 4);
  expect([0, 1, 2, 3].map((step) => alpha.value(step))).toEqual(
    [0.2, 0.4, 0.6, 0.8].map((x) => expect.closeTo(x, 12)),
  );
});
