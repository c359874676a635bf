import { expect, it } from 'vitest';
import { calculationScorer } from '../../src/scoring/calculations.js';
import { scorer } from '../../src/scoring/scorer.js';
import { weighted } from '../../src/scoring/weighted.js';

const solution = { problem: 'P', steps: ['2 + 3 = 5', 'The bus carries 5 riders.', '5 - 1 = 3'] };

/** A judge whose verdict words say nothing. */
const words = scorer({
  name: 'words',
  scale: 'log_odds',
  async score(solutions) {
    return solutions.map(({ steps }) => ({
      scores: steps.map(() => 0.3),
      verdicts: steps.map(() => 1 as const),
    }));
  },
});

it.each([
  ['gives no score to a step without a calculation where calculations count alone', 0, [true, false, true]],
  ['scores every step where the words count too', 1, [true, true, true]],
])('%s', async (_, verdict, isScored) => {
  const weights = { of: 'calculations', constant: 0.76, verdict, least: 1.2, before: 0.5, unchecked: -1.16 };
  const both = weighted(words, calculationScorer(), { weights: weights as never, threshold: 0.5 });
  const [found] = (await both.score([solution])) ?? [];
  expect(found?.scores.map((score) => score !== null)).toEqual(isScored);
  expect(found?.verdicts?.map((one) => one !== null)).toEqual(isScored);
  expect(found?.scores[0]).toBeGreaterThan(0.5);
  expect(found?.scores[2]).toBeLessThan(0.5);
});
