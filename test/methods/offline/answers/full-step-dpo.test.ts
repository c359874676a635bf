import { expect, it } from 'vitest';
import { stepShares } from '../../../../src/methods/offline/full-step-dpo.js';

const step = (given: { label?: 0 | 1; score?: number }) => ({
  begin: 0,
  end: 1,
  label: given.label ?? null,
  score: given.score,
});

it('weighs steps by their scores, else by their labels', () => {
  const e = Math.E;
  const share = (steps: Parameters<typeof step>[0][], temperature = 1) =>
    stepShares({ steps: steps.map(step) as never }, temperature);
  expect(share([{ score: 1 }, { score: 0 }])).toEqual([(2 * e) / (e + 1), 2 / (e + 1)]);
  expect(share([{ label: 1 }, { label: 0 }])).toEqual(share([{ score: 1 }, { score: 0 }]));
  expect(share([{ label: 1 }, { label: 0 }], -1)).toEqual(share([{ score: 0 }, { score: 1 }]));
  expect(share([{ label: 0, score: 1 }, {}])).toEqual(share([{ score: 1 }, { score: 0 }]));
  expect(share([{}, {}, {}])).toEqual([1, 1, 1]);
});
