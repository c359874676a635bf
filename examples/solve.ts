/**
 * Asks a model for solutions through its chat template, and rewards them.
 *
 *   node scripts/build.mjs --no-addon --bench     (once, in a clone: compiles the examples into build/ts)
 *   node build/ts/examples/solve.js
 */
import { loadModel, openDevice } from 'steptrain';
import { promptTokens } from 'steptrain/ops';
import {
  answerReward,
  lengthReward,
  mixedRewards,
  type RewardedSolution,
  wordProblems,
} from 'steptrain/train';

const device = openDevice('cpu');
const model = await loadModel(device, 'word-problems');
const tokenizer = await model.tokenizer();

const problems = [...wordProblems({ seed: 1, samples: 2, levels: [1], part: 'test' })];
const prompts = problems.map(({ problem }) => promptTokens(tokenizer, [{ role: 'user', content: problem }]));
const samples = await model.generate(prompts, { tokenizer, n: 2, maxNewTokens: 64, seed: 1 });

const solutions = problems.flatMap((problem, p) =>
  (samples[p] ?? []).map(({ text = '', tokens, finishReason }): RewardedSolution => {
    const steps = text.split('\n').filter((line) => line !== '');
    return { problem, text, steps, tokens: tokens.length, truncated: finishReason === 'length' };
  }),
);
const once = { weight: 1, scale: 1, clip: 0, whiten: false };
const rewards = await mixedRewards(
  [
    { ...once, reward: answerReward() },
    { ...once, reward: lengthReward({ from: 32, to: 64 }) },
  ],
  solutions,
);
for (const [i, { problem, text }] of solutions.entries())
  console.log(
    `${problem.problem}\n${text.trim()}\nreward ${rewards?.[i]?.value?.toFixed(2)} for ${problem.answer}\n`,
  );
model.dispose();
device.dispose();
