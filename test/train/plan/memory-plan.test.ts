// The memory plan against the allocator's count.
import { afterAll, describe, expect, test } from 'vitest';
import { parseModelConfig } from '../../../src/architectures/table.js';
import { inMemory } from '../../../src/data/dataset.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { SftRunConfig } from '../../../src/methods/sft/config.js';
import { sft } from '../../../src/methods/sft/method.js';
import { StepTrainError } from '../../../src/native/errors.js';
import { type Device, openDevice } from '../../../src/runtime/device.js';
import { usableMemory } from '../../../src/runtime/memory.js';
import { maskedSequence } from '../../../src/sequences/sequence.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import {
  availableMemory,
  fastestMicroBatch,
  fitMicroBatch,
  memoryPlan,
  settleMicroBatch,
} from '../../../src/train/plan/memory-plan.js';
import { withOthers } from '../../../src/train/plan/other-programs.js';
import { planLine } from '../../../src/train/plan/plan-line.js';
import { createTrainee } from '../../../src/train/roles/trainee.js';
import { supervisedStage } from '../../../src/train/supervised.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
const onGpu = device.info().name !== 'cpu';
afterAll(() => device.dispose());

const config = (more: object) =>
  completeRunConfig({
    method: 'sft',
    model: { dtype: 'f32' },
    lora: { r: 8, lora_alpha: 16, lora_dropout: 0 },
    data: { source: 'arithmetic' },
    ...more,
  }) as SftRunConfig;

const fresh = (keys: object) => {
  const shape = { hidden_size: 96, num_hidden_layers: 4, num_attention_heads: 4, ffn_dim: 384 };
  return { tokenizer: 'bytes', base: { init: { model_type: 'opt', ...shape, ...keys } } };
};

const newQwen35Moe = {
  tokenizer: 'bytes',
  base: {
    init: {
      model_type: 'qwen3_5_moe_text',
      ...{ hidden_size: 128, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2 },
      ...{ head_dim: 32, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 96 },
      ...{ linear_num_key_heads: 4, linear_num_value_heads: 4 },
      ...{ linear_key_head_dim: 32, linear_value_head_dim: 32 },
    },
  },
};

const newQwen35 = {
  tokenizer: 'bytes',
  base: {
    init: {
      model_type: 'qwen3_5_text',
      ...{ hidden_size: 128, num_hidden_layers: 4, intermediate_size: 352, num_attention_heads: 4 },
      ...{ num_key_value_heads: 2, head_dim: 32, linear_num_key_heads: 4, linear_num_value_heads: 4 },
      ...{ linear_key_head_dim: 32, linear_value_head_dim: 32 },
    },
  },
};

describe.each([
  ['f32', {}],
  ['bf16', { model: { dtype: 'bf16' } }],
  ['nf4', { model: { base: goldenDirectory('qwen2'), quantize: 'nf4', dtype: 'bf16' } }],
  ['stored nf4', { model: { base: goldenDirectory('quantized/bitsandbytes'), dtype: 'bf16' } }],
  ['f32 with recomputation', { run: { gradient_checkpointing: true } }],
  ['opt', { model: { base: goldenDirectory('opt'), dtype: 'f32' } }],
  ['opt in bf16', { model: { base: goldenDirectory('opt'), dtype: 'bf16' } }],
  ['qwen3_5', { model: { base: goldenDirectory('qwen3_5-a'), dtype: 'f32' } }],
  ['a new qwen3_5 in bf16', { model: { ...newQwen35, dtype: 'bf16' }, lora: 'none' }],
  [
    'a new qwen3_5 with recomputation',
    { model: newQwen35, lora: 'none', run: { gradient_checkpointing: true } },
  ],
  ['a new qwen3_5_moe', { model: newQwen35Moe, lora: 'none' }],
  ['a new opt with norms last', { model: fresh({ do_layer_norm_before: false }), lora: 'none' }],
  [
    'a new opt with norms last and recomputation',
    {
      model: fresh({ do_layer_norm_before: false, activation_function: 'gelu' }),
      lora: 'none',
      run: { gradient_checkpointing: true },
    },
  ],
])('%s', (name, more) => {
  test('is an upper bound of the measured peak, and close to it', async () => {
    const settings = config(more);
    const before = device.stats().liveBytes;
    const trainee = await createTrainee(device, {
      model: settings.model,
      lora: settings.lora,
      tokenizer: byteTokenizer(),
      seed: 1,
      gradientCheckpointing: settings.run.gradient_checkpointing === true,
    });
    const plan = memoryPlan(device, settings, sft.memory(settings, device), trainee.decoder.config);
    const length = Math.min(256, trainee.decoder.config.maxPositions);
    const ids = Int32Array.from({ length }, (_, t) => t % 37);
    const lossMask = new Uint8Array(length).fill(1);
    const sequences = Array.from({ length: 4096 / length }, (_, i) => maskedSequence({ ids, lossMask }, i));
    const stage = supervisedStage({
      name: 'sft',
      decoder: trainee.decoder,
      role: trainee.role,
      parameters: trainee.trained,
      sequences: inMemory(sequences),
      optimization: { ...settings.sft, tokens_per_step: 4096, max_steps: 1 },
      microBatchTokens: 4096,
      seed: 1,
    }).open();
    await device.synchronize();
    const held = device.stats().liveBytes - before;
    device.resetPeak();
    await stage.step(0, new AbortController().signal);
    const peak = device.stats().peakBytes - device.stats().liveBytes;
    stage.dispose();
    trainee.dispose();
    const workspace = plan.items.find(({ role }) => role === 'workspace')?.bytes ?? 0;
    expect(workspace > 0).toBe(onGpu && name.endsWith('nf4'));
    expect(held / (plan.fixedBytes - workspace)).toBeGreaterThan(0.9);
    expect(held / (plan.fixedBytes - workspace)).toBeLessThan(1.1);
    const ratio = (plan.bytesPerToken * 4096) / peak;
    expect(ratio).toBeGreaterThan(1);
    expect(ratio).toBeLessThan(1.5);
  });
});

describe('a micro-batch', () => {
  const plan = { items: [], width: 64, checkpointing: false, fixedBytes: 1000, bytesPerToken: 10 };
  test('is the largest that fits, at most an optimizer step and at least a sequence', () => {
    const section = { micro_batch_tokens: 'auto', tokens_per_step: 500 } as const;
    expect(fitMicroBatch(plan, 3000, 50, section)).toBe(200);
    expect(fitMicroBatch(plan, 30_000, 50, section)).toBe(500);
  });
  test('is no larger than is fastest, but never smaller than a sequence', () => {
    const section = { micro_batch_tokens: 'auto' } as const;
    expect(fitMicroBatch(plan, 1e9, 9000, section, 4096)).toBe(9000);
    // What a recipe asks for is what it gets.
    expect(fitMicroBatch(plan, 1e9, 50, { micro_batch_tokens: 9000 }, 4096)).toBe(9000);
  });
  test.each([
    // As measured with two threads, research/runtime.md: the least that is as fast as any larger one.
    [2, 256, 2048],
    [2, 576, 1024],
    [2, 128, 4096],
    // As fast there as 512, and never fewer.
    [2, 896, 1024],
    // The threads of a process play no part: a run has the same bits with any number.
    [16, 576, 1024],
  ])('of a CPU with %i threads and hidden states of %i is of at most %i tokens', (threads, width, tokens) => {
    const of = (name: string) => ({ info: () => ({ name, threads }) }) as Device;
    expect(fastestMicroBatch(of('cpu'), width)).toBe(tokens);
    // The largest that an H100 has been timed with.
    expect(fastestMicroBatch(of('cuda:0'), width)).toBe(8192);
  });
  test('is planned for a share of the memory, of what is free at most', () => {
    expect(usableMemory({ total: 1000, free: 1000 }, 0.9)).toBe(900);
    expect(usableMemory({ total: 1000, free: 1000 }, 0.45)).toBe(450);
    expect(usableMemory({ total: 1000, free: 500 }, 0.9)).toBe(450);
    const { memoryTotal } = device.info();
    expect(availableMemory(plan, device, 1e-6)).toBeCloseTo(memoryTotal * 1e-6, 3);
  });
  test('leaves room for a second run beside the first, if both plan for half', () => {
    const total = 80e9;
    const beside = (fraction: number) => {
      const first = usableMemory({ total, free: total }, fraction);
      return [first, usableMemory({ total, free: total - first }, fraction)];
    };
    expect(beside(0.45)).toEqual([36e9, 36e9]);
    // By default the first takes nearly all: the second is refused, unless it is small.
    const [, second = 0] = beside(0.9);
    expect(second / total).toBeCloseTo(0.09);
    const model = { items: [], width: 64, checkpointing: false, fixedBytes: 15e9, bytesPerToken: 1e6 };
    const section = { micro_batch_tokens: 'auto', tokens_per_step: 8192 } as const;
    expect(fitMicroBatch(model, 36e9, 1024, section)).toBe(8192);
    expect(() => fitMicroBatch(model, second, 1024, section)).toThrow(/GiB are missing/);
  });
  test.runIf(onGpu)('is planned for what another program on the same GPU leaves', () => {
    const MiB = 1 << 20;
    const before = device.info().memoryFree;
    const other = openDevice('cuda:0');
    other.empty([64 * MiB]); // f32
    const taken = before - device.info().memoryFree;
    other.dispose();
    expect(taken).toBeGreaterThanOrEqual(256 * MiB);
  });
  test('is the same after a resume, whatever memory is free', async () => {
    const settings = config({ sft: { micro_batch_tokens: 'auto' } });
    const { decoder, dispose } = await createTrainee(device, {
      model: settings.model,
      lora: 'none',
      tokenizer: byteTokenizer(),
      seed: 1,
      gradientCheckpointing: false,
    });
    const plan = memoryPlan(device, settings, sft.memory(settings, device), decoder.config);
    const context = { device, config: settings };
    const fresh = settleMicroBatch(plan, 'sft', settings.sft, { ...context, saved: {} });
    expect(fresh).toBe(
      Math.min(settings.sft.tokens_per_step, fastestMicroBatch(device, decoder.config.hiddenSize)),
    );
    const saved = { 'sft.micro_batch_tokens': 1234 };
    expect(settleMicroBatch(plan, 'sft', settings.sft, { ...context, saved })).toBe(1234);
    dispose();
  });
  test('is refused if it does not fit, with the missing bytes', () => {
    const mib = 1 << 20;
    const large = { items: [], width: 64, checkpointing: false, fixedBytes: 100 * mib, bytesPerToken: mib };
    expect(() => fitMicroBatch(large, 128 * mib, 64, { micro_batch_tokens: 'auto' })).toThrow(
      /needs 164\.0 MiB \(100\.0 MiB for the roles, 64\.0 MiB for 64 tokens at once\) and 128\.0 MiB can be used: 36\.0 MiB are missing; set run\.gradient_checkpointing: true, set model\.dtype: bf16 or shorten data\.max_length$/,
    );
    const recomputed = { ...large, checkpointing: true };
    expect(() => fitMicroBatch(recomputed, 128 * mib, 64, { micro_batch_tokens: 64 })).toThrow(
      /are missing; set micro_batch_tokens: auto, set model\.dtype: bf16 or shorten data\.max_length$/,
    );
    expect(() => fitMicroBatch(large, 128 * mib, 8, { micro_batch_tokens: 29 })).toThrow(
      /1\.0 MiB are missing/,
    );
  });
});

describe('a second run on a GPU', () => {
  const GIB = 2 ** 30;
  /** 80 GiB, of which this program holds 1 and others `others`. */
  const gpu = (others: number, memoryFraction = 0.9) =>
    ({
      memoryFraction,
      info: () => ({ name: 'cuda:0', memoryTotal: 80 * GIB, memoryFree: (79 - others) * GIB }),
      stats: () => ({ liveBytes: GIB, reservedBytes: GIB }),
    }) as Device;
  const plan = { items: [], width: 896, checkpointing: false, fixedBytes: GIB, bytesPerToken: GIB / 1024 };
  const settings = config({
    sft: { micro_batch_tokens: 'auto' },
    data: { source: 'arithmetic', max_length: 1024 },
  });
  const settled = (others: number, fraction = 0.9) => {
    const context = { ...settings, run: { ...settings.run, memory_fraction: fraction } };
    return settleMicroBatch(
      plan,
      'sft',
      { micro_batch_tokens: 'auto' },
      {
        device: gpu(others, fraction),
        config: context,
        saved: {},
      },
    );
  };

  test('plans with what the first has left', () => {
    expect(settled(0)).toBe(8192);
    // 9 GiB are free: 0.9 of them and of its own GiB, less that.
    expect(settled(70)).toBe(8 * 1024);
    expect(settled(74)).toBe(Math.floor(4.4 * 1024));
  });

  test('that does not fit says who holds the memory, and what to set', () => {
    expect(() => settled(78)).toThrow(
      /can be used: .* are missing; .*\. Other programs hold 78\.00 GiB of the 80\.00 GiB of cuda:0.*: wait until they end, .*run\.memory_fraction=0\.45 for two$/,
    );
    // Of a small share it says how to change it.
    expect(() => settled(0, 0.01)).toThrow(/run\.memory_fraction 0\.01 leaves the rest to others: raise it/);
  });

  test('says so too where its models alone do not fit, and leaves other errors as they are', () => {
    const full = new StepTrainError('E_MEMORY', 'out of memory', { hint: 'use less', op: 'linear' });
    expect(withOthers(full, gpu(78), 0.9)).toMatchObject({
      code: 'E_MEMORY',
      message: expect.stringMatching(/^out of memory\. Other programs hold 78\.00 GiB/),
      ...{ hint: 'use less', op: 'linear', cause: full },
    });
    // Of a GPU of its own it says nothing.
    for (const used of [0, 0.5]) expect(withOthers(full, gpu(used), 0.9)).toBe(full);
    const other = new Error('no file');
    expect(withOthers(other, gpu(78), 0.9)).toBe(other);
  });

  test('names its share, its micro-batches and its rows in a line', () => {
    const sampling = { longest: 8, rows: 256, pageBytes: GIB, least: GIB, most: GIB, forward: GIB };
    const told = { usable: 72 * GIB, microBatches: { 'sft.micro_batch_tokens': 8192 }, cacheBytes: 2 * GIB };
    expect(planLine({ ...plan, sampling }, gpu(0), told)).toBe(
      'memory: 9.00 GiB planned of 72.00 GiB on cuda:0 (80.00 GiB, run.memory_fraction 0.9); micro-batches: sft 8192 tokens; ' +
        'samples: up to 256 together, 2.00 GiB of keys and values',
    );
    expect(planLine(plan, gpu(0), { ...told, cacheBytes: undefined })).toMatch(/sft 8192 tokens$/);
  });
});

test('LoRA on 70B parameters fits on 8 GPUs of 80 GiB once they hold its layers together', () => {
  const published = {
    model_type: 'llama',
    hidden_size: 8192,
    intermediate_size: 28_672,
    num_hidden_layers: 80,
    num_attention_heads: 64,
    num_key_value_heads: 8,
    head_dim: 128,
    vocab_size: 128_256,
    max_position_embeddings: 8192,
    tie_word_embeddings: false,
  };
  const shape = parseModelConfig(published, 'config.json');
  const roles = [{ role: 'policy', held: 'trained' }] as const;
  const planned = (run: object, model: object = {}) => {
    const merged = config({
      model: { dtype: 'bf16', ...model },
      run: { gradient_checkpointing: true, ...run },
    });
    return memoryPlan(device, merged, roles, shape, { processes: 8 });
  };
  const [whole, shared] = [planned({}), planned({ shard_base: true })];
  // As the run itself would say.
  expect(() => planned({ shard_base: true, gradient_checkpointing: false })).toThrow(
    /^a base that processes hold together needs run\.gradient_checkpointing: true/,
  );
  expect(() => planned({ shard_base: true }, { quantize: 'nf4' })).toThrow(/set model\.quantize: none$/);
  // Of four shards each the sum over two, and the third.
  const sharded = planned({ shards: 32 });
  expect(sharded.items.at(1)?.what).toMatch(/f32; 2 sums over earlier of 32 run\.shards$/);
  expect(sharded.fixedBytes - whole.fixedBytes).toBe((whole.items.at(1)!.bytes / 16) * 2 * 4);
  const gib = 2 ** 30;
  const usable = usableMemory({ total: 80 * gib, free: 80 * gib }, 0.9);
  const section = { micro_batch_tokens: 'auto', tokens_per_step: 1 << 20 } as never;
  expect(() => fitMicroBatch(whole, usable, 4096, section)).toThrow(/GiB are missing/);
  expect(fitMicroBatch(shared, usable, 4096, section)).toBeGreaterThanOrEqual(4096);
  // 70.55 B of bf16 are 131 GiB: 2.1 B in embedding and head are whole, the rest an eighth, and two layers of 1.6 GiB.
  const [base] = shared.items as [(typeof shared.items)[number]];
  expect(base.what).toMatch(/of each layer 1\/8, and two layers whole/);
  expect(base.bytes / gib).toBeGreaterThan(3.9 + 127.5 / 8 + 3.1);
  expect(base.bytes / gib).toBeLessThan(3.9 + 127.5 / 8 + 3.3);
  const [late] = planned({ shard_base: true, overlap: false }).items as [(typeof shared.items)[number]];
  expect(late.what).toMatch(/and one layer whole/);
  expect((base.bytes - late.bytes) / gib).toBeCloseTo(1.6, 1);
});
