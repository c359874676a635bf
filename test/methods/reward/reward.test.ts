// Reward models from data to scores, with models of random weights.
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadModel } from '../../../src/api/model.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import { parseRunConfig } from '../../../src/methods/config.js';
import { type RewardRunConfig, rewardPrompt } from '../../../src/methods/reward/config.js';
import { train } from '../../../src/methods/run.js';
import type { RunConfigInput } from '../../../src/methods/table.js';
import { configuredTokenizer } from '../../../src/run/tokenizer.js';
import { openScorer, openScorers } from '../../../src/scoring/open.js';
import { rewardItem } from '../../../src/scoring/reward-model/items.js';
import { rewardModelScorer } from '../../../src/scoring/reward-model/scorer.js';
import { sharedItems } from '../../../src/scoring/reward-model/shared.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';
import { TINY } from './tiny-model.js';

const device = openTest();
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-reward-'));
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
  vi.spyOn(console, 'error').mockImplementation(() => {});
});
afterAll(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});

/** A step is right if it says so: learnable at once. */
function rows(): string {
  return Array.from({ length: 60 }, (_, i) => {
    const labels = [0, 1, 2].map((step) => (i * 7 + step * 5) % 3 !== 0);
    return JSON.stringify({
      problem: `p${i}`,
      steps: labels.map((right, step) => ({
        text: `${step}${right ? 'y' : 'n'}`,
        label: right ? 1 : 0,
      })),
      outcome: labels.every(Boolean) ? 1 : 0,
    });
  }).join('\n');
}

const recipe = (reward: object, more: object = {}): RunConfigInput =>
  ({
    method: 'reward',
    model: { base: { init: TINY }, tokenizer: 'bytes' },
    data: { train: join(folder, 'rows.jsonl'), max_length: 64, split: [4, 1, 1] },
    reward_model: {
      learning_rate: 1e-2,
      num_train_epochs: 8,
      tokens_per_step: 256,
      after_error: 'keep',
      ...reward,
    },
    run: { device: 'cpu', threads: 1 },
    ...more,
  }) as never;

const trainedOn = async (name: string, reward: object, more: object = {}) => {
  writeFileSync(join(folder, 'rows.jsonl'), rows());
  const { directory } = await train(recipe(reward, more), { output: join(folder, name) });
  const report = JSON.parse(await readFile(join(directory, 'eval.json'), 'utf8'));
  const { config } = parseRunConfig(await readFile(join(directory, 'config.yaml'), 'utf8'), { name });
  const loaded = await loadModel(device, directory);
  const { decoder, adapter: own } = loaded;
  const tokenizer = await configuredTokenizer(config.model);
  const scorer = (output?: 'step' | 'outcome') =>
    rewardModelScorer(decoder, {
      role: own ? { adapter: own } : {},
      tokenizer,
      prompt: rewardPrompt(config as RewardRunConfig),
      settings: (config as RewardRunConfig).reward_model,
      maxLength: Math.min(config.data.max_length, decoder.config.maxPositions),
      ...(output ? { output } : {}),
    });
  return { report, model: loaded, scorer, directory };
};

const ASKED = [{ problem: 'p1', steps: ['0y', '1n', '2y'] }];

describe.each(['scalar', 'classes', 'verdict'] as const)('a model of steps with head %s', (head) => {
  test('learns, is saved, and scores as it was trained', async () => {
    const { report, model, scorer } = await trainedOn(`prm-${head}`, { type: 'prm', head });
    expect(report.metrics.auc).toBeGreaterThan(0.95);
    const [found] = (await scorer().score(ASKED))!;
    const [right, wrong, again] = found!.scores as number[];
    expect(Math.min(right!, again!)).toBeGreaterThan(wrong!);
    model.dispose();
  });
});

test('a model of outcomes scores at the last step alone, and stands beside one that knows the length alone', async () => {
  const { report, model, scorer } = await trainedOn('orm', { type: 'orm' });
  expect(report.unit).toBe('solutions');
  expect(report.baselines.length.n).toBe(report.metrics.n);
  const [found] = (await scorer().score(ASKED))!;
  expect(found!.scores.map((score) => score === null)).toEqual([true, true, false]);
  // The saved classifier alone gives the same score.
  const ids = [...Buffer.from('p1\n0y\n1n\n2y\n')];
  const [classes] = await model.classify([ids]);
  expect(1 / (1 + Math.exp(-classes!.logits[0]![0]!))).toBeCloseTo(found!.scores[2]!, 5);
  model.dispose();
});

test('nothing is selected by validation steps that cannot be judged', async () => {
  const long = JSON.stringify({ problem: 'q'.repeat(80), steps: [{ text: '0y', label: 1 }] });
  writeFileSync(join(folder, 'long.jsonl'), `${long}\n`);
  writeFileSync(join(folder, 'rows.jsonl'), rows());
  const files = { train: join(folder, 'rows.jsonl'), validation: join(folder, 'long.jsonl') };
  const more = { data: { ...files, test: files.train, max_length: 64 } };
  await expect(train(recipe({ type: 'prm' }, more), { output: join(folder, 'unjudged') })).rejects.toThrow(
    'no step of the validation part can be judged, so nothing could be selected by it; raise data.max_length (now 64)',
  );
});

describe('an encoder', () => {
  const { num_key_value_heads: _, ...shape } = TINY;
  const init = { ...shape, model_type: 'deberta-v2', position_buckets: 16 };
  const more = { model: { base: { init }, tokenizer: 'bytes' } };

  test('reads one prefix for each step, learns, is saved, and scores as it was trained', async () => {
    const settings = { type: 'prm', input: 'prefixes', num_train_epochs: 3 };
    const { report, model, scorer } = await trainedOn('encoder', settings, more);
    expect(report.metrics.auc).toBeGreaterThan(0.95);
    const [found] = (await scorer().score(ASKED))!;
    const [right, wrong] = found!.scores as number[];
    expect(right).toBeGreaterThan(wrong!);
    // Later steps change nothing.
    const [shorter] = (await scorer().score([{ problem: 'p1', steps: ['0y', '1n'] }]))!;
    expect(shorter!.scores).toEqual(found!.scores.slice(0, 2));
    model.dispose();
  });

  test('of outcomes reads the first token of the whole solution, as its saved classifier does', async () => {
    const settings = { type: 'orm', input: 'prefixes', num_train_epochs: 1 };
    const { model, scorer } = await trainedOn('encoder-orm', settings, more);
    const [found] = (await scorer().score(ASKED))!;
    const [classes] = await model.classify([[...Buffer.from('p1\n0y\n1n\n2y\n')]]);
    expect(1 / (1 + Math.exp(-classes!.logits[0]![0]!))).toBeCloseTo(found!.scores[2]!, 5);
    model.dispose();
  });

  test('is refused where a step would be judged by those after it', async () => {
    await expect(trainedOn('encoder-whole', { type: 'prm' }, more)).rejects.toThrow(
      /reward_model.input is whole, .*set reward_model.input: prefixes/,
    );
  });
});

describe('as a reward model elsewhere', () => {
  test('of steps, the saved classifier scores as its run does', async () => {
    const { scorer, model, directory } = await trainedOn('saved-prm', { type: 'prm', num_train_epochs: 1 });
    const [expected] = (await scorer().score(ASKED))!;
    // Also as a published classifier, of which no card tells.
    cpSync(join(directory, 'model'), join(folder, 'published'), { recursive: true });
    rmSync(join(folder, 'published/steptrain.json'));
    for (const name of [directory, join(directory, 'model'), join(folder, 'published')]) {
      const opened = await openScorers(device, name);
      const [found] = (await opened.scorers.reward!.score(ASKED))!;
      expect(found!.scores, name).toEqual(expected!.scores);
      opened.dispose();
    }
    model.dispose();
  });

  test('of outcomes, the saved classifier scores texts, and its run the last step', async () => {
    const { scorer, model, directory } = await trainedOn('saved-orm', { type: 'orm', num_train_epochs: 1 });
    const [expected] = (await scorer().score(ASKED))!;
    rmSync(join(directory, 'model/steptrain.json'));
    const opened = await openScorer(device, join(directory, 'model'));
    const text = '0y\n1n\n2y\n';
    const [found] = (await opened.score([{ problem: 'p1', text, steps: [] }]))!;
    expect(1 / (1 + Math.exp(-found!.outcome!))).toBeCloseTo(expected!.scores[2]!, 5);
    expect(opened).toMatchObject({ unit: 'outcome', scale: 'reward' });
    opened.dispose();
    model.dispose();
  });

  test('a language model is refused', async () => {
    await expect(openScorers(device, goldenDirectory('qwen2'))).rejects.toThrow(
      /judges no steps; expected what a run has trained to judge, .* by the prompt/,
    );
  });
});

test('one trunk with both outputs; the saved model is a classifier of tokens', async () => {
  const { report, model, scorer, directory } = await trainedOn('joint', { type: 'joint' });
  expect(report.outcomes.metrics.n).toBeGreaterThan(0);
  const { architectures } = JSON.parse(await readFile(join(directory, 'model/config.json'), 'utf8'));
  expect(architectures).toEqual(['Qwen2ForTokenClassification']);
  const [steps] = (await scorer('step').score(ASKED))!;
  const [outcome] = (await scorer('outcome').score(ASKED))!;
  expect(steps!.scores.every((score) => score !== null)).toBe(true);
  expect(outcome!.scores.map((score) => score === null)).toEqual([true, true, false]);
  model.dispose();
});

test('an adapter on a base carries its head along', async () => {
  const { model, scorer } = await trainedOn(
    'lora',
    { type: 'prm', num_train_epochs: 1 },
    {
      model: { base: 'embedded' },
      lora: { r: 4 },
      // Characters that the embedded model reads.
      data: { source: 'arithmetic', arithmetic: { samples: 60 }, max_length: 128 },
    },
  );
  const [found] = (await scorer().score([{ problem: '12;-6', steps: ['12-6=6'] }]))!;
  expect(found!.scores[0]).toBeGreaterThan(0);
  expect(model.adapter?.head?.kind).toBe('token');
  model.dispose();
});

test.each(['steps', 'outcome'] as const)(
  'transformers reads the saved classifier of %s as we do',
  async (name) => {
    const folder = new URL('../../golden/reward/', import.meta.url);
    const { ids, logits } = JSON.parse(await readFile(new URL('logits.json', folder), 'utf8'));
    const model = await loadModel(device, fileURLToPath(new URL(name, folder)));
    const [found] = await model.classify([ids]);
    const expected: number[][] = name === 'steps' ? logits.steps : [logits.outcome];
    expect(found!.logits).toHaveLength(expected.length);
    for (const [row, values] of expected.entries())
      for (const [i, value] of values.entries()) expect(found!.logits[row]![i]).toBeCloseTo(value, 4);
    model.dispose();
  },
);

describe('solutions of one problem', () => {
  const solutions = [
    ...[['0y', '1n', '2y'], ['0y', '1n'], ['0y', '1n', '2y'], ['0n'], []].map((steps) => ({
      problem: 'p1',
      steps,
    })),
    { problem: 'p2', steps: ['0y'] },
    { problem: 'p1', steps: ['0y', '1y'] },
  ];

  // Without a tail, with one, and with a sequence for each step.
  test.each([
    ['prm', {}, {}],
    ['orm', {}, {}],
    ['joint', {}, { prompt: { template: 'compact' } }],
    ['orm', {}, { prompt: { template: 'compact' } }],
    ['prm', { input: 'prefixes' }, {}],
    ['prm', { head: 'verdict' }, {}],
  ] as const)('have the scores that each has alone: %s %o %o', async (type, reward, more) => {
    const name = `shared-${JSON.stringify([type, reward, more]).replaceAll(/\W+/g, '-')}`;
    const { model, scorer } = await trainedOn(name, { type, ...reward, num_train_epochs: 1 }, more);
    for (const output of type === 'joint' ? (['step', 'outcome'] as const) : [undefined]) {
      const together = await scorer(output).score(solutions);
      const alone = [];
      for (const each of solutions) alone.push(...((await scorer(output).score([each])) ?? []));
      expect(together).toEqual(alone);
      expect(new Set(together!.flatMap(({ scores }) => scores)).size).toBeGreaterThan(type === 'orm' ? 4 : 5);
    }
    model.dispose();
  });

  const verdicts = verdictTokenizer({ template: '{problem}\n{steps}\n?' }, byteTokenizer());
  const itemsOf = (type: 'prm' | 'orm') =>
    solutions.map(({ problem, steps }, i) => {
      const given = steps.map((text) => ({ text, label: null, kind: 'normal' as const }));
      const { trunk } = verdicts.solution({ problem, steps: given }, { steps: 'all' });
      const ends = trunk.steps.map(({ end }) => end);
      const options = { type, input: 'whole', whole: false, everyStep: true, maxLength: 100 } as const;
      return rewardItem({ ids: trunk.ids, ends, labels: [] }, i, verdicts, options);
    });

  test('are read as one sequence, where that has fewer tokens', () => {
    const items = itemsOf('orm');
    const problemOf = (i: number) => solutions[i]?.problem ?? '';
    const found = sharedItems(items, problemOf, 1000);
    expect(found.map(({ of }) => of)).toEqual([[0, 1, 2, 3, 6], [4], [5]]);
    // "p1\n0", then "y\n1n\n2y\n?", "y\n1n\n?", "y\n1y\n?" and "n\n?"; the third is the first.
    expect(found[0]?.item.tokens).toBe(4 + 9 + 6 + 6 + 3);
    const { ids, branch } = found[0]!.item.sequences[0]!;
    expect(found[0]?.item.rows.map(({ row }) => seen(ids, branch, row))).toEqual(
      [0, 1, 2, 3, 6].map((i) => `p1\n${solutions[i]!.steps.join('\n')}\n?`),
    );
    const few = sharedItems(items, problemOf, 20);
    expect(few.map(({ of }) => of)).toEqual([[0, 1, 2], [3, 6], [4], [5]]);
    expect(few.every(({ item, of }) => of.length === 1 || item.tokens <= 20)).toBe(true);
    // Each step of its own branch costs more here than what they share.
    expect(sharedItems(itemsOf('prm').slice(0, 1), problemOf, 1000)[0]?.item).toEqual(itemsOf('prm')[0]);
  });

  const seen = (ids: readonly number[], branch: readonly number[] | undefined, row: number) =>
    Buffer.from(ids.slice(0, row + 1).filter((_, i) => !branch?.[i] || branch[i] === branch[row])).toString();
});

describe('what is read of a solution', () => {
  const verdicts = verdictTokenizer({ template: '{problem}\n{steps}\n' }, byteTokenizer());
  const steps = ['ab', 'c', 'def'].map(
    (text, i) => ({ text, label: i === 1 ? null : 1, kind: 'normal' }) as const,
  );
  const { trunk } = verdicts.solution({ problem: 'p', steps }, { steps: 'all' });
  const solution = {
    ids: trunk.ids,
    ends: trunk.steps.map(({ end }) => end),
    labels: steps.map(({ label }) => label),
    outcome: 1 as const,
  };
  const item = (options: object) =>
    rewardItem(solution, 0, verdicts, {
      type: 'prm',
      input: 'whole',
      whole: true,
      maxLength: 100,
      ...options,
    });
  const read = ({ sequences, rows }: ReturnType<typeof item>) =>
    rows.map(({ sequence, row, what }) => {
      const { ids } = sequences[sequence]!;
      return [what, Buffer.from(ids.slice(0, row + 1)).toString()];
    });

  test('each row is the end of its step, in one pass as by prefixes', () => {
    const expected = [
      ['step', 'p\nab\n'],
      ['step', 'p\nab\nc\ndef\n'],
      ['outcome', 'p\nab\nc\ndef\n'],
    ];
    for (const input of ['whole', 'prefixes']) expect(read(item({ type: 'joint', input }))).toEqual(expected);
  });

  test('models of steps and of outcomes read the same tokens of finished solutions', () => {
    expect(item({ type: 'prm' }).tokens).toBe(item({ type: 'orm' }).tokens);
  });

  test('what exceeds the max length has no row: a later step, and the outcome', () => {
    expect(read(item({ type: 'joint', maxLength: 9 }))).toEqual([['step', 'p\nab\n']]);
  });
});

test.each([
  [
    { type: 'joint', train_on_last_step_only: true },
    /is true, and reward_model\.type joint learns the outcome at the last step; set reward_model\.type: prm/,
  ],
  [{ type: 'orm', solutions: 'all' }, /is all, and reward_model\.type orm learns outcomes/],
  [{ type: 'joint', head: 'classes' }, /is classes, and two outputs/],
])('refuses %j', async (reward, message) => {
  await expect(train(recipe(reward), { output: join(folder, 'never') })).rejects.toThrow(message);
});
