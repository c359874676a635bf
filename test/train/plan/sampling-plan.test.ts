// Pages of keys and values in the memory plan, against the allocator's count.
import { afterAll, describe, expect, test } from 'vitest';
import { loadModel } from '../../../src/api/model.js';
import { Generator } from '../../../src/generate/generator.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { StepAmcRunConfig } from '../../../src/methods/stepamc/config.js';
import { stepAmc } from '../../../src/methods/stepamc/method.js';
import { stackBytes } from '../../../src/models/adapter-stack.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { formatMemoryPlan, plannedPeak } from '../../../src/train/plan/memory-plan.js';
import { fitCache, samplingPlan } from '../../../src/train/plan/sampling-plan.js';
import { someAdapter } from '../../generate/some-adapter.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

test.each([
  ['qwen2', 'f32'],
  ['mistral', 'bf16'],
  ['opt', 'f32'],
  ['qwen3_5-a', 'f32'],
] as const)('%s in %s: foresees pages and the forward of a step', async (name, dtype) => {
  const model = await loadModel(device, goldenDirectory(name), { dtype });
  const { config } = model.decoder;
  const prompts = Array.from({ length: 8 }, (_, i) =>
    Array.from({ length: 110 }, (_, t) => (i * 31 + t * 7) % 96),
  );
  const longest = 120;
  const plan = samplingPlan({ longest, rows: 8 }, config, { dtype, rank: 0 });
  const generator = new Generator(model.decoder, { cacheBytes: plan.most, maxRows: 8 });
  await device.synchronize();
  const before = device.stats().liveBytes;
  device.resetPeak();
  await generator.generate(prompts, { maxNewTokens: 10, ignoreEos: true }).samples;
  const forward = device.stats().peakBytes - before - generator.cacheBytes;
  expect(generator.cacheBytes).toBe(plan.most);
  expect(plan.forward / forward).toBeGreaterThan(1);
  expect(plan.forward / forward).toBeLessThan(2.5);
  generator.dispose();
  model.dispose();
});

test.each([
  ['qwen2', 'bf16', 8],
  ['qwen3', 'f32', 40],
  ['variants/qwen3-moe', 'bf16', 40],
] as const)('%s in %s: foresees what an adapter of rank %i is packed into', async (name, dtype, r) => {
  const model = await loadModel(device, goldenDirectory(name), { dtype });
  const adapter = someAdapter(model, { r }, 1);
  const generator = new Generator(model.decoder, { cacheBytes: 1 << 20 });
  const held = async (role: object) => {
    await generator.generate([[1, 2, 3]], { maxNewTokens: 2, ignoreEos: true, role }).samples;
    await device.synchronize();
    return device.stats().liveBytes;
  };
  const packed = -(await held({})) + (await held({ adapter }));
  const planned = stackBytes(adapter.plan.modules, dtype);
  // The allocator rounds each tensor up, which shows in small ones.
  expect(planned / packed).toBeGreaterThan(0.9);
  expect(planned / packed).toBeLessThan(1.1);
  const { config } = model.decoder;
  const plan = (pairs: object) =>
    samplingPlan({ longest: 50, rows: 64 }, config, { dtype, rank: r, ...pairs }).forward;
  expect(plan({ pairs: adapter.plan.modules }) - plan({})).toBe(planned);
  generator.dispose();
  adapter.dispose();
  model.dispose();
});

describe('a cache', () => {
  const mib = 1 << 20;
  const plan = { longest: 100, rows: 4, pageBytes: mib, least: 2 * mib, most: 8 * mib, forward: 3 * mib };
  const fitted = (available: number) => fitCache(plan, { available: available * mib, fixedBytes: 10 * mib });

  test('has the size that all samples can fill, or the available memory', () => {
    expect(fitted(100)).toBe(8 * mib);
    expect(fitted(18.5)).toBe(5 * mib);
    expect(fitted(15)).toBe(2 * mib);
  });

  test('is refused if it does not fit, with the missing bytes', () => {
    expect(() => fitted(14.5)).toThrow(
      /sampling needs 15\.0 MiB \(10\.0 MiB for the roles, 2\.0 MiB of keys and values for one sample of 100 tokens, 3\.0 MiB for a step\) and 14\.5 MiB can be used: 0\.5 MiB are missing; set model\.dtype: bf16, or shorten data\.max_length/,
    );
  });

  test('is in the plan beside the roles; at its peak a run has either it or activations', () => {
    const whole = {
      items: [],
      width: 64,
      checkpointing: false,
      fixedBytes: 10 * mib,
      bytesPerToken: mib,
      sampling: plan,
    };
    expect(plannedPeak(whole, 4, 8 * mib)).toBe(21 * mib);
    expect(plannedPeak(whole, 40, 8 * mib)).toBe(50 * mib);
    const lines = formatMemoryPlan(whole, 4, 8 * mib);
    expect(lines.at(-2)).toMatch(
      /pages +8\.0 MiB {2}keys and values while sampling, 8 of 1024 KiB for 4 samples/,
    );
    expect(lines.at(-1)).toMatch(/peak +21\.0 MiB/);
  });
});

test('is needed by stepamc if a word has several tokens', () => {
  const planned = (more: object) => {
    const config = completeRunConfig({
      method: 'stepamc',
      lora: { r: 8, lora_alpha: 16, lora_dropout: 0 },
      data: { source: 'arithmetic', max_length: 99 },
      ...more,
    }) as StepAmcRunConfig;
    return stepAmc.sampling?.(config, byteTokenizer());
  };
  const prompt = { pos_word: 'yes', neg_word: 'no' };
  expect(planned({ prompt })).toEqual({ longest: 99 });
  expect(planned({})).toBeUndefined();
  expect(planned({ prompt, verdict_ppo: { rollout: 'enumerate' } })).toBeUndefined();
});
