// DeBERTa against transformers and PEFT in float64: logits of both heads, losses, gradients, optimizer steps.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { parseModelConfig } from '../../src/architectures/table.js';
import type { TrainableParameters } from '../../src/autograd/parameters.js';
import { Tape } from '../../src/autograd/tape.js';
import { loadAdapter, withHead } from '../../src/models/adapter.js';
import { createAdapterOn } from '../../src/models/adapter-on-base.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder, Role } from '../../src/models/decoder.js';
import { headOutputs, headRows, roleHead } from '../../src/models/heads.js';
import { loadDecoder, loadTrainableDecoder } from '../../src/models/load.js';
import { saveDecoder } from '../../src/models/save.js';
import { crossEntropy } from '../../src/objectives/likelihood.js';
import type { Device } from '../../src/runtime/device.js';
import { AdamW } from '../../src/train/adamw.js';
import { parseAdapterConfig } from '../../src/weights/adapter-config.js';
import { isas, openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { changedModel } from './changed-model.js';
import { expectedOf, expectedTensors, goldenDirectory, tensorsIn } from './golden.js';

interface Labelled {
  readonly sequences: readonly (readonly number[])[];
  readonly labels: readonly (number | readonly number[])[];
  readonly loss_mean_over_sequences: number;
  readonly lora_loss: number;
  readonly adamw: {
    readonly lr: number;
    readonly weight_decay: number;
    readonly clip: number;
    readonly steps: readonly { readonly loss: number; readonly grad_norm: number }[];
  };
  readonly naive_bf16: { readonly logits_max_abs_error: number };
}

/** The mean over sequences of their mean cross-entropy, with gradients added into the parameters. */
async function backward(
  decoder: Decoder,
  role: Role,
  { sequences, labels }: Pick<Labelled, 'sequences' | 'labels'>,
): Promise<number> {
  const { device } = decoder;
  const tape = new Tape(device);
  const batch = raggedBatch(
    device,
    sequences.map((ids) => ({ ids })),
    decoder.config,
  );
  const flat = labels.flat();
  const weights = labels.flatMap((of) =>
    [of].flat().map((_, __, { length }) => 1 / (length * sequences.length)),
  );
  const loss = device.scope(() =>
    tape.run(() => {
      const hidden = decoder.forward(batch, role);
      const head = roleHead(decoder, role)!;
      const logits = headOutputs(hidden, head, headRows(device, batch, head));
      const { loss } = crossEntropy(
        logits,
        device.tensor(Int32Array.from(flat)),
        device.tensor(Float32Array.from(weights)),
      );
      return loss;
    }),
  );
  tape.backward([[loss, 1]]);
  const value = (await loss.readFloats())[0] as number;
  for (const owned of [tape, batch, loss]) owned.dispose();
  return value;
}

/** The rule of the golden files' README. */
function expectGradients(
  found: ReadonlyMap<string, Float32Array>,
  tensors: ReadonlyMap<string, Float32Array>,
  prefix: string,
): void {
  const wanted = [...tensors].filter(([name]) => name.startsWith(prefix));
  expect(wanted.length).toBe(found.size);
  const overall = Math.max(...wanted.map(([, values]) => largest(values)));
  for (const [name, values] of wanted) {
    const difference = maxDifference(found.get(name.slice(prefix.length))!, values);
    expect(difference, name).toBeLessThanOrEqual(1e-3 * largest(values) + 1e-7 * overall);
  }
}

async function gradientsOf(parameters: TrainableParameters): Promise<Map<string, Float32Array>> {
  const gradients = new Map<string, Float32Array>();
  for (const { name, grad } of parameters.list) gradients.set(name, await grad!.readFloats());
  return gradients;
}

const largest = (values: Float32Array) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

describe.each(isas)('%s', (isa) => {
  let device: Device;
  beforeAll(() => {
    device = openTest(isa);
  });
  afterAll(() => device.dispose());

  describe.each(['deberta-token', 'deberta-sequence'])('%s', (name) => {
    const golden = expectedOf(name) as unknown as Labelled;
    const tensors = expectedTensors(name);
    const lora = tensorsIn(`${goldenDirectory(name)}/lora.safetensors`);
    const directory = goldenDirectory(name);

    test('logits', async () => {
      const model = await loadModel(device, directory, { dtype: 'f32' });
      const results = await model.classify(golden.sequences);
      results.forEach(({ logits }, i) => {
        const flat = logits.flatMap((row) => [...row]);
        expect(maxDifference(flat, tensors.get(`logits.${i}`)!)).toBeLessThan(2e-6);
      });
      model.dispose();
    });

    test.each([false, true])(
      'loss and gradients, gradient checkpointing %s',
      async (gradientCheckpointing) => {
        const { decoder, parameters } = loadTrainableDecoder(device, directory, {
          dtype: 'f32',
          gradientCheckpointing,
        });
        const loss = await backward(decoder, {}, golden);
        expect(Math.abs(loss - golden.loss_mean_over_sequences)).toBeLessThan(1e-6);
        expectGradients(await gradientsOf(parameters), tensors, 'grad.');
        decoder.dispose();
        parameters.dispose();
      },
    );

    test('five steps of full training with clipping and decay', async () => {
      const { lr, weight_decay: weightDecay, clip: maxGradNorm, steps } = golden.adamw;
      const { decoder, parameters } = loadTrainableDecoder(device, directory, { dtype: 'f32' });
      const optimizer = new AdamW(parameters, {
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weightDecay,
        maxGradNorm,
      });
      for (const step of steps) {
        parameters.zeroGrads();
        const loss = await backward(decoder, {}, golden);
        const { gradNorm } = await optimizer.step(lr);
        expect(Math.abs(loss - step.loss)).toBeLessThan(1e-5);
        expect(Math.abs(gradNorm - step.grad_norm)).toBeLessThan(1e-4);
      }
      for (const owned of [optimizer, decoder, parameters]) owned.dispose();
    });

    test('an adapter of PEFT: logits, loss and gradients', async () => {
      const model = await loadModel(device, directory, { dtype: 'f32', adapter: `${directory}/adapter` });
      const results = await model.classify(golden.sequences);
      results.forEach(({ logits }, i) => {
        const flat = logits.flatMap((row) => [...row]);
        expect(maxDifference(flat, lora.get(`lora.logits.${i}`)!)).toBeLessThan(2e-6);
      });
      model.dispose();
      const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
      const adapter = loadAdapter(device, decoder.config, `${directory}/adapter`, { trainable: true });
      const loss = await backward(decoder, { adapter }, golden);
      expect(Math.abs(loss - golden.lora_loss)).toBeLessThan(1e-6);
      expectGradients(await gradientsOf(adapter.trainable!), lora, 'lora.grad.');
      for (const owned of [adapter, decoder]) owned.dispose();
    });

    test('bf16 logits are within twice the error of a naive bf16 run', async () => {
      const model = await loadModel(device, directory, { dtype: 'bf16' });
      const results = await model.classify(golden.sequences);
      results.forEach(({ logits }, i) => {
        const flat = logits.flatMap((row) => [...row]);
        const bound = 2 * golden.naive_bf16.logits_max_abs_error;
        expect(maxDifference(flat, tensors.get(`logits.${i}`)!)).toBeLessThan(bound);
      });
      model.dispose();
    });

    test('is saved as it was loaded', async () => {
      const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
      const copy = join(temporaryDirectory(), 'copy');
      await saveDecoder(decoder, copy);
      const stored = (at: string) => readFileSync(join(at, 'config.json'), 'utf8');
      expect(parseModelConfig(JSON.parse(stored(copy)), 'copy')).toMatchObject({
        head: { kind: decoder.config.head.kind, numLabels: 2 },
        positionBuckets: 8,
        maxRelativePositions: 64,
      });
      const [expected, found] = [
        tensorsIn(`${directory}/model.safetensors`),
        tensorsIn(`${copy}/model.safetensors`),
      ];
      expect([...found.keys()].sort()).toEqual([...expected.keys()].sort());
      for (const [weight, values] of expected) expect(found.get(weight)).toEqual(values);
      decoder.dispose();
    });

    test('a sequence has the same bits alone and in a batch', async () => {
      const model = await loadModel(device, directory, { dtype: 'f32' });
      const together = await model.classify(golden.sequences);
      for (const [i, ids] of golden.sequences.entries())
        expect((await model.classify([ids]))[0]!.logits).toEqual(together[i]!.logits);
      model.dispose();
    });
  });

  test('branches are refused: every token sees all others', async () => {
    const decoder = await loadDecoder(device, goldenDirectory('deberta-token'), { dtype: 'f32' });
    const batch = raggedBatch(device, [{ ids: [1, 2, 3], branch: [0, 1, 2] }], decoder.config);
    expect(() => decoder.forward(batch)).toThrow(/give each prefix as a sequence of its own/);
    batch.dispose();
    decoder.dispose();
  });

  test('a checkpoint of pre-training is a trunk, to which an adapter brings a head with its pooler', async () => {
    const sequence = expectedTensors('deberta-sequence');
    const trunk = await changedModel('deberta-sequence', {
      config: ({ architectures: _, ...config }) => config,
      remove: ['classifier.weight', 'classifier.bias', 'pooler.dense.weight', 'pooler.dense.bias'],
      add: { 'lm_predictions.lm_head.bias': { shape: [2], values: [1, 2] } },
    });
    const decoder = await loadDecoder(device, trunk, { dtype: 'f32' });
    expect(roleHead(decoder, {})).toBeUndefined();
    expect(() => decoder.head()).toThrow(/a DebertaV2Model has no language-model head/);
    const config = {
      ...{ peft_type: 'LORA', task_type: 'SEQ_CLS', r: 2, lora_alpha: 4 },
      ...{ target_modules: ['query_proj', 'dense'], modules_to_save: ['classifier', 'pooler'] },
    };
    const model = withHead(decoder.config, { kind: 'sequence', numLabels: 3, bias: true });
    const options = { seed: 4, model };
    const adapter = await createAdapterOn(decoder, parseAdapterConfig(config, 'test'), options);
    const saved = adapter.trainable!.list.map(({ name }) => name).filter((name) => !name.includes('lora_'));
    expect(saved).toEqual(
      ['pooler.dense.weight', 'pooler.dense.bias', 'classifier.weight', 'classifier.bias'].map(
        (name) => `base_model.model.${name}`,
      ),
    );
    const { sequences } = expectedOf('deberta-sequence');
    await backward(decoder, { adapter }, { sequences, labels: [0, 1, 2] });
    for (const [name, values] of await gradientsOf(adapter.trainable!))
      if (!name.includes('lora_A')) expect(largest(values), name).toBeGreaterThan(0);
    const folder = join(temporaryDirectory(), 'adapter');
    await adapter.save(folder);
    const classifier = await loadModel(device, trunk, { dtype: 'f32', adapter: folder });
    const [first] = await classifier.classify(sequences);
    expect(first!.logits[0]).toHaveLength(3);
    expect(first!.logits[0]).not.toEqual(sequence.get('logits.0'));
    for (const owned of [classifier, adapter, decoder]) owned.dispose();
  });
});

describe('config.json', () => {
  const golden = JSON.parse(readFileSync(join(goldenDirectory('deberta-token'), 'config.json'), 'utf8'));
  test.each([
    [{ relative_attention: false }, /relative_attention: expected true/],
    [{ share_att_key: false }, /share_att_key: expected true .*projections of their own/],
    [{ position_biased_input: true }, /position_biased_input: expected false/],
    [{ position_biased_input: null }, /position_biased_input: expected false/],
    [{ pos_att_type: 'c2p' }, /pos_att_type: expected p2c and c2p together, found "c2p"/],
    [{ norm_rel_ebd: 'none' }, /norm_rel_ebd: expected 'layer_norm'/],
    [{ position_buckets: -1 }, /position_buckets: expected an integer from 4/],
    [{ position_buckets: 60 }, /position_buckets: expected few enough/],
    [{ conv_kernel_size: 3 }, /conv_kernel_size: expected 0 \(the convolution/],
    [{ type_vocab_size: 2 }, /type_vocab_size: expected 0/],
    [{ hidden_act: 'relu' }, /hidden_act: expected 'gelu'/],
    [{ embedding_size: 32 }, /embedding_size: expected hidden_size \(64\)/],
    [{ num_attention_heads: 5 }, /hidden_size: expected a multiple of num_attention_heads/],
    [{ talking_head: true }, /expected only known keys, found.*talking_head/],
  ])('%j is refused', (change, message) => {
    expect(() => parseModelConfig({ ...golden, ...change }, 'config.json')).toThrow(message);
  });

  test('is taken as the v3 checkpoints have it', () => {
    const { architectures: _, ...trunk } = golden;
    const json = {
      ...trunk,
      pos_att_type: 'p2c|c2p',
      hidden_dropout_prob: 0.1,
      attention_probs_dropout_prob: 0.1,
    };
    expect(parseModelConfig(json, 'config.json').head).toEqual({ kind: 'none' });
  });
});
