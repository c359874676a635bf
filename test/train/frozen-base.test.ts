// What a plan counts of a quantised base, on the CPU and on a GPU, against what loading holds there.
import { afterEach, describe, expect, it, vi } from 'vitest';
import { readModelConfig } from '../../src/architectures/table.js';
import { completeRunConfig } from '../../src/methods/config.js';
import type { SftRunConfig } from '../../src/methods/sft/config.js';
import { methodOf } from '../../src/methods/table.js';
import { loadDecoder } from '../../src/models/load.js';
import type { Quantize } from '../../src/models/quantize.js';
import { Device, openDevice } from '../../src/runtime/device.js';
import { describeRun } from '../../src/train/dry-run.js';
import { memoryPlan } from '../../src/train/memory-plan.js';
import { parameterCount } from '../../src/train/parameter-count.js';
import { goldenDirectory } from '../models/golden.js';

const stored = goldenDirectory('quantized/bitsandbytes');
const floats = goldenDirectory('llama3');

const config = (base: string, quantize: Quantize) =>
  completeRunConfig({
    method: 'sft',
    model: { base, quantize, dtype: 'bf16', tokenizer: 'bytes' },
    lora: { r: 2, lora_alpha: 4, target_modules: ['q_proj'] },
    data: { source: 'arithmetic', arithmetic: { samples: 60 }, max_length: 128 },
  }) as SftRunConfig;

/** The CPU says that it is a GPU. */
function asGpu(): void {
  const { info } = Device.prototype;
  vi.spyOn(Device.prototype, 'info').mockImplementation(function (this: Device) {
    return { ...info.call(this), name: 'cuda:0' };
  });
}

afterEach(() => void vi.restoreAllMocks());

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

describe('a quantised base', () => {
  it.each([
    ['cpu', stored, 'keep'],
    ['cpu', stored, 'none'],
    ['cpu', floats, 'nf4'],
    ['cpu', floats, 'int8'],
    ['cuda:0', stored, 'keep'],
    ['cuda:0', floats, 'keep'],
  ] as const)('is planned on %s as it is loaded there: %s, %s', async (on, base, quantize) => {
    if (on !== 'cpu') asGpu();
    const { item, held } = await planned(base, quantize);
    expect(item.bytes / held).toBeGreaterThan(0.9);
    expect(item.bytes / held).toBeLessThan(1.1);
  });

  it('is told by the number of its weights, also of a small one', async () => {
    expect((await planned(stored, 'keep')).item.what).toBe(
      '0.1M frozen parameters, 73,728 in nf4_double, the rest bf16, shared by all roles',
    );
    expect([0, 73_728, 115_008, 6_525_288_448].map(parameterCount)).toEqual(['0', '73,728', '0.1M', '6.53B']);
  });

  const dryRun = async (base: string, quantize: Quantize) => {
    const settings = config(base, quantize);
    const row = methodOf(settings);
    const { lines } = await describeRun({ ...row, ...(await row.load()) }, settings);
    return lines.join('\n');
  };

  it('is refused by the dry run of a GPU as by the run', async () => {
    expect(await dryRun(floats, 'nf4')).toContain('73,728 in nf4_double, the rest bf16');
    asGpu();
    for (const quantize of ['nf4', 'int8'] as const) {
      const sentence = `model.quantize ${quantize} needs products that read it, which cuda:0 does not have`;
      await expect(dryRun(floats, quantize)).rejects.toThrow(sentence);
      await expect(planned(floats, quantize)).rejects.toThrow(sentence);
    }
    expect(await dryRun(stored, 'keep')).toContain('0.1M frozen parameters, bf16, shared by all roles');
  });
});
