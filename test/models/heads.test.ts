// Heads and roles on one frozen base, against transformers and PEFT in float64.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { Tape } from '../../src/autograd/tape.js';
import { createAdapter, loadAdapter } from '../../src/models/adapter.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder, Role } from '../../src/models/decoder.js';
import {
  createHead,
  headOutputs,
  headRows,
  loadHead,
  roleHead,
  scalarOutputs,
} from '../../src/models/heads.js';
import { loadDecoder, loadTrainableDecoder } from '../../src/models/load.js';
import { crossEntropy } from '../../src/objectives/likelihood.js';
import { headLogprobs } from '../../src/ops/head.js';
import { AdamW } from '../../src/train/adamw.js';
import { parseAdapterConfig } from '../../src/weights/adapter-config.js';
import { openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { sum } from '../ops/objective-cases.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { changedModel } from './changed-model.js';
import { expectedOf, expectedTensors, goldenDirectory } from './golden.js';

interface GoldenHead {
  readonly num_labels: number;
  readonly weight: number[];
  readonly bias: number[] | null;
  /** One label per sequence, or one per token. */
  readonly labels: readonly (number | number[])[];
  readonly logits: number[][];
  readonly loss: number;
  readonly grad_weight: number[];
  readonly grad_bias: number[] | null;
  readonly adapter_logits: number[][];
}

const HIDDEN = 64;
const golden = JSON.parse(readFileSync(join(goldenDirectory('heads'), 'expected.json'), 'utf8')) as Record<
  'sequence' | 'token',
  GoldenHead
>;
const { sequences } = expectedOf('qwen2');
const device = openTest();
afterAll(() => device.dispose());

/** The golden base with the golden `score`, in the form in which transformers stores such models. */
function classifier(kind: 'sequence' | 'token'): Promise<string> {
  const { num_labels, weight, bias } = golden[kind];
  const name = kind === 'sequence' ? 'Sequence' : 'Token';
  return changedModel('qwen2', {
    config: (config) => ({
      ...config,
      architectures: [`Qwen2For${name}Classification`],
      id2label: Object.fromEntries(Array.from({ length: num_labels }, (_, i) => [i, `LABEL_${i}`])),
    }),
    add: {
      'score.weight': { shape: [num_labels, HIDDEN], values: weight },
      ...(bias ? { 'score.bias': { shape: [num_labels], values: bias } } : {}),
    },
  });
}

const flat = (rows: readonly Float32Array[]) => rows.flatMap((row) => [...row]);

// Rewards of transformers 5.24, in float64.
test.each([
  [2, [-0.72995600267, -0.72995600267, -0.55041791798, -0.10813256519, -0.50205261611]],
  [null, [-1.1242146338, -0.72995600267, -0.77716449466, -0.10813256519, -0.50205261611]],
])('reads the last id that is not the pad, %s, as transformers does', async (pad, rewards) => {
  const ofPad = (config: Record<string, unknown>) => ({ ...config, eos_token_id: 2, pad_token_id: pad });
  const model = await loadModel(device, await changedModel('reward/outcome', { config: ofPad }), {
    dtype: 'f32',
  });
  const found = await model.classify([[5, 9, 33, 2], [5, 9, 33], [5, 2, 9, 2, 2], [2, 2], [7]]);
  expect(
    maxDifference(
      found.flatMap(({ logits }) => [...logits[0]!]),
      rewards,
    ),
  ).toBeLessThan(1e-5);
  model.dispose();
});

describe.each(['sequence', 'token'] as const)('a %s classifier', (kind) => {
  const expected = golden[kind];

  test('gives the golden logits, and probabilities that sum to 1', async () => {
    const model = await loadModel(device, await classifier(kind), { dtype: 'f32' });
    const found = await model.classify(sequences);
    found.forEach(({ logits, logprobs }, i) => {
      expect(logits).toHaveLength(kind === 'sequence' ? 1 : sequences[i]!.length);
      expect(maxDifference(flat(logits), expected.logits[i]!)).toBeLessThan(1e-4);
      for (const row of logprobs) expect(sum([...row].map(Math.exp))).toBeCloseTo(1, 5);
    });
    for (const [i, ids] of sequences.entries()) expect(await model.classify([ids])).toEqual([found[i]]);
    await expect(model.score(sequences)).rejects.toThrow(
      /^a Qwen2For(Sequence|Token)Classification has no language-model head; expected a model for causal/,
    );
    model.dispose();
  });

  test('loads the adapter and score that PEFT trained on the causal base', async () => {
    const adapter = join(goldenDirectory('heads'), `${kind}-adapter`);
    const model = await loadModel(device, goldenDirectory('qwen2'), { dtype: 'f32', adapter });
    const found = await model.classify(sequences);
    found.forEach(({ logits }, i) => {
      expect(maxDifference(flat(logits), expected.adapter_logits[i]!)).toBeLessThan(1e-4);
    });
    model.dispose();
  });

  test('has the golden loss and gradients of the score', async () => {
    const { decoder, parameters } = loadTrainableDecoder(device, await classifier(kind), { dtype: 'f32' });
    const tape = new Tape(device);
    const labels = Int32Array.from(expected.labels.flat());
    const batch = raggedBatch(
      device,
      sequences.map((ids) => ({ ids })),
      decoder.config,
    );
    const { loss, statistics } = device.scope(() =>
      tape.run(() => {
        const head = roleHead(decoder, {})!;
        const rows = headRows(device, batch, head);
        const logits = headOutputs(decoder.forward(batch), head, rows);
        const weights = device.tensor(new Float32Array(labels.length).fill(1 / labels.length));
        return crossEntropy(logits, device.tensor(labels), weights);
      }),
    );
    tape.backward([[loss, 1]]);
    expect((await loss.readFloats())[0]).toBeCloseTo(expected.loss, 4);
    const gradient = async (name: string) => [...(await parameters.get(name)!.grad!.readFloats())];
    expect(maxDifference(await gradient('score.weight'), expected.grad_weight)).toBeLessThan(1e-4);
    if (expected.grad_bias) {
      expect(maxDifference(await gradient('score.bias'), expected.grad_bias)).toBeLessThan(1e-4);
    }
    expect((await gradient('model.layers.0.mlp.up_proj.weight')).some((g) => g !== 0)).toBe(true);
    for (const owned of [loss, statistics.values, batch, tape, parameters, decoder]) owned.dispose();
  });

  test('is close to f32 in bf16, with the score in f32', async () => {
    const model = await loadModel(device, await classifier(kind), { dtype: 'bf16' });
    expect(model.decoder.weight('score.weight').value.dtype).toBe('f32');
    const found = await model.classify(sequences);
    const largest = Math.max(...expected.logits.flat().map(Math.abs));
    found.forEach(({ logits }, i) => {
      expect(maxDifference(flat(logits), expected.logits[i]!)).toBeLessThan(0.05 * largest);
    });
    model.dispose();
  });
});

test('a causal model has no classes', async () => {
  const model = await loadModel(device, goldenDirectory('qwen2'), { dtype: 'f32' });
  await expect(model.classify(sequences)).rejects.toThrow(
    'classify: a Qwen2ForCausalLM has no score head; give a classification model, or an adapter that brings one',
  );
  model.dispose();
});

describe('a scalar head', () => {
  test('returns f32 values of chosen rows, with gradients into trunk and head', async () => {
    const decoder = await loadDecoder(device, goldenDirectory('llama3'), { dtype: 'f32' });
    const adapter = loadAdapter(device, decoder.config, join(goldenDirectory('llama3'), 'adapter'), {
      trainable: true,
    });
    const head = createHead(device, { hiddenSize: HIDDEN, seed: 3, deviation: 0.5 });
    const ids = expectedOf('llama3').sequences[0]!;
    const batch = raggedBatch(device, [{ ids }], decoder.config);
    const rows = Int32Array.of(ids.length - 1, 2);
    const weights = [1, -2];

    const tape = new Tape(device);
    const { hidden, values } = device.scope(() =>
      tape.run(() => {
        const hidden = decoder.forward(batch, { adapter, head });
        return { hidden, values: scalarOutputs(hidden, head, device.tensor(rows)) };
      }),
    );
    const seed = device.tensor(Float32Array.from(weights));
    tape.backward([[values, seed]]);

    const h = await hidden.readFloats();
    const w = await head.weight.value.readFloats();
    const row = (at: number) => [...h.slice(at * HIDDEN, (at + 1) * HIDDEN)];
    const expected = [...rows].map((at) => sum(row(at).map((x, k) => x * w[k]!)));
    expect(values.shape).toEqual([2]);
    expect(maxDifference(await values.readFloats(), expected)).toBeLessThan(1e-4);
    const dw = row(rows[0]!).map((x, k) => x * weights[0]! + row(rows[1]!)[k]! * weights[1]!);
    expect(maxDifference(await head.weight.grad!.readFloats(), dw)).toBeLessThan(1e-4);
    expect(await head.bias!.grad!.readFloats()).toEqual(Float32Array.of(-1));
    const grads = await adapter.trainable!.grads.readFloats();
    expect(grads.some((g) => g !== 0)).toBe(true);

    // The adapter's gradient against a difference of the whole forward, along one entry of B.
    const b = adapter.trainable!.list.find(
      ({ name }) => name.includes('layers.0') && name.includes('lora_B'),
    )!;
    const before = await b.value.readFloats();
    const objective = async (by: number) => {
      b.value.write(before.map((x, i) => (i === 5 ? x + by : x)));
      const out = device.scope(() =>
        scalarOutputs(decoder.forward(batch, { adapter }), head, device.tensor(rows)),
      );
      const found = await out.readFloats();
      out.dispose();
      return sum([...found].map((value, i) => value * weights[i]!));
    };
    const slope = ((await objective(0.02)) - (await objective(-0.02))) / 0.04;
    const found = (await b.grad!.readFloats())[5]!;
    expect(Math.abs(found - slope)).toBeLessThan(1e-2 * Math.max(1, Math.abs(slope)));
    for (const owned of [values, hidden, seed, batch, tape, head, adapter, decoder]) owned.dispose();
  });

  test('casts bf16 rows to f32 before the product', async () => {
    const decoder = await loadDecoder(device, goldenDirectory('llama3'), { dtype: 'bf16' });
    const head = createHead(device, { hiddenSize: HIDDEN, seed: 3 });
    const batch = raggedBatch(device, [{ ids: [5, 6, 7] }], decoder.config);
    const { hidden, values } = device.scope(() => {
      const hidden = decoder.forward(batch, { head });
      return { hidden, values: scalarOutputs(hidden, head) };
    });
    expect([hidden.dtype, values.dtype]).toEqual(['bf16', 'f32']);
    const [h, w] = [await hidden.readFloats(), await head.weight.value.readFloats()];
    const expected = [0, 1, 2].map((t) => sum([...w].map((x, k) => x * h[t * HIDDEN + k]!)));
    expect(maxDifference(await values.readFloats(), expected)).toBeLessThan(1e-6);
    for (const owned of [hidden, values, batch, head, decoder]) owned.dispose();
  });

  test('is read back bit by bit from its file, which another model refuses', async () => {
    const path = join(temporaryDirectory(), 'value_head.safetensors');
    const head = createHead(device, { hiddenSize: HIDDEN, seed: 11 });
    expect((await head.weight.value.readFloats()).every((x) => x !== 0 && Math.abs(x) < 0.2)).toBe(true);
    await head.save(path);
    const again = loadHead(device, path, { hiddenSize: HIDDEN });
    expect(await again.parameters.values.readBytes()).toEqual(await head.parameters.values.readBytes());
    expect(() => loadHead(device, path, { hiddenSize: 32 })).toThrow(
      /value_head\.safetensors: tensor 'score\.weight': expected F32 \[1, 32\], found F32 \[1, 64\]; it belongs to another model$/,
    );
    head.dispose();
    again.dispose();
  });
});

describe('several roles on one frozen base', () => {
  const ids = sequences[0]!;
  const targets = Int32Array.from([...ids.slice(1), 0]);

  /** Log-probs of the language-model head, or the outputs of the role's own. */
  async function outputsOf(decoder: Decoder, role: Role): Promise<Float32Array> {
    const batch = raggedBatch(device, [{ ids }], decoder.config);
    const out = device.scope(() => {
      const hidden = decoder.forward(batch, role);
      const head = roleHead(decoder, role);
      return head
        ? headOutputs(hidden, head)
        : headLogprobs(hidden, decoder.head(role), device.tensor(targets)).logprobs;
    });
    const values = await out.readFloats();
    out.dispose();
    batch.dispose();
    return values;
  }

  test('share its weights, do not change each other, and leave the reference equal to the base', async () => {
    const directory = goldenDirectory('qwen2');
    const empty = device.stats().liveBytes;
    const plain = await loadDecoder(device, directory, { dtype: 'f32' });
    const expected = await outputsOf(plain, {});
    await device.synchronize();
    const baseBytes = device.stats().liveBytes - empty;
    plain.dispose();
    await device.synchronize();
    expect(device.stats().liveBytes).toBe(empty);

    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const config = parseAdapterConfig({ peft_type: 'LORA', r: 4, target_modules: 'all-linear' }, 'lora');
    const create = (seed: number) => createAdapter(device, decoder.config, config, { seed });
    const policy: Role = {
      adapter: loadAdapter(device, decoder.config, join(directory, 'adapter'), { trainable: true }),
    };
    const value: Role = { adapter: create(2), head: createHead(device, { hiddenSize: HIDDEN, seed: 1 }) };
    const judge: Role = {
      adapter: loadAdapter(device, decoder.config, join(goldenDirectory('heads'), 'sequence-adapter')),
    };
    const onTrunk: Role = { ...policy, head: createHead(device, { hiddenSize: HIDDEN, seed: 4 }) };
    const roles = { policy, value, judge, onTrunk };

    const first = new Map<string, Float32Array>();
    for (const [name, role] of Object.entries(roles)) first.set(name, await outputsOf(decoder, role));
    await device.synchronize();
    const roleBytes = Object.values(roles).reduce((total, { adapter, head }) => {
      const trained = adapter?.trainable?.size ?? 0;
      const own = head && 'parameters' in head ? (head as ReturnType<typeof createHead>).parameters.size : 0;
      return total + 8 * (trained + own);
    }, 0);
    // One base, the trainable values with their gradients, and little else; a second base would double the bytes.
    expect(device.stats().liveBytes - empty).toBeLessThan(baseBytes + roleBytes + 0.2 * baseBytes);

    expect(await outputsOf(decoder, {})).toEqual(expected);
    expect(maxDifference(expected.slice(0, -1), expectedTensors('qwen2').get('logprobs.0')!)).toBeLessThan(
      1e-4,
    );
    const adapted = expectedTensors('qwen2').get('lora.logprobs.0')!;
    expect(maxDifference(first.get('policy')!.slice(0, -1), adapted)).toBeLessThan(1e-4);

    // Training one role changes no other.
    const optimizer = new AdamW(policy.adapter!.trainable!, {
      beta1: 0.9,
      beta2: 0.999,
      epsilon: 1e-8,
      weightDecay: 0,
      maxGradNorm: 0,
    });
    policy.adapter!.trainable!.grads.write(new Float32Array(policy.adapter!.trainable!.size).fill(1));
    await optimizer.step(0.05);
    for (const [name, role] of Object.entries({ value, judge })) {
      expect(await outputsOf(decoder, role), name).toEqual(first.get(name));
    }
    expect(await outputsOf(decoder, {})).toEqual(expected);
    for (const [name, role] of Object.entries({ policy, onTrunk })) {
      expect(maxDifference(await outputsOf(decoder, role), first.get(name)!), name).toBeGreaterThan(1e-3);
    }

    optimizer.dispose();
    for (const { adapter, head } of [onTrunk, value, judge]) {
      adapter?.dispose();
      if (head && 'dispose' in head) (head as ReturnType<typeof createHead>).dispose();
    }
    decoder.dispose();
    await device.synchronize();
    expect(device.stats().liveBytes).toBe(empty);
  });

  test('have different dropout masks', async () => {
    const decoder = await loadDecoder(device, goldenDirectory('qwen2'), { dtype: 'f32' });
    const directory = join(goldenDirectory('qwen2'), 'adapter');
    const adapter = loadAdapter(device, decoder.config, directory);
    const keys = [
      { seed: 1, step: 1 },
      { seed: 2, step: 1 },
      { seed: 1, step: 2 },
      { seed: 1, step: 1, role: 1 },
    ].map((source) => adapter.dropoutKey('model.layers.0.mlp.up_proj', source).join());
    expect(new Set(keys).size).toBe(4);
    adapter.dispose();
    decoder.dispose();
  });
});
