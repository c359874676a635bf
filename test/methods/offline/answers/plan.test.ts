// Which answers meet in a batch.
import { expect, it } from 'vitest';
import { inMemory } from '../../../../src/data/dataset.js';
import { completeRunConfig } from '../../../../src/methods/config.js';
import { labelledAnswers } from '../../../../src/methods/offline/answers/kinds.js';
import { trainingPlan } from '../../../../src/methods/offline/answers/plan.js';
import type { StepRecord } from '../../../../src/records/record.js';
import { answerTokenizer } from '../../../../src/scoring/implicit/tokens.js';
import { byteTokenizer } from '../../../../src/tokenizer/byte.js';

const answer = (problem: string, text: string, outcome: 1 | 0): StepRecord => ({
  problem,
  steps: [{ text, label: outcome, kind: 'normal' }],
  outcome,
});

/** As a file of KTO's rows may be sorted: all that are desirable, then all that are not. */
const SORTED = [1, 0].flatMap((outcome) =>
  Array.from({ length: 128 }, (_, i) => answer(`p${i}`, `a${i}`, outcome as 1 | 0)),
);

it('KTO has desirable and undesirable answers in every batch, whatever the order of the rows', () => {
  const tokens = answerTokenizer(byteTokenizer(), '{problem}\n');
  const items = inMemory(labelledAnswers.items(SORTED, tokens));
  const config = completeRunConfig({ method: 'kto', data: { source: 'word_problems' } });
  if (config.method !== 'kto') throw new Error('expected kto');
  const plan = trainingPlan(items, {
    settings: { ...config.kto, batch_size: 16 },
    seed: 42,
    tokens: 0,
    pairs: true,
    maxLength: 1024,
  });
  expect(plan.batches).toHaveLength(16);
  const desirable = plan.batches.map(
    (batch) => batch.filter((i) => items.get(i).answers[0]!.label === 1).length,
  );
  expect(Math.min(...desirable)).toBeGreaterThan(1);
  expect(Math.max(...desirable)).toBeLessThan(15);
});
