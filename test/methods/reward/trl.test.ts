// Reward models of steps beside TRL 1.13's PRMTrainer on the same rows (test/golden/trl_prm, make_trl_prm.py).
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { parse } from 'yaml';
import { loadModel } from '../../../src/api/model.js';
import { Tape } from '../../../src/autograd/tape.js';
import { parseRunConfig } from '../../../src/methods/config.js';
import type { RewardRunConfig } from '../../../src/methods/reward/config.js';
import { rewardData } from '../../../src/methods/reward/data.js';
import { rewardLoss } from '../../../src/methods/reward/stage.js';
import { train } from '../../../src/methods/run.js';
import { loadTrainableDecoder } from '../../../src/models/load.js';
import { configuredTokenizer } from '../../../src/run/tokenizer.js';
import { openScorer } from '../../../src/scoring/open.js';
import type { RewardItem } from '../../../src/scoring/reward-model/items.js';
import { rewardLogits, rewardNetwork } from '../../../src/scoring/reward-model/network.js';
import { openSafetensors } from '../../../src/weights/safetensors.js';
import { writeSafetensors } from '../../../src/weights/safetensors-writer.js';
import { goldenDirectory, tensorsIn } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';
import { maxDifference } from '../../ops/numbers.js';

interface Case {
  readonly step_separator?: string;
  readonly train_on_last_step_only?: boolean;
  readonly max_length?: number;
  readonly max_completion_length?: number;
  readonly rows: readonly {
    readonly input_ids: readonly number[];
    /** Position and label. */
    readonly labels: readonly (readonly [number, 0 | 1])[];
    /** Of wrong and right, at each label. */
    readonly logits: readonly (readonly [number, number])[];
  }[];
  readonly loss: number;
  readonly grad_norms: Readonly<Record<string, number>>;
}

interface Golden {
  readonly cases: readonly Case[];
  readonly training: {
    readonly steps: readonly {
      readonly loss: number;
      readonly grad_norm: number;
      readonly learning_rate: number;
    }[];
    readonly scores: readonly (readonly number[])[];
  };
}

const DIRECTORY = goldenDirectory('trl_prm');
const golden = JSON.parse(readFileSync(join(DIRECTORY, 'expected.json'), 'utf8')) as {
  readonly rows: readonly { readonly prompt: string; readonly completions: string[]; labels: boolean[] }[];
  /** Logits of `ours` at each label of the first case, by transformers. */
  readonly ours: readonly (readonly (readonly [number, number])[])[];
} & Readonly<Record<'qwen2' | 'llama', Golden>>;
const solutions = golden.rows.map(({ prompt, completions }) => ({ problem: prompt, steps: completions }));

const device = openTest();
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-trl-'));
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
  writeFileSync(join(folder, 'rows.jsonl'), golden.rows.map((row) => JSON.stringify(row)).join('\n'));
});
afterAll(() => {
  vi.unstubAllEnvs();
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const page = readFileSync(join(DIRECTORY, '../../../docs/how-to/from-trl.md'), 'utf8');

interface PageRecipe {
  readonly data: object;
  readonly prompt: object;
  readonly reward_model: object;
  readonly run: object;
}

/** The recipe of docs/how-to/from-trl.md on these rows, with the rate and the passes of make_trl_prm.py. */
function recipe(
  name: string,
  { step_separator, max_length = 256, max_completion_length, train_on_last_step_only }: Partial<Case> = {},
) {
  const rows = join(folder, 'rows.jsonl');
  const written = parse(/```yaml\n([^`]*)```/.exec(page)![1]!) as PageRecipe;
  const own = { step_separator, max_completion_length, train_on_last_step_only };
  const given = Object.fromEntries(Object.entries(own).filter(([, value]) => value !== undefined));
  const { step_separator: separator, ...learning } = given;
  return {
    ...written,
    model: { base: join(DIRECTORY, name), dtype: 'f32' },
    data: { train: rows, validation: rows, test: rows, max_length },
    prompt: { ...written.prompt, ...(separator === undefined ? {} : { step_separator: separator }) },
    reward_model: { ...written.reward_model, learning_rate: 3e-3, num_train_epochs: 6, ...learning },
    run: { device: 'cpu', threads: 1, logging_steps: 1 },
  };
}

describe('a base with a trained head', () => {
  const of = (reward_model: object, lora?: object, base = 'qwen2') => {
    const { model, prompt, ...rest } = recipe(base);
    const learning = { max_steps: 1, load_best_model_at_end: false, ...reward_model };
    const bare = { ...rest, reward_model: { ...rest.reward_model, ...learning }, ...(lora ? { lora } : {}) };
    return {
      ...bare,
      model: { ...model, base: join(base === 'qwen2' ? DIRECTORY : folder, base) },
      prompt,
    } as never;
  };

  it.each([[undefined], [{ r: 2 }]])(
    'of two classes is not replaced by a head of one number, lora %o',
    async (lora) => {
      const output = join(folder, `refused-${lora ? 'lora' : 'whole'}`);
      await expect(train(of({ head: 'scalar' }, lora), { output })).rejects.toThrow(
        /model\.base .*qwen2 is a classifier with 2 classes, and this run would train a head with one number in its place; set reward_model\.head: classes, which goes on from the head of the base$/,
      );
      expect(existsSync(output)).toBe(false);
    },
  );

  it('of two classes is gone on from by an adapter with classes', async () => {
    const { directory } = await train(of({ head: 'classes', learning_rate: 1e-9 }, { r: 2 }), {
      output: join(folder, 'classes-lora'),
    });
    const theirs = tensorsIn(join(DIRECTORY, 'qwen2/model.safetensors')).get('score.weight');
    const ours = tensorsIn(join(directory, 'adapter/adapter_model.safetensors'));
    const [, head] = [...ours].find(([name]) => name.endsWith('score.weight'))!;
    expect(maxDifference(head, theirs!)).toBeLessThan(1e-6);
  });

  it('of other classes gives way to a new one, with an adapter too', async () => {
    cpSync(join(DIRECTORY, 'qwen2'), join(folder, 'three'), { recursive: true });
    const file = join(folder, 'three/config.json');
    const config = JSON.parse(readFileSync(file, 'utf8'));
    const id2label = { 0: 'entailment', 1: 'unclear', 2: 'contradiction' };
    writeFileSync(file, JSON.stringify({ ...config, id2label }));
    const path = join(folder, 'three/model.safetensors');
    const stored = openSafetensors(path);
    const shapes = new Map([...stored.tensors].map(([name, { shape }]) => [name, shape]));
    stored.close();
    const sources = [...tensorsIn(path)].map(([name, values]) => {
      const isHead = name.startsWith('score.');
      const shape = isHead ? [3, ...shapes.get(name)!.slice(1)] : shapes.get(name)!;
      const size = shape.reduce((product, extent) => product * extent, 1);
      const data = isHead ? new Float32Array(size) : values;
      return {
        name,
        shape,
        dtype: 'F32' as const,
        data: () => new Uint8Array(data.buffer, data.byteOffset, 4 * size),
      };
    });
    await writeSafetensors(path, sources, { format: 'pt' });
    const { directory } = await train(of({ head: 'scalar' }, { r: 2 }, 'three'), {
      output: join(folder, 'new-head'),
    });
    expect(existsSync(join(directory, 'adapter'))).toBe(true);
  });
});

async function dataOf(name: string, of: Case) {
  const { config } = parseRunConfig(JSON.stringify(recipe(name, of)), { name: 'trl' });
  const reward = config as RewardRunConfig;
  const tokenizer = await configuredTokenizer(reward.model);
  const data = (await rewardData(reward, tokenizer, new AbortController().signal))!;
  onTestFinished(() => data.close());
  return { reward, data };
}

const learned = (items: Iterable<RewardItem>) =>
  Array.from(items, (item) => ({ ...item, rows: item.rows.filter(({ target }) => target !== undefined) }));

describe.each(['qwen2', 'llama'] as const)('on a %s', (name) => {
  it.each(golden[name].cases)(
    'has the ids, labels, logits, loss and gradients of TRL, case %#',
    async (of) => {
      const { reward, data } = await dataOf(name, of);
      const items = learned(data.items.train);
      const read = items.map(({ sequences, rows }) => ({
        ids: [...(sequences[0]?.ids ?? [])],
        labels: rows.map(({ row, target }) => [row, target]),
      }));
      // Nothing is computed beyond the last label.
      const expected = of.rows.map(({ input_ids, labels }) => ({
        ids: labels.length === 0 ? [] : input_ids.slice(0, labels.at(-1)![0] + 1),
        labels,
      }));
      expect(read).toEqual(expected);

      const { decoder, parameters } = loadTrainableDecoder(device, join(DIRECTORY, name), { dtype: 'f32' });
      const network = rewardNetwork({ decoder, role: {} }, reward.reward_model, data.tokenizer);
      const tape = new Tape(device);
      const rows = items.flatMap((item) => item.rows);
      const weights = rows.map(() => 1 / rows.length);
      const { logits, loss } = device.scope(() =>
        tape.run(() => {
          const logits = rewardLogits(network, items);
          return { logits, loss: rewardLoss(logits, rows, weights) };
        }),
      );
      tape.backward([[loss, 1]]);
      if (!('positive' in logits)) throw new Error('expected two classes');
      const [right, wrong] = await Promise.all([logits.positive.readFloats(), logits.negative.readFloats()]);
      const theirs = of.rows.flatMap((row) => row.logits);
      expect(
        maxDifference(
          [...wrong],
          theirs.map(([first]) => first),
        ),
      ).toBeLessThan(2e-5);
      expect(
        maxDifference(
          [...right],
          theirs.map(([, second]) => second),
        ),
      ).toBeLessThan(2e-5);
      expect(Math.abs((await loss.readFloats())[0]! - of.loss)).toBeLessThan(2e-6);
      const norms = await Promise.all(
        Object.keys(of.grad_norms).map(async (weight) => {
          return Math.hypot(...(await parameters.get(weight)!.grad!.readFloats()));
        }),
      );
      // Relative to the whole gradient: a bias of keys has none but rounding.
      const all = Math.hypot(...Object.values(of.grad_norms));
      expect(maxDifference(norms, Object.values(of.grad_norms)) / all).toBeLessThan(1e-5);
      if (of === golden[name].cases[0]) {
        for (const [weight, gradient] of tensorsIn(join(DIRECTORY, `${name}-gradients.safetensors`)))
          expect(
            maxDifference(await parameters.get(weight)!.grad!.readFloats(), gradient),
            weight,
          ).toBeLessThan(1e-5 * all);
      }
      for (const owned of [logits.positive, logits.negative, loss, tape, parameters, decoder])
        owned.dispose();
    },
  );

  it('trains as TRL does, step by step, and scores as the model of TRL', async () => {
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    const { directory } = await train(recipe(name) as never, { output: join(folder, name) });
    said.mockRestore();
    const steps = readFileSync(join(directory, 'metrics.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { phase: string; loss?: number; grad_norm: number })
      .filter(({ phase, loss }) => phase === 'reward' && loss !== undefined);
    const { training } = golden[name];
    const of = (key: 'loss' | 'grad_norm') =>
      maxDifference(
        steps.map((step) => step[key]!),
        training.steps.map((step) => step[key]),
      );
    expect(steps).toHaveLength(training.steps.length);
    expect(of('loss')).toBeLessThan(1e-5);
    expect(of('grad_norm')).toBeLessThan(1e-4);
    const scorer = await openScorer(device, directory, { dtype: 'f32' });
    const scores = (await scorer.score(solutions))!.flatMap(({ scores }) => scores as number[]);
    scorer.dispose();
    expect(maxDifference(scores, training.scores.flat())).toBeLessThan(1e-5);
  });
});

it('saves what transformers reads as a classifier of tokens, with the same logits', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const { directory } = await train(recipe('qwen2') as never, { output: join(folder, 'ours') });
  said.mockRestore();
  const saved = join(directory, 'model');
  const json = (of: string) => JSON.parse(readFileSync(join(of, 'config.json'), 'utf8'));
  // What transformers has read.
  expect(json(saved)).toEqual(json(join(DIRECTORY, 'ours')));
  const weights = tensorsIn(join(saved, 'model.safetensors'));
  const read = tensorsIn(join(DIRECTORY, 'ours', 'model.safetensors'));
  expect([...weights.keys()].sort()).toEqual([...read.keys()].sort());
  for (const [name, values] of read)
    expect(maxDifference(weights.get(name)!, values), name).toBeLessThan(1e-4);

  const model = await loadModel(device, join(DIRECTORY, 'ours'), { dtype: 'f32' });
  const { rows } = golden.qwen2.cases[0]!;
  const found = await model.classify(rows.map(({ input_ids }) => input_ids));
  model.dispose();
  const logits = found.flatMap(({ logits }, i) => rows[i]!.labels.flatMap(([at]) => [...logits[at]!]));
  expect(maxDifference(logits, golden.ours.flat(2))).toBeLessThan(2e-5);
});

describe('a model that TRL trained', () => {
  /** Its files, with a card where one is given. */
  function trained(judge?: object) {
    const directory = mkdtempSync(join(folder, 'trained-'));
    cpSync(join(DIRECTORY, 'qwen2-trained'), directory, { recursive: true });
    if (judge) writeFileSync(join(directory, 'steptrain.json'), JSON.stringify({ method: 'trl', judge }));
    return directory;
  }

  const card = { kind: 'published', layout: 'trl', max_length: 256, threshold: 'greedy' };

  async function scoresOf(directory: string) {
    const scorer = await openScorer(device, directory, { dtype: 'f32' });
    const found = (await scorer.score(solutions))!.map(({ scores }) => scores as number[]);
    scorer.dispose();
    return found;
  }

  it('has the scores that it has in TRL where its card says so', async () => {
    const found = await scoresOf(trained(card));
    expect(maxDifference(found.flat(), golden.qwen2.training.scores.flat())).toBeLessThan(1e-5);
    const other = await scoresOf(trained({ ...card, step_separator: '\n\n' }));
    expect(maxDifference(other.flat(), found.flat())).toBeGreaterThan(1e-3);
  });

  it('is proposed that card where it has none', async () => {
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    const directory = trained();
    await scoresOf(directory);
    const lines = said.mock.calls.flat().join('\n');
    said.mockRestore();
    expect(lines).toContain("if TRL's PRMTrainer trained it, write {");
    const proposed = JSON.parse(/write (\{.*\}) into/.exec(lines)![1]!);
    writeFileSync(join(directory, 'steptrain.json'), JSON.stringify(proposed));
    const found = await scoresOf(directory);
    expect(maxDifference(found.flat(), golden.qwen2.training.scores.flat())).toBeLessThan(1e-5);
  });
});
