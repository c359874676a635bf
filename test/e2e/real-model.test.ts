// A pretrained model from its GGUF file, as a user takes it: trained by every kind of method, stopped and resumed, judged by, served, and
// written as GGUF. What transformers computes of it: test/models/gguf-real.test.ts.
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, openDevice, resume, train } from '../../src/entries/index.js';
import { loadRunConfig } from '../../src/methods/config.js';
import { cli } from '../cli/run-cli.js';
import { post } from '../serve/test-server.js';
import { sharedPath } from '../shared.js';
import { compiled, MAIN } from './program.js';

const FILE = sharedPath('models/smollm2-135m-instruct.Q4_1.gguf');
const why = FILE ? '' : ' (skipped: ../shared/models is absent)';

const STEPS = 20;
const NAMES = ['Tom', 'Ann', 'Max', 'Zoe'];

/** Labelled solutions of two steps, two of each problem that part at the second: what pairs of steps are made of too. */
function labelled(): string {
  const rows = Array.from({ length: 60 }, (_, i) => {
    const [name, from, by] = [NAMES[i % 4], 10 + ((i * 7) % 40), 2 + (i % 5)];
    const problem = `${name} has ${from} apples, finds ${by} and buys 3. How many are there?`;
    const first = `${name} has ${from} + ${by} = ${from + by} apples.`;
    return [0, 10].map((off) => ({
      problem,
      steps: [first, `${from + by} + 3 = ${from + by + 3 + off}`],
      labels: [1, off === 0 ? 1 : 0],
    }));
  });
  return lines(rows.flat());
}

/** As GSM8K has them. */
const questions = () =>
  lines(
    Array.from({ length: 60 }, (_, i) => ({
      question: `What is ${2 + (i % 9)} + ${1 + (i % 7)}? Give the number alone.`,
      answer: `It is the sum.\n#### ${3 + (i % 9) + (i % 7)}`,
    })),
  );

const lines = (rows: readonly object[]) => `${rows.map((row) => JSON.stringify(row)).join('\n')}\n`;

let folder: string;
const at = (name: string) => join(folder, name);

/** The recipe of the package for any model, on this one and on rows of the test, so short that it takes seconds. */
const settings = (values: Readonly<Record<string, string | number>>) =>
  Object.entries({
    'model.base': FILE as string,
    'lora.r': 4,
    'data.max_length': 128,
    'run.device': 'cpu',
    'run.logging_steps': 1,
    'run.gradient_checkpointing': 'false',
    'eval.max_samples': 2,
    ...values,
  }).map(([key, value]) => `${key}=${value}`);

const short = (section: string, how: Readonly<Record<string, string | number>>) =>
  Object.fromEntries(
    Object.entries({ max_steps: STEPS, eval_steps: 0, save_steps: 0, ...how }).map(([key, value]) => [
      `${section}.${key}`,
      value,
    ]),
  );

async function run(recipe: string, name: string, values: Readonly<Record<string, string | number>>) {
  const set = settings(values).flatMap((setting) => ['--set', setting]);
  return printed('run', recipe, '--output', at(name), ...set);
}

/** What a command that succeeds prints. */
async function printed(...args: readonly string[]): Promise<string> {
  const { code, stderr, stdout } = await cli(...args);
  expect(code, stderr).toBe(0);
  return stdout;
}

/** The optimizer steps of each stage that were logged. Every number in them is finite, and most of them moved the model. */
async function steps(name: string) {
  const text = await readFile(join(at(name), 'metrics.jsonl'), 'utf8');
  const rows = text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  const taken: Record<string, Record<string, unknown>[]> = {};
  for (const { phase, ...values } of rows.filter(({ learning_rate }) => learning_rate !== undefined)) {
    taken[String(phase)] = [...(taken[String(phase)] ?? []), values];
    const wrong = Object.entries(values).filter(
      ([, value]) => typeof value === 'number' && !Number.isFinite(value),
    );
    expect(wrong).toEqual([]);
  }
  for (const [phase, each] of Object.entries(taken)) {
    const losses = each.map(({ loss }) => loss);
    expect(new Set(losses).size, `losses of ${phase}: ${losses.join(' ')}`).toBeGreaterThan(STEPS / 2);
    const norms = each.map(({ grad_norm }) => Number(grad_norm));
    const moved = norms.filter((norm) => norm > 0).length;
    expect(moved, `gradients of ${phase}: ${norms.join(' ')}`).toBeGreaterThan(STEPS / 2);
  }
  return Object.fromEntries(Object.entries(taken).map(([phase, each]) => [phase, each.length]));
}

describe.skipIf(!FILE)(`SmolLM2-135M-Instruct from its GGUF file${why}`, () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'steptrain-real-'));
    await writeFile(at('rows.jsonl'), labelled());
    await writeFile(at('problems.jsonl'), questions());
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test('becomes a judge by my_steps, stopped and resumed', async () => {
    const values = { 'data.train': at('rows.jsonl'), ...short('sft', { tokens_per_step: 128 }) };
    const { config } = await loadRunConfig('recipes/my_steps.yaml', settings(values));
    const stop = new AbortController();
    const begun = await train(config, {
      output: at('judge'),
      signal: stop.signal,
      onStep: ({ step }) => step === 8 && stop.abort(),
    });
    expect(begun).toMatchObject({ status: 'interrupted', step: 8 });
    expect(await resume(at('judge'))).toMatchObject({ status: 'finished', step: STEPS });
    expect(await steps('judge')).toEqual({ sft: STEPS });
  });

  test('judges from the command line', async () => {
    await writeFile(at('problem.txt'), 'Tom has 12 apples and finds 3.\n\nTom has 12 + 3 = 15 apples.\n');
    expect(await printed('judge', at('judge'), at('problem.txt'))).toMatch(
      /1\s+0\.\d+\s+(right|wrong)\s+Tom has 12 \+ 3 = 15 apples\./,
    );
  });

  test.skipIf(!compiled)('answers and judges over HTTP with its adapter (needs dist/)', async () => {
    const server = spawn(process.execPath, [MAIN, 'serve', at('judge'), '--name', 'mine', '--port', '0'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    try {
      const url = await new Promise<string>((resolve, reject) => {
        let said = '';
        const read = (text: Buffer) => {
          said += text;
          const [found] = /http:\/\/127\.0\.0\.1:\d+/.exec(said) ?? [];
          if (found) resolve(found);
        };
        server.stdout.on('data', read);
        server.stderr.on('data', read);
        server.on('close', (code) => reject(new Error(`the server ended with ${code}: ${said}`)));
      });
      const asked = { model: 'mine', temperature: 0, max_tokens: 4 };
      const messages = [{ role: 'user', content: 'What is 12 + 7?' }];
      const chat = await post(`${url}/v1/chat/completions`, { ...asked, messages });
      expect(chat).toMatchObject({ status: 200, json: { usage: { completion_tokens: 4 } } });
      const solutions = [
        { problem: 'Tom has 12 apples and finds 3.', steps: ['Tom has 12 + 3 = 15 apples.'] },
      ];
      const scored = await post(`${url}/score`, { solutions });
      const { data, scale } = scored.json as unknown as { scale: string; data: { scores: number[] }[] };
      expect(scale).toBe('probability');
      const [probability = Number.NaN] = data[0]?.scores ?? [];
      expect(probability > 0 && probability < 1).toBe(true);
    } finally {
      server.kill('SIGTERM');
    }
  });

  test('becomes a GGUF file with its adapter, which says the same', async () => {
    await printed('merge', at('judge'), at('mine.gguf'), '--dtype', 'f16', '--no-check');
    const device = openDevice('cpu');
    const [own, written] = await Promise.all(
      [at('judge'), at('mine.gguf')].map((name) => loadModel(device, name, { dtype: 'f32' })),
    );
    const prompts = [own, written].map(async (model) => {
      const tokenizer = await model?.tokenizer();
      const text = tokenizer?.applyChatTemplate([{ role: 'user', content: 'What is 12 + 7?' }], {
        addGenerationPrompt: true,
      });
      return tokenizer?.encode(text as string, { addSpecialTokens: false }) as number[];
    });
    const [ids, same] = await Promise.all(prompts);
    expect(same).toEqual(ids);
    const answers = await Promise.all(
      [own, written].map((model) => model?.generate([ids as number[]], { maxNewTokens: 12, temperature: 0 })),
    );
    expect(answers[1]?.[0]?.[0]?.tokens).toEqual(answers[0]?.[0]?.[0]?.tokens);
    const [a, b] = await Promise.all([own, written].map((model) => model?.score([ids as number[]])));
    const apart = a?.[0]?.logprobs.map((value, i) => Math.abs(value - (b?.[0]?.logprobs[i] as number)));
    // Weights rounded to f16.
    expect(Math.max(...(apart as Float32Array))).toBeLessThan(0.05);
    for (const model of [own, written]) model?.dispose();
    device.dispose();
  });

  describe('by other methods', () => {
    test('StepAMC', async () => {
      await run('base/stepamc', 'stepamc', {
        'data.train': at('rows.jsonl'),
        ...short('sft', { tokens_per_step: 128 }),
        ...short('reward_network', { tokens_per_step: 128 }),
        'verdict_ppo.max_iterations': STEPS,
        'verdict_ppo.rollout_batch': 2,
        'verdict_ppo.num_ppo_epochs': 1,
        'verdict_ppo.num_mini_batches': 1,
        'verdict_ppo.eval_steps': 0,
        'verdict_ppo.save_steps': 0,
      });
      expect(await steps('stepamc')).toEqual({ sft: STEPS, reward_network: STEPS, ppo: STEPS });
    });

    test('a reward model of steps (PRM)', async () => {
      const how = short('reward_model', { tokens_per_step: 128 });
      await run('base/prm', 'prm', { 'data.train': at('rows.jsonl'), ...how });
      expect(await steps('prm')).toEqual({ reward: STEPS });
    });

    test('Step-DPO', async () => {
      const how = short('step_dpo', { batch_size: 2 });
      await run('base/step_dpo', 'step_dpo', { 'data.train': at('rows.jsonl'), ...how });
      expect(await steps('step_dpo')).toEqual({ step_dpo: STEPS });
    });

    test('Step-KTO, labelled by the judge', async () => {
      await run('base/step_kto', 'step_kto', {
        'data.train': at('problems.jsonl'),
        'judge.path': at('judge'),
        'sampling.num_generations': 2,
        'sampling.max_new_tokens': 32,
        // Answers that are cut off are not learned.
        'sampling.stop': '["\\n", "."]',
        'sampling.problems_per_iteration': 20,
        'sampling.dedupe': 'false',
        // Answers are a single step here: a right one of a wrong answer would pull as hard as the answer, the other way.
        ...short('step_kto', { iterations: 1, batch_size: 3, num_train_epochs: 2, step_weight: 0.5 }),
      });
      expect(await steps('step_kto')).toEqual({ 'step_kto-1': STEPS });
    });

    test('GRPO, rewarded by that model of steps', async () => {
      await run('base/grpo', 'grpo', {
        'data.train': at('problems.jsonl'),
        // What it scores differs among the answers to nearly all problems; whether they are right, to few.
        'reward.steps.weight': 1,
        'reward.steps.model': at('prm'),
        'rollout.num_generations': 4,
        'rollout.max_new_tokens': 12,
        'rollout.stop': '["\\n", "."]',
        'ppo.rollout_batch': 2,
        'ppo.num_train_epochs': 2,
        'ppo.max_iterations': STEPS,
        'ppo.eval_steps': 0,
        'ppo.save_steps': 0,
      });
      expect(await steps('grpo')).toEqual({ ppo: STEPS });
    });
  });
});
