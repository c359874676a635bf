// An implicit reward model as every other one: its scores against log-probs of both models, in commands, judgements and rewards.
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadModel } from '../../../src/api/model.js';
import { evaluate } from '../../../src/eval/correction.js';
import { plannedRewardModels } from '../../../src/methods/ppo/reward-memory.js';
import { train } from '../../../src/methods/run.js';
import { baseDirectory } from '../../../src/models/base.js';
import { mergeAdapter } from '../../../src/models/merge.js';
import { stepsOf } from '../../../src/records/steps.js';
import { openDevice } from '../../../src/runtime/device.js';
import { judgeSteps } from '../../../src/scoring/judge.js';
import { openScorers } from '../../../src/scoring/open.js';
import { loadTokenizer } from '../../../src/tokenizer/load.js';
import { cli } from '../../cli/run-cli.js';
import { TINY } from '../reward/tiny-model.js';

const BETA = 0.5;
const BASE = 'word-problems';
const PROBLEM = 'Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?';
// What the base does not expect, so that training moves it.
const STEPS = ['Tom: 12 + 7 = 29', 'Answer: 29'];

const device = openDevice('cpu', { threads: 1 });
/** Of commands whose numbers are compared with those of `device`: the default is a GPU where there is one. */
const CPU = ['--device', 'cpu'];
let folder: string;
const at = (name: string) => join(folder, name);
const lora = { r: 2, lora_alpha: 8, lora_dropout: 0 };
const section = {
  beta: BETA,
  learning_rate: 3e-2,
  batch_size: 8,
  micro_batch_tokens: 1024,
  max_steps: 6,
  load_best_model_at_end: false,
};
const implicit = (name: string, settings: object) =>
  train(
    {
      method: 'implicit_prm',
      model: { base: BASE },
      data: { source: 'word_problems', word_problems: { samples: 40, error_rate: 0.4 }, max_length: 384 },
      question: { template: '{problem}\n' },
      implicit_prm: section,
      eval: { max_samples: 2 },
      run: { device: 'cpu', threads: 1 },
      ...settings,
    } as never,
    { output: at(name) },
  );

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-implicit-'));
  vi.stubEnv('STEPTRAIN_CACHE', at('cache'));
  vi.spyOn(console, 'error').mockImplementation(() => {});
  await implicit('run', { lora });
  await implicit('further', { model: { base: BASE, adapter: at('run') } });
  await implicit('full', { lora: 'none', implicit_prm: { ...section, learning_rate: 1e-4 } });
});
afterAll(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});

async function scoredBy(name: string, scorer: string, steps = STEPS) {
  const opened = await openScorers(device, at(name));
  try {
    const found = await opened.scorers[scorer]!.score([
      { problem: 'none', steps: [] },
      { problem: PROBLEM, steps },
    ]);
    expect(found![0]!.scores).toEqual([]);
    return found![1]!.scores as number[];
  } finally {
    opened.dispose();
  }
}

/** By step, of tokens put together here. */
async function logprobsBy(model: string, adapter?: string): Promise<number[]> {
  const tokenizer = await loadTokenizer(baseDirectory(BASE));
  const prompt = tokenizer.encode(`${PROBLEM}\n`, { addSpecialTokens: false });
  const steps = STEPS.map((step) => tokenizer.encode(`${step}\n`, { continuation: true }));
  steps.at(-1)!.push(tokenizer.eosId as number);
  const loaded = await loadModel(device, model, adapter === undefined ? {} : { adapter });
  const [scored] = await loaded.score([[...tokenizer.prefixIds, ...prompt, ...steps.flat()]]);
  loaded.dispose();
  let begin = tokenizer.prefixIds.length + prompt.length - 1;
  return steps.map(({ length }) => {
    begin += length;
    return scored!.logprobs.slice(begin - length, begin).reduce((sum, logprob) => sum + logprob, 0);
  });
}

const sigmoid = (z: number) => 1 / (1 + Math.exp(-z));

describe('the scores', () => {
  const base = baseDirectory(BASE);
  test.each([
    ['an adapter, to its base', 'run', undefined],
    ['an adapter that went on from another, to that one', 'further', 'run/adapter'],
    ['a model trained in full, to the base of its run', 'full', undefined],
  ])('are the log-ratios of %s, summed by step', async (_, name, reference) => {
    const own = await logprobsBy(at(name));
    const theirs = await logprobsBy(base, reference && at(reference));
    const expected = own.map((sum, i) => BETA * (sum - theirs[i]!));
    // A step moved by training, and not by nothing.
    expect(Math.max(...expected.map(Math.abs))).toBeGreaterThan(0.05);
    const rewards = await scoredBy(name, 'reward');
    const probabilities = await scoredBy(name, 'probability');
    rewards.forEach((reward, i) => {
      expect(reward).toBeCloseTo(expected[i]!, 3);
      expect(probabilities[i]).toBe(sigmoid(reward));
    });
    const outcome = await scoredBy(name, 'outcome');
    expect(outcome[0]).toBeNull();
    expect(outcome[1]).toBeCloseTo(sigmoid(expected[0]! + expected[1]!), 3);
  });

  test('end where the run read no further', async () => {
    const long = [...STEPS, Array(400).fill('19').join(' ')];
    expect(await scoredBy('run', 'reward', long)).toEqual([expect.any(Number), expect.any(Number), null]);
    expect(await scoredBy('run', 'outcome', long)).toEqual([null, null, null]);
    expect(await scoredBy('run', 'reward', [long[2]!])).toEqual([null]);
  });

  test('are those of each solution alone', async () => {
    const opened = await openScorers(device, at('run'));
    const solutions = [
      { problem: 'How many?', steps: ['Answer: 3'] },
      { problem: PROBLEM, steps: STEPS },
    ];
    const together = await opened.scorers.reward!.score(solutions);
    const alone = [];
    for (const solution of solutions) alone.push(...(await opened.scorers.reward!.score([solution]))!);
    const signal = AbortSignal.abort();
    expect(await opened.scorers.reward!.score(solutions, { signal })).toBeUndefined();
    opened.dispose();
    expect(together).toEqual(alone);
  });
});

test('steptrain score writes them, and what they come to as probabilities', async () => {
  writeFileSync(at('solutions.jsonl'), `${JSON.stringify({ problem: PROBLEM, steps: STEPS })}\n`);
  const scored = async (...more: string[]) => {
    const { code, stdout } = await cli('score', at('solutions.jsonl'), '--model', at('run'), ...CPU, ...more);
    expect(code).toBe(0);
    return JSON.parse(stdout);
  };
  const row = await scored('--aggregate', 'min,product', '--until-wrong');
  const probabilities = await scoredBy('run', 'probability');
  expect(row.scores).toEqual(probabilities);
  expect(row.score_min).toBe(probabilities[0]! < 0.5 ? probabilities[0] : Math.min(...probabilities));
  expect((await scored('--scorer', 'reward')).scores).toEqual(await scoredBy('run', 'reward'));
});

test('eval correction judges by them, a run as its adapter', async () => {
  const steps = STEPS.map((text, i) => ({ text, label: i }));
  writeFileSync(at('steps.jsonl'), `${JSON.stringify({ problem: PROBLEM, steps })}\n`);
  const reports = [];
  for (const name of ['run', 'run/adapter']) {
    const { code, stdout } = await cli(
      'eval',
      'correction',
      at(name),
      '--data',
      at('steps.jsonl'),
      '--json',
      ...CPU,
    );
    expect(code).toBe(0);
    reports.push(JSON.parse(stdout).metrics);
  }
  expect(reports[0]).toEqual(reports[1]);
  const verdicts = (await scoredBy('run', 'probability')).map((p) => (p >= 0.5 ? 1 : 0));
  expect(reports[0]).toMatchObject({
    n: 2,
    accuracy: verdicts.filter((verdict, i) => verdict === i).length / 2,
  });
});

test('judgeSteps gives log-ratio and probability, evaluate counts them, eval solve ranks samples by them', async () => {
  const model = await loadModel(device, at('run'));
  const judged = await judgeSteps(model, PROBLEM, STEPS);
  const rewards = await scoredBy('run', 'reward');
  expect(judged.map(({ score }) => score)).toEqual(rewards);
  expect(judged.map(({ verdict }) => verdict)).toEqual(rewards.map((z) => (z >= 0 ? 'right' : 'wrong')));
  for (const { probability, score } of judged) expect(probability).toBe(sigmoid(score!));
  const steps = STEPS.map((text) => ({ text, label: 1, kind: 'normal' }) as const);
  const { metrics } = await evaluate(model, [{ problem: PROBLEM, steps }]);
  expect(metrics.accuracy).toBe(rewards.filter((z) => z >= 0).length / 2);
  await expect(judgeSteps(model, PROBLEM, STEPS, { prompt: { pos_word: 'yes' } })).rejects.toThrow(
    'give it no prompt',
  );
  model.dispose();

  writeFileSync(at('problems.jsonl'), `${JSON.stringify({ problem: PROBLEM, answer: '19' })}\n`);
  const args = ['--model', BASE, '-n', '2', '--max-new-tokens', '40', '--template', '{problem}\n'];
  const asked = ['eval', 'solve', at('problems.jsonl'), ...args, '--reward-model', at('run')];
  const { code } = await cli(...asked, '--output', at('solved'), ...CPU);
  expect(code).toBe(0);
  const solved = readFileSync(at('solved/problems.jsonl'), 'utf8').trim().split('\n');
  const { samples } = JSON.parse(solved[0]!);
  const opened = await openScorers(device, at('run'));
  expect(samples).toHaveLength(2);
  for (const { text, score } of samples) {
    const solution = { problem: PROBLEM, steps: stepsOf(text) };
    const found = await opened.scorers.probability!.score([solution]);
    expect(score).toBe(Math.min(...(found![0]!.scores as number[])));
  }
  opened.dispose();
});

test('steps are rewarded by them: a dry run counts the model, and two steps are learned', async () => {
  const config = {
    method: 'ppo',
    model: { base: BASE },
    lora: { r: 2, lora_alpha: 4, lora_dropout: 0 },
    data: { source: 'word_problems', word_problems: { samples: 12, levels: [1] }, max_length: 300 },
    rollout: { num_generations: 2, max_new_tokens: 40, template: '{problem}\n' },
    reward: {
      rule: { weight: 0 },
      steps: { weight: 1, model: at('run'), scorer: 'reward', aggregation: 'mean' },
      outcome: { weight: 1, model: at('run') },
      placement: 'step',
    },
    ppo: { algorithm: 'grpo', rollout_batch: 2, max_iterations: 2, num_ppo_epochs: 1, num_mini_batches: 1 },
    eval: { max_samples: 1 },
    run: { device: 'cpu', threads: 1, logging_steps: 1 },
  };
  writeFileSync(at('ppo.yaml'), JSON.stringify(config));
  const { code, stdout, stderr } = await cli('run', at('ppo.yaml'), '--dry-run');
  expect(code, stderr).toBe(0);
  expect(stdout).toMatch(/PRM .*and an adapter/);
  expect((await train(config as never, { output: at('ppo') })).status).toBe('finished');
  const steps = readFileSync(at('ppo/metrics.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
    .filter(({ phase, reward_steps }) => phase === 'ppo' && reward_steps !== undefined);
  expect(steps).toHaveLength(2);
  for (const { reward_steps, reward_outcome } of steps) {
    expect(Number.isFinite(reward_steps)).toBe(true);
    expect(reward_outcome).toBeGreaterThan(0);
    expect(reward_outcome).toBeLessThan(1);
  }
});

test('a plan counts the reference of a model trained in full', () => {
  const of = (name: string) =>
    plannedRewardModels({ steps: { weight: 1, model: name }, outcome: { weight: 0 } } as never, device)[0]!;
  const { bytes } = of(baseDirectory(BASE));
  for (const name of ['full', 'full/model']) expect(of(at(name)).bytes).toBe(2 * bytes);
  expect(of(at('run')).what).not.toContain('reference');
});

test('a plan counts a reward model in the bits that its run kept', async () => {
  const of = (name: string) =>
    plannedRewardModels({ steps: { weight: 1, model: name }, outcome: { weight: 0 } } as never, device)[0]!;
  const before = of(at('run'));
  const card = at('run/adapter/steptrain.json');
  const text = readFileSync(card, 'utf8');
  try {
    for (const quantize of ['int8', 'nf4'] as const) {
      writeFileSync(card, JSON.stringify({ ...JSON.parse(text), quantize }));
      const own = device.stats().liveBytes;
      const { scorers, dispose } = await openScorers(device, at('run'));
      const taken = device.stats().liveBytes - own;
      expect(Object.keys(scorers)).not.toEqual([]);
      dispose();
      const { bytes, what } = of(at('run'));
      expect(what).toMatch(quantize);
      expect(bytes).toBeLessThan(before.bytes / 1.5);
      // Packed panels, tables of positions and what is rounded up beside the weights.
      expect(Math.abs(taken - bytes) / bytes).toBeLessThan(0.1);
    }
  } finally {
    writeFileSync(card, text);
  }
});

describe('a reference', () => {
  test('is found by a merged model too', async () => {
    await mergeAdapter(device, baseDirectory(BASE), at('run/adapter'), at('merged'));
    const model = await loadModel(device, at('merged'));
    const judged = await judgeSteps(model, PROBLEM, STEPS);
    model.dispose();
    const rewards = await scoredBy('run', 'reward');
    judged.forEach(({ score }, i) => {
      expect(score).toBeCloseTo(rewards[i]!, 2);
    });
  });

  test('that is not here any more, or had random weights, is refused in one sentence', async () => {
    renameSync(at('run'), at('elsewhere'));
    await expect(openScorers(device, at('further'))).rejects.toThrow(
      /with the adapter .*adapter, which is not here/,
    );
    renameSync(at('elsewhere'), at('run'));
    await implicit('random', {
      model: { base: { init: { ...TINY, max_position_embeddings: 1024 } }, tokenizer: 'bytes' },
      implicit_prm: { batch_size: 8, micro_batch_tokens: 1024, max_steps: 1 },
    });
    await expect(openScorers(device, at('random'))).rejects.toThrow(/had random weights/);
  });
});
