// The loss that balances experts, against transformers in float64: its value and gradients, and its share in a batch of micro-batches.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Tape } from '../../src/autograd/tape.js';
import { train } from '../../src/methods/run.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder } from '../../src/models/decoder.js';
import { loadTrainableDecoder } from '../../src/models/load.js';
import { nll } from '../../src/objectives/nll.js';
import type { Device } from '../../src/runtime/device.js';
import { type ForwardSequence, scoreRows } from '../../src/sequences/forward.js';
import { accumulate, balanceOf } from '../../src/train/accumulate.js';
import { divideBatches } from '../../src/train/sums/data-parallel.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { tensorsIn } from '../models/golden.js';
import { isas, openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const VARIANTS = ['qwen3-moe', 'qwen3-moe-dense-layers'];
const pathOf = (name: string) => goldenPath(`variants/${name}`);

function idsOf(name: string): number[] {
  const file = openSafetensors(join(pathOf(name), 'expected.safetensors'));
  const bytes = file.read('ids');
  file.close();
  return [...new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)];
}

interface Loading {
  readonly routerAuxLossCoef?: number;
  readonly gradientCheckpointing?: boolean;
}
interface Alone extends Loading {
  readonly ids?: readonly number[] | undefined;
}
const load = (device: Device, name: string, options: Loading = {}) =>
  loadTrainableDecoder(device, pathOf(name), { dtype: 'f32', routerAuxLossCoef: 0.1, ...options });

/** The losses that a forward makes of its own, their gradient alone, and bytes that are left. */
async function balanceAlone(device: Device, name: string, { ids = idsOf(name), ...options }: Alone = {}) {
  const { decoder, parameters } = load(device, name, options);
  decoder.prepare(23);
  await device.synchronize();
  const before = device.stats().liveBytes;
  const batch = raggedBatch(device, [{ ids }], decoder.config);
  const tape = new Tape(device);
  const hidden = device.scope(() => tape.run(() => decoder.forward(batch)));
  const [made, ...others] = tape.auxiliary;
  expect(others).toEqual([]);
  const nothing = device.zeros(hidden.shape);
  tape.backward([[hidden, nothing], ...(made ? [[made.loss, 1] as const] : [])]);
  const loss = made && (await made.loss.readFloats())[0];
  const all = await parameters.grads.readFloats();
  const gradients = new Map<string, Float32Array>();
  for (const { name, grad } of parameters.list) gradients.set(name, await grad!.readFloats());
  for (const owned of [hidden, nothing, batch, tape, ...(made ? [made.loss] : [])]) owned.dispose();
  await device.synchronize();
  const left = device.stats().liveBytes - before;
  for (const owned of [parameters, decoder]) owned.dispose();
  return { made, loss, all, gradients, left };
}

describe.each(isas)('%s', (isa) => {
  const device = openTest(isa);
  afterAll(() => device.dispose());

  it.each(VARIANTS)('of %s it has the value and gradients of transformers', async (name) => {
    const expected = tensorsIn(join(pathOf(name), 'balance.safetensors'));
    const { made, loss, gradients } = await balanceAlone(device, name);
    expect(made).toMatchObject({ coefficient: 0.1, tokens: 23 });
    expect(Math.abs(loss! - expected.get('aux_loss')![0]!)).toBeLessThan(1e-5);
    const names = [...expected.keys()].filter((tensor) => tensor.startsWith('grad.'));
    expect(names.length).toBeGreaterThan(3);
    const largest = (values: Float32Array) => values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    for (const tensor of names) {
      const wanted = expected.get(tensor)!;
      const found = gradients.get(tensor.slice('grad.'.length))!;
      expect(maxDifference(found, wanted), tensor).toBeLessThanOrEqual(1e-3 * largest(wanted) + 1e-8);
    }
    expect(largest(expected.get('grad.model.layers.1.mlp.gate.weight')!)).toBeGreaterThan(1e-3);
  });
});

describe('the balance of experts', () => {
  const device = openTest();
  afterAll(() => device.dispose());

  it('has the same bits where layers run again, which counts their choices once', async () => {
    const [saved, again] = [
      await balanceAlone(device, 'qwen3-moe'),
      await balanceAlone(device, 'qwen3-moe', { gradientCheckpointing: true }),
    ];
    expect(again.loss).toBe(saved.loss);
    expect(again.gradients).toEqual(saved.gradients);
  });

  it('makes nothing without a coefficient, and leaves nothing behind', async () => {
    const { made } = await balanceAlone(device, 'qwen3-moe', { routerAuxLossCoef: 0 });
    expect(made).toBeUndefined();
    for (const gradientCheckpointing of [false, true])
      expect((await balanceAlone(device, 'qwen3-moe', { gradientCheckpointing })).left).toBe(0);
  });

  const sequences = [idsOf('qwen3-moe'), idsOf('qwen3-moe').slice(3, 12)];

  /** Of the sequences, what a step of maximal likelihood logs and its gradients. */
  async function stepOf(
    on: Device,
    { coefficient, microBatchTokens = 23 }: { coefficient: number; microBatchTokens?: number },
  ) {
    const { decoder, parameters } = load(on, 'qwen3-moe', { routerAuxLossCoef: coefficient });
    const items = sequences.map((ids, i) => ({
      ids,
      positions: ids.map((_, at) => at),
      branch: undefined,
      rowId: i,
    }));
    const terms = await accumulate(
      items,
      {
        device: on,
        microBatchTokens,
        sizeOf: ({ ids }) => ids.length,
        normaliser: () => 30,
        trains: [parameters],
      },
      (group, total) => [{ loss: likelihood(decoder, group, total) }],
    );
    const gradients = await parameters.grads.readFloats();
    for (const owned of [parameters, decoder]) owned.dispose();
    return { metrics: balanceOf(terms), gradients };
  }

  function likelihood(decoder: Decoder, group: readonly ForwardSequence[], total: number) {
    const rows = group.map((sequence) => ({
      sequence,
      rows: [...sequence.ids].slice(1).map((token, row) => ({ row, token })),
    }));
    const { logprobs } = scoreRows(decoder, {}, rows);
    return nll(logprobs, decoder.device.tensor(new Float32Array(logprobs.size).fill(1 / total)));
  }

  it('counts in a batch as the mean over micro-batches, by tokens', async () => {
    const alone = [
      await balanceAlone(device, 'qwen3-moe'),
      await balanceAlone(device, 'qwen3-moe', { ids: sequences[1] }),
    ];
    const [none, some] = [
      await stepOf(device, { coefficient: 0 }),
      await stepOf(device, { coefficient: 0.5 }),
    ];
    expect(none.metrics).toEqual({});
    const shares = [23 / 32, 9 / 32];
    const mean = (of: (i: number) => number) => shares.reduce((sum, share, i) => sum + share * of(i), 0);
    expect(some.metrics.aux_loss).toBeCloseTo(
      mean((i) => alone[i]!.loss!),
      6,
    );
    const wanted = none.gradients.map((g, at) => g + 0.5 * mean((i) => alone[i]!.all[at]!));
    expect(maxDifference(some.gradients, wanted)).toBeLessThan(1e-6);
    expect(maxDifference(some.gradients, none.gradients)).toBeGreaterThan(1e-3);
    // Both sequences at once are balanced as one, so this alone depends on how a batch is cut.
    const whole = await stepOf(device, { coefficient: 0.5, microBatchTokens: 64 });
    expect(maxDifference(some.gradients, whole.gradients)).toBeGreaterThan(1e-5);
  });

  it('has the same share in shards, which processes compute', async () => {
    const divided = openTest();
    divideBatches(divided, { shards: 2 });
    const [whole, shards] = [
      await stepOf(device, { coefficient: 0.5 }),
      await stepOf(divided, { coefficient: 0.5 }),
    ];
    expect(shards.metrics.aux_loss).toBeCloseTo(whole.metrics.aux_loss!, 6);
    expect(maxDifference(shards.gradients, whole.gradients)).toBeLessThan(1e-6);
    divided.dispose();
  });

  const run = (init: object, coefficient: number) => {
    const output = join(temporaryDirectory(), 'run');
    const shape = { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 2 };
    const recipe = {
      method: 'pretrain',
      model: { base: { init: { ...shape, ...init } }, tokenizer: 'bytes', router_aux_loss_coef: coefficient },
      data: { source: 'arithmetic', arithmetic: { samples: 60 }, max_length: 128 },
      pretrain: { max_steps: 3, tokens_per_step: 512, eval_steps: 0 },
      run: { device: 'cpu', threads: 1, logging_steps: 1 },
    };
    return { output, done: train(recipe as never, { output }) };
  };

  it('is logged by a run that a recipe asks it of', async () => {
    const { output, done } = run({ model_type: 'qwen3_moe', num_experts: 4 }, 0.01);
    await done;
    const rows = readFileSync(join(output, 'metrics.jsonl'), 'utf8').trim().split('\n');
    const logged = rows.map((row) => JSON.parse(row)).filter((row) => 'learning_rate' in row);
    expect(logged).toHaveLength(3);
    // Two experts a token: 2 where they are chosen alike, at most 4.
    for (const { aux_loss } of logged) {
      expect(aux_loss).toBeGreaterThan(1.9);
      expect(aux_loss).toBeLessThan(4);
    }
  });

  it('is refused for a model without experts', async () => {
    await expect(run({ model_type: 'llama' }, 0.01).done).rejects.toThrow(
      'model.router_aux_loss_coef is 0.01, and model.base.init has no experts to balance; leave it out',
    );
  });
});
