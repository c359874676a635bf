/** Scores of the steps of solutions as long as those of GSM8K. */
import type { Group, ScoreCase } from './cases.js';
import { scoreCase } from './counted-cases.js';
import { QWEN_0_5B, SMOLLM2_135M } from './models.js';

/** Tokens of solutions of GSM8K in ProcessBench, by quantiles, in an order without a trend, and of a problem. */
const SOLUTIONS = [344, 232, 583, 396, 296, 471, 273, 521, 180, 421, 329, 377, 310, 660, 282, 443];
const PROBLEM = 69;

export function scoreGroups(): readonly Group[] {
  const settings = [1, 4, 8, 16].map((size) => `batches of ${size}`);
  const small = (more: Pick<ScoreCase, 'ofOne' | 'words'>) =>
    scoreCase('bf16', 'SmolLM2-135M', SMOLLM2_135M, { lengths: SOLUTIONS, problem: PROBLEM, ...more });
  const few = { lengths: SOLUTIONS.slice(0, 4), problem: PROBLEM, ofOne: false };
  return [
    {
      title: 'scores of steps, bf16',
      cases: [small({ ofOne: false }), small({ ofOne: true }), small({ ofOne: false, words: [1, 2] })],
      settings,
    },
    {
      title: 'scores of steps, bf16, Qwen2.5-0.5B',
      cases: [scoreCase('bf16', 'Qwen2.5-0.5B', QWEN_0_5B, few)],
      settings,
    },
  ];
}
