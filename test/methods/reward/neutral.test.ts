// A class of its own for neutral steps: learned, saved, scored, and judged on the same steps as models without.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadModel } from '../../../src/api/model.js';
import { Tape } from '../../../src/autograd/tape.js';
import { taskOfRun } from '../../../src/cli/eval/correction-task.js';
import { evaluateCorrection } from '../../../src/eval/correction.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import { rewardLoss } from '../../../src/methods/reward/stage.js';
import { train } from '../../../src/methods/run.js';
import type { StepRecord } from '../../../src/records/record.js';
import { modelScorers } from '../../../src/scoring/kinds.js';
import { openScorers } from '../../../src/scoring/open.js';
import { logOddsOfRight } from '../../../src/scoring/reward-model/network.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { openTest } from '../../ops/devices.js';
import { TINY } from './tiny-model.js';

const device = openTest();
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-neutral-'));
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
  vi.spyOn(console, 'error').mockImplementation(() => {});
  writeFileSync(join(folder, 'prm800k.jsonl'), prm800k());
});
afterAll(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const WORDS = { '1': 'y', '0': 'o', '-1': 'n' } as const;

/** A step says its rating: y, o or n. Every other problem has a neutral alternative. */
function prm800k(): string {
  const completion = (step: number, rating: 1 | 0 | -1) => ({ text: `${step}${WORDS[rating]}`, rating });
  return Array.from({ length: 90 }, (_, i) => {
    const steps = [0, 1, 2].map((step) => {
      const rating = (((i * 7 + step * 5) % 3) - 1) as 1 | 0 | -1;
      const offered = [completion(step, rating), ...(i % 2 ? [completion(step + 5, 0)] : [])];
      return { completions: offered, human_completion: null, chosen_completion: 0 };
    });
    return JSON.stringify({
      question: { problem: `p${i}` },
      label: { steps, finish_reason: 'solution' },
    });
  }).join('\n');
}

const config = (neutral: string, { reward = {}, evaluation = {}, data = {} } = {}) =>
  completeRunConfig({
    method: 'reward',
    model: { base: { init: TINY }, tokenizer: 'bytes' },
    data: { train: join(folder, 'prm800k.jsonl'), max_length: 64, split: [4, 1, 1], neutral, ...data },
    reward_model: {
      head: 'classes',
      learning_rate: 1e-2,
      num_train_epochs: 4,
      tokens_per_step: 256,
      after_error: 'keep',
      ...reward,
    },
    run: { device: 'cpu', threads: 1 },
    eval: { max_samples: 8 },
    eval_scores: evaluation,
  });

const run = async (name: string, neutral: string, more: Parameters<typeof config>[1] = {}) => {
  const { directory } = await train(config(neutral, more) as never, { output: join(folder, name) });
  return { directory, report: JSON.parse(await readFile(join(directory, 'eval.json'), 'utf8')) };
};

test('the loss is the cross-entropy of three classes, with its gradient', async () => {
  const rows = [
    { label: 0, neutral: false, target: 0 },
    { label: 1, neutral: true, target: 1 },
    { label: 1, neutral: false, target: 1 },
    { label: 0, neutral: true, target: 0 },
  ] as const;
  const targets = [0, 2, 1, 2];
  const weights = [0.5, 0.2, 0.2, 0.1];
  const logits = [0.3, -0.2, 1.1, 0.7, 0.4, -0.9, -0.5, 0.2, 0.6, 0.1, 0.9, -0.3];
  const softmax = (row: number) => {
    const exps = logits.slice(3 * row, 3 * row + 3).map(Math.exp);
    return exps.map((e) => e / exps.reduce((sum, x) => sum + x, 0));
  };
  const classes = device.tensor(Float32Array.from(logits), [4, 3]);
  const tape = new Tape(device);
  tape.watch(classes);
  const loss = device.scope(() => tape.run(() => rewardLoss({ classes }, rows, weights)));
  tape.backward([[loss, 1]]);
  const gradient = await tape.takeGradient(classes)!.readFloats();
  const expected = targets.reduce((sum, t, r) => sum - weights[r]! * Math.log(softmax(r)[t]!), 0);
  expect((await loss.readFloats())[0]).toBeCloseTo(expected, 5);
  targets.forEach((t, r) => {
    softmax(r).forEach((p, c) => {
      expect(gradient[3 * r + c]).toBeCloseTo(weights[r]! * (p - (c === t ? 1 : 0)), 5);
    });
  });
  tape.dispose();
  for (const tensor of [loss, classes]) tensor.dispose();
});

test('a score counts the class as right, as wrong, or not at all', () => {
  const [wrong, right, neutral] = [0.2, 0.5, 0.3].map(Math.log) as [number, number, number];
  const score = (rule: 'positive' | 'negative' | 'drop') =>
    1 / (1 + Math.exp(-logOddsOfRight(wrong, right, neutral, rule)));
  expect(score('positive')).toBeCloseTo(0.8, 12);
  expect(score('negative')).toBeCloseTo(0.5, 12);
  expect(score('drop')).toBeCloseTo(0.5 / 0.7, 12);
  // Far apart, nothing overflows.
  expect(logOddsOfRight(-800, 800, 900, 'positive')).toBe(1700);
});

const ASKED = [{ problem: 'p1', steps: ['0y', '1o', '2n'] }];

test('three classes are learned, saved for transformers, and scored both ways', async () => {
  const { directory, report } = await run('class', 'class', { reward: { num_train_epochs: 8 } });
  const file = JSON.parse(await readFile(join(directory, 'model/config.json'), 'utf8'));
  expect(file.id2label).toEqual({ 0: 'wrong', 1: 'right', 2: 'neutral' });
  const model = await loadModel(device, join(directory, 'model'));
  const [classes] = await model.classify([[...Buffer.from('p1\n0y\n1o\n2n\n')]]);
  const ends = [5, 8, 11].map((row) => classes!.logits[row]!);
  const likeliest = ends.map((logits) => logits.indexOf(Math.max(...logits)));
  expect(likeliest).toEqual([1, 2, 0]);

  const tokenizer = byteTokenizer();
  for (const rule of [undefined, 'positive', 'negative', 'drop'] as const) {
    const opened = await modelScorers(model, { run: directory, tokenizer, neutralScore: rule });
    const [found] = (await opened.scorers.reward!.score(ASKED))!;
    ends.forEach(([wrong, right, neutral], step) => {
      const odds = logOddsOfRight(wrong!, right!, neutral!, rule ?? 'positive');
      expect(found!.scores[step], `${rule} ${step}`).toBeCloseTo(1 / (1 + Math.exp(-odds)), 5);
    });
    opened.dispose();
  }
  // As rewards of ppo open it: the run, and its model alone.
  for (const name of [directory, join(directory, 'model')]) {
    const opened = await openScorers(device, name);
    const [found] = (await opened.scorers.reward!.score(ASKED))!;
    const [wrong, right, neutral] = ends[1]!;
    const odds = logOddsOfRight(wrong!, right!, neutral!, 'positive');
    expect(found!.scores[1], name).toBeCloseTo(1 / (1 + Math.exp(-odds)), 5);
    opened.dispose();
  }
  model.dispose();

  // As right: the neutral steps are among the right ones, and judged as such.
  const again = await evaluateCorrection(device, await taskOfRun(directory, {}));
  expect(again.report.metrics).toEqual(report.metrics);
  const task = await taskOfRun(directory, { neutralScore: 'negative' });
  const right = ({ test }: { test: readonly StepRecord[] }) =>
    test.flatMap(({ steps }) => steps).filter(({ label }) => label === 1).length;
  expect(right(task)).toBeLessThan(right(await taskOfRun(directory, {})));
  const asWrong = await evaluateCorrection(device, task);
  expect(asWrong.report.metrics.n).toBe(report.metrics.n);
  expect(asWrong.report.metrics.auc).toBeGreaterThan(0.95);
});

test('an adapter carries its three classes along', async () => {
  const base = join(
    await run('base', 'class', { reward: { num_train_epochs: 1 } }).then((r) => r.directory),
    'model',
  );
  const { directory } = await train(
    {
      ...config('class', { reward: { num_train_epochs: 1 } }),
      model: { base },
      lora: { r: 4, target_modules: ['q_proj'] },
    } as never,
    { output: join(folder, 'lora') },
  );
  const opened = await openScorers(device, directory);
  const [found] = (await opened.scorers.reward!.score(ASKED))!;
  expect(found!.scores.every((score) => score! > 0 && score! < 1)).toBe(true);
  opened.dispose();
});

test('with eval_scores.neutral: drop all three readings are judged on the same steps', async () => {
  const evaluation = { neutral: 'drop' };
  const judged = [];
  for (const neutral of ['positive', 'negative', 'drop', 'class']) {
    const { directory } = await run(`same-${neutral}`, neutral, {
      evaluation,
      reward: { num_train_epochs: 1 },
    });
    const lines = (await readFile(join(directory, 'verdicts.jsonl'), 'utf8')).trim().split('\n');
    const steps = lines
      .map((line) => JSON.parse(line))
      .map(({ problem, step, label }) => [problem, step, label]);
    const task = await taskOfRun(directory, {});
    expect(task.test).toHaveLength(8);
    judged.push(steps);
  }
  expect(judged[0]!.length).toBeGreaterThan(10);
  expect(judged.slice(1)).toEqual([judged[0], judged[0], judged[0]]);
});

describe('refuses', () => {
  test.each([
    [
      { reward: { head: 'scalar' } },
      /data\.neutral is class, and reward_model\.type prm with reward_model\.head scalar has no class/,
    ],
    [
      { reward: { type: 'orm' } },
      /reward_model\.type orm with reward_model\.head classes has no class for neutral steps/,
    ],
    [
      { reward: { soft_labels: true } },
      /reward_model\.soft_labels is true, and probabilities of right leave no class/,
    ],
    [
      { data: { label_noise: 0.1 } },
      /data\.label_noise flips right and wrong, and data\.neutral class has three/,
    ],
  ])('%j', (more, message) => {
    expect(() => config('class', more)).toThrow(message);
  });

  test('methods without such a head, and evaluation on what was not read', () => {
    const sft = { method: 'sft', model: { base: 'embedded' }, data: { train: 'x.jsonl', neutral: 'class' } };
    expect(() => completeRunConfig(sft)).toThrow(
      /data\.neutral is class, which only method reward learns, .*for method sft choose positive, negative or drop/,
    );
    expect(() => config('drop', { evaluation: { neutral: 'positive' } })).toThrow(
      /eval_scores\.neutral is positive, and data\.neutral drop reads no neutral steps/,
    );
  });

  test('to count a class that a model does not have', async () => {
    const { directory } = await run('two', 'drop', { reward: { num_train_epochs: 1 } });
    await expect(taskOfRun(directory, { neutralScore: 'drop' })).rejects.toThrow(
      /has no class for neutral steps, so --neutral-score has nothing to count/,
    );
  });
});
