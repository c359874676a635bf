// Steps labelled by what the model of a round still reaches after them.
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadModel } from '../../../../src/api/model.js';
import { rolloutLabels } from '../../../../src/eval/completions/rollout-labels.js';
import { solvingPrompt } from '../../../../src/generate/solving-prompt.js';
import { train } from '../../../../src/methods/run.js';
import type { StepRecord } from '../../../../src/records/record.js';
import { openDevice } from '../../../../src/runtime/device.js';
import { artefact, runsFolder, smallRounds } from './small-rounds.js';

const at = runsFolder('completions');

const config = (judge: object) =>
  smallRounds('step_kto', {
    data: { source: 'word_problems', word_problems: { samples: 80 }, max_length: 320 },
    sampling: { problems_per_iteration: 20 },
    judge,
    eval: { max_samples: 1 },
    eval_solving: { num_generations: 0 },
    run: { seed: 3 },
    step_kto: { iterations: 2, batch_size: 6, learning_rate: 5e-3, load_best_model_at_end: false },
  });

const labels = (directory: string, round: number) => artefact<StepRecord>(directory, `labels-${round}`);

const labelsOf = (records: readonly StepRecord[]) =>
  records.map(({ steps }) => steps.map(({ label }) => label));

it('mostly agrees with the oracle, of the last step as with the answer', async () => {
  const base = at('by-completions');
  await train(config({ kind: 'completions', completions: 4 }), { output: base });
  const exact = at('by-oracle');
  await train(config({ kind: 'oracle' }), { output: exact });
  const [own, oracle] = [await labels(base, 1), await labels(exact, 1)];
  expect(own.map(({ provenance }) => provenance)).toEqual(oracle.map(({ provenance }) => provenance));
  for (const { steps, outcome } of own) expect(steps.at(-1)?.label).toBe(outcome);
  const [mine, right] = [labelsOf(own).flat(), labelsOf(oracle).flat()];
  expect(new Set(mine)).toEqual(new Set([0, 1]));
  const agree = mine.filter((label, i) => label === right[i]).length / mine.length;
  expect(agree).toBeGreaterThan(0.7);
});

it('asks the model of the round: M1 in the second', async () => {
  const base = at('by-completions');
  const records = await labels(base, 2);
  const device = openDevice('cpu', { threads: 1 });
  const relabelled = async (name: string) => {
    const model = await loadModel(device, name);
    const tokenizer = await model.tokenizer();
    const prompt = solvingPrompt(tokenizer, { template: '{problem}\n', chat: false });
    const solutions = records.map(({ problem, gold_answer: answer = '', steps, provenance }) => {
      const [row = 0, sample = 0] = (provenance?.id ?? '').match(/\d+/g)?.map(Number) ?? [];
      return { problem, answer, steps: steps.map(({ text }) => text), index: row * 3 + sample };
    });
    const eosTokenIds = model.eosTokenIds;
    const options = { k: 4, prompt, maxNewTokens: 100, temperature: 1, seed: 5, eosTokenIds };
    const found = await rolloutLabels(model, tokenizer, solutions, options);
    model.dispose();
    return labelsOf(found ?? []);
  };
  expect(await relabelled(join(base, 'adapter-1'))).toEqual(labelsOf(records));
  expect(await relabelled('word-problems-misread')).not.toEqual(labelsOf(records));
  device.dispose();
});
