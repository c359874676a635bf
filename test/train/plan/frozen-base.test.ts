// What a plan counts of a quantised base, against what loading holds.
import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { modelWeights, newModelConfig, readModelConfig } from '../../../src/architectures/table.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { SftRunConfig } from '../../../src/methods/sft/config.js';
import { baseDirectory } from '../../../src/models/base.js';
import { draw } from '../../../src/models/initial-values.js';
import { loadDecoder, trainableDecoder } from '../../../src/models/load.js';
import type { Quantize } from '../../../src/models/quantize.js';
import { saveDecoder } from '../../../src/models/save.js';
import { type Device, openDevice } from '../../../src/runtime/device.js';
import { memoryPlan } from '../../../src/train/plan/memory-plan.js';
import { parameterCount } from '../../../src/train/plan/parameter-count.js';
import { goldenDirectory } from '../../models/golden.js';
import { sharedPath } from '../../shared.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

const stored = goldenDirectory('quantized/bitsandbytes');
const floats = goldenDirectory('llama3');

const config = (base: string, quantize: Quantize) =>
  completeRunConfig({
    method: 'sft',
    model: { base, quantize, dtype: 'bf16', tokenizer: 'bytes' },
    lora: { r: 2, lora_alpha: 4, target_modules: ['q_proj'] },
    data: { source: 'arithmetic', arithmetic: { samples: 60 }, max_length: 128 },
  }) as SftRunConfig;

async function planned(base: string, quantize: Quantize) {
  const device = openDevice('cpu');
  try {
    const settings = config(base, quantize);
    const plan = memoryPlan(device, settings, [], readModelConfig(base));
    const decoder = await loadDecoder(device, base, { dtype: 'bf16', quantize });
    await device.synchronize();
    const held = device.stats().liveBytes;
    decoder.dispose();
    return { item: plan.items.find(({ role }) => role === 'base')!, held };
  } finally {
    device.dispose();
  }
}

/** Whose experts have so few rows, as its router has, that what is held beside them counts. */
async function withExperts(width: number): Promise<string> {
  const device = openDevice('cpu');
  const shape = {
    ...{ hidden_size: 128, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 2 },
    ...{ num_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: width },
  };
  const model = newModelConfig({ model_type: 'qwen3_moe', ...shape }, { vocabSize: 256 });
  const specs = modelWeights(model).map(({ name, shape, init }, i) => ({
    name,
    shape,
    init: draw(init, shape, 7, i),
  }));
  const { decoder } = trainableDecoder(device, model, specs, { dtype: 'f32' });
  const path = temporaryDirectory();
  await saveDecoder(decoder, path);
  device.dispose();
  return path;
}

describe('a quantised base', () => {
  it.each([
    [stored, 'keep'],
    [stored, 'none'],
    [floats, 'keep'],
    [floats, 'nf4'],
    [floats, 'int8'],
    [floats, 'nf4_head'],
    [floats, 'int8_head'],
  ] as const)('is planned as it is loaded: %s, %s', async (base, quantize) => {
    const { item, held } = await planned(base, quantize);
    expect(item.bytes / held).toBeGreaterThan(0.9);
    expect(item.bytes / held).toBeLessThan(1.1);
  });

  it.each([
    ['keep', 16],
    ['nf4', 64],
    ['int8', 16],
    ['int8', 64],
  ] as const)('with experts is planned as it is loaded: %s, %d wide', async (quantize, width) => {
    const { item, held } = await planned(await withExperts(width), quantize);
    expect(item.bytes / held).toBeGreaterThan(0.97);
    expect(item.bytes / held).toBeLessThan(1.03);
  });

  const file = `${sharedPath('models')}/smollm2-135m-instruct.Q4_1.gguf`;
  it.skipIf(!existsSync(file))(
    `of a file with its head in 8 bits is planned as it is loaded${existsSync(file) ? '' : ' (skipped: ../shared/models is absent)'}`,
    async () => {
      const directory = baseDirectory(file);
      const { item, held } = await planned(directory, 'keep');
      expect(item.bytes / held).toBeGreaterThan(0.9);
      expect(item.bytes / held).toBeLessThan(1.1);
      expect(item.what).toMatch(/28\.3M in q8_0/);
      const device = { info: () => ({ name: 'cuda:0' }) } as Pick<Device, 'info'>;
      const plan = memoryPlan(device, config(directory, 'keep'), [], readModelConfig(directory));
      // The head's products take 8,192 tokens of its 49,152 at a time.
      expect(plan.items.find(({ role }) => role === 'workspace')?.bytes).toBe(8192 * 576 * 2);
    },
  );

  it('is told by the number of its weights, also of a small one', async () => {
    expect((await planned(stored, 'keep')).item.what).toBe(
      '0.1M frozen parameters, 73,728 in nf4_double, the rest bf16, shared by all roles',
    );
    expect([0, 73_728, 115_008, 6_525_288_448].map(parameterCount)).toEqual(['0', '73,728', '0.1M', '6.53B']);
  });

  it.each([
    ['cpu', 'keep', undefined],
    ['cuda:0', 'none', undefined],
    // Gate and up, of 128 × 64 in bf16 each, are multiplied in one op; q, k and v are smaller.
    ['cuda:0', 'keep', 2 * 128 * 64 * 2],
  ] as const)('on %s with %s takes %s bytes of workspace beside it', (name, quantize, bytes) => {
    const device = { info: () => ({ name }) } as Pick<Device, 'info'>;
    const plan = memoryPlan(device, config(stored, quantize), [], readModelConfig(stored));
    expect(plan.items.find(({ role }) => role === 'workspace')?.bytes).toBe(bytes);
  });
});
