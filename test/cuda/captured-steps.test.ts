// Decode steps that are captured with more rows than a batch has give the bits of steps that are queued op by op.
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { Generator } from '../../src/generate/generator.js';
import { CapturedSteps } from '../../src/generate/step/captured.js';
import type { Adapter } from '../../src/models/adapter.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { Graph } from '../../src/runtime/graph.js';
import { someAdapter } from '../generate/some-adapter.js';
import { goldenDirectory } from '../models/golden.js';
import { gpus, skipped } from './gpu.js';

const PROMPTS = [[5, 6, 7, 8], [9, 10], [3], [11, 12, 13], [14]];

describe.skipIf(gpus.length === 0)(`captured steps on cuda:0${skipped}`, () => {
  let device: Device;
  let model: Model;
  let adapter: Adapter;
  beforeAll(async () => {
    device = openDevice('cuda:0');
    model = await loadModel(device, goldenDirectory('qwen2'), { dtype: 'bf16' });
    adapter = someAdapter(model, {}, 1);
  });
  afterAll(() => {
    adapter.dispose();
    model.dispose();
    device.dispose();
  });
  afterEach(() => {
    vi.restoreAllMocks();
  });

  /** Five rows, of which some end early; some of an adapter. */
  async function samples() {
    const generator = new Generator(model.decoder, { maxRows: 5, cacheBytes: 2 ** 20 });
    const options = { temperature: 1, topP: 0.9, ignoreEos: true };
    const tuned = generator.generate(PROMPTS.slice(0, 2), { ...options, maxNewTokens: 9, role: { adapter } });
    const base = generator.generate(PROMPTS.slice(2), { ...options, maxNewTokens: 5 });
    const all = [await tuned.samples, await base.samples];
    generator.dispose();
    return all;
  }

  it('five rows in a graph of eight, then two', async () => {
    const replayed = vi.spyOn(Graph.prototype, 'replay');
    const found = await samples();
    expect(replayed.mock.calls.length).toBeGreaterThan(4);
    vi.spyOn(CapturedSteps.prototype, 'decode').mockReturnValue(undefined);
    expect(found).toEqual(await samples());
  });
});
