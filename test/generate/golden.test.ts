// Greedy decoding against transformers in float64: a continuation of each prompt, and a story of a pretrained model.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import type { Device } from '../../src/runtime/device.js';
import { DECODERS, expectedOf, goldenDirectory } from '../models/golden.js';
import { isas, openTest } from '../ops/devices.js';

describe.each(isas)('%s', (isa) => {
  let device: Device;
  beforeAll(() => {
    device = openTest(isa);
  });
  afterAll(() => device.dispose());

  it.each(DECODERS)('%s: the 12 most likely tokens after each prompt', async (name) => {
    const golden = expectedOf(name);
    const greedy = golden.greedy as number[][];
    const model = await loadModel(device, goldenDirectory(name), { dtype: 'f32' });
    const prompts = golden.sequences.map((ids, i) => ids.slice(0, golden.prompt_lengths[i]));
    const samples = await model.generate(prompts, { temperature: 0, maxNewTokens: 12, ignoreEos: true });
    expect(samples.map(([sample]) => sample?.tokens)).toEqual(greedy);
    model.dispose();
  });

  it('stories260k: writes the golden story', async () => {
    const { greedy } = expectedOf('stories260k') as unknown as { greedy: number[] };
    const model = await loadModel(device, goldenDirectory('stories260k'), { dtype: 'f32' });
    const options = { temperature: 0, maxNewTokens: greedy.length - 1, ignoreEos: true };
    const samples = await model.generate([greedy.slice(0, 1)], options);
    expect(samples[0]?.[0]?.tokens).toEqual(greedy.slice(1));
    model.dispose();
  });
});
