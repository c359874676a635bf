import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AlphaBalance, type LossWeights } from '../../../src/methods/stepamc/alpha.js';

const { stepamc } = JSON.parse(
  readFileSync(new URL('../../golden/vectors.json', import.meta.url), 'utf8'),
) as {
  stepamc: { combine: Record<string, number | number[]> };
};

const ALPHA = { mode: 'fixed', init: 0.5, lo: 0.1, hi: 0.9, learning_rate: 1e-3 } as const;
const balance = (alpha: Partial<ConstructorParameters<typeof AlphaBalance>[0]>) =>
  new AlphaBalance({ ...ALPHA, ...alpha });

const total = ({ policy, value, constraint }: LossWeights, of: AlphaBalance) => {
  const weights = of.weights();
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
});

describe('a learned α', () => {
  test('stays within lo … hi, and rises if the constraint costs more than reinforcement', () => {
    const losses = fc.record({
      policy: fc.double({ min: -5, max: 5, noNaN: true }),
      constraint: fc.double({ min: 0, max: 20, noNaN: true }),
    });
    fc.assert(
      fc.property(fc.array(losses, { minLength: 1, maxLength: 50 }), (steps) => {
        const alpha = balance({ mode: 'learnable_clamped', learning_rate: 1 });
        for (const step of steps) alpha.learn(step);
        expect(alpha.value()).toBeGreaterThanOrEqual(0.1);
        expect(alpha.value()).toBeLessThanOrEqual(0.9);
      }),
    );
    const rising = balance({ mode: 'learnable_clamped' });
    rising.learn({ policy: 0, constraint: 1 });
    expect(rising.value()).toBeGreaterThan(0.5);
  });

  test('moves down the gradient of its total loss without the value loss', () => {
    const losses = { policy: -0.05, value: 0, constraint: 0.1 };
    const alpha = balance({ mode: 'learnable_clamped' });
    const before = total(losses, alpha);
    alpha.learn(losses);
    expect(total(losses, alpha)).toBeLessThan(before);
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
