// Recomputation in the backward gives the same bits as saving everything, with less memory.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkpoint, openTape, Tape } from '../../src/autograd/tape.js';
import { swiglu } from '../../src/ops/mlp.js';
import { rmsNorm } from '../../src/ops/norm.js';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { openTest } from '../ops/devices.js';
import { random } from '../ops/numbers.js';
import { everyToken, loraDecoder } from './lora-decoder.js';

let device: Device;
beforeAll(() => {
  device = openTest();
});
afterAll(() => device.dispose());

const ids = (length: number, seed: number) => Array.from({ length }, (_, t) => (t * t * seed + 7 * t) % 320);
const items = [everyToken(ids(40, 3), 11), everyToken(ids(13, 5), 4), everyToken(ids(2, 9), 7)];

async function gradients(options: { gradientCheckpointing: boolean; dropout: number }, step: number) {
  const model = await loraDecoder(device, options);
  device.resetPeak();
  const resting = device.stats().liveBytes;
  const loss = model.backward(items, step);
  const result = {
    loss: await loss.readFloats(),
    grads: await model.parameters.grads.readFloats(),
    peak: device.stats().peakBytes - resting,
  };
  loss.dispose();
  model.dispose();
  return result;
}

describe('a decoder with LoRA dropout', () => {
  test('gives the same loss and gradients, bit for bit, whether layers are recomputed or kept', async () => {
    const kept = await gradients({ gradientCheckpointing: false, dropout: 0.3 }, 2);
    const recomputed = await gradients({ gradientCheckpointing: true, dropout: 0.3 }, 2);
    expect(recomputed.loss).toEqual(kept.loss);
    expect(recomputed.grads).toEqual(kept.grads);
    expect(recomputed.grads.some((g) => g !== 0)).toBe(true);
    expect(recomputed.peak).toBeLessThan(0.8 * kept.peak);
  });

  test('derives its mask from the step: another step, or none, gives other gradients', async () => {
    const at = async (dropout: number, step: number) =>
      (await gradients({ gradientCheckpointing: true, dropout }, step)).grads;
    const [first, again, other, none] = [
      await at(0.3, 2),
      await at(0.3, 2),
      await at(0.3, 3),
      await at(0, 2),
    ];
    expect(again).toEqual(first);
    expect(other).not.toEqual(first);
    expect(none).not.toEqual(first);
  });
});

describe('checkpoint', () => {
  const weight = () => ({ name: 'w', value: device.tensor(random(8, 2)) });
  const stats = () => {
    const { tensors, liveBytes } = device.stats();
    return { tensors, liveBytes };
  };

  test('without a tape only runs the function', () => {
    const x = device.zeros([2, 8]);
    const [y] = checkpoint([x], ([input]) => {
      expect(openTape()).toBeUndefined();
      return [swiglu(input!, input!)];
    });
    expect(y?.shape).toEqual([2, 8]);
    x.dispose();
    y?.dispose();
  });

  test('carries gradients from every output that has one to every input that needs one', async () => {
    const before = stats();
    const w = weight();
    const [a, b, dy] = [1, 2, 3].map((seed) => device.tensor(random(16, seed), [2, 8])) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    const block = ([p, q]: readonly Tensor[]) => [swiglu(p!, q!), rmsNorm(q!, w, 1e-6)];
    const run = async (how: (inputs: readonly Tensor[]) => readonly Tensor[], watched: readonly Tensor[]) => {
      const tape = new Tape(device);
      for (const tensor of watched) tape.watch(tensor);
      const outputs = device.scope(() => tape.run(() => how([a, b])));
      tape.backward([[outputs[0]!, dy]]);
      const results = [a, b].map((tensor) => tape.takeGradient(tensor));
      const values = await Promise.all(results.map((gradient) => gradient?.readFloats()));
      for (const tensor of [...outputs, ...results]) tensor?.dispose();
      tape.dispose();
      return values;
    };
    for (const watched of [[a, b], [a], [b]]) {
      expect(await run((inputs) => checkpoint(inputs, block), watched)).toEqual(await run(block, watched));
    }
    for (const tensor of [w.value, a, b, dy]) tensor.dispose();
    expect(stats()).toEqual(before);
  });

  test('keeps its inputs and own references until the backward, and nothing after it', () => {
    const x = device.tensor(random(8000, 1), [1000, 8]);
    const batch = device.tensor(random(8000, 2), [1000, 8]);
    const before = stats();
    const tape = new Tape(device);
    tape.watch(x);
    const block = ([input]: readonly Tensor[], own: Tensor) =>
      device.scope(() => [swiglu(swiglu(input!, own), own)]);
    const [y] = tape.run(() => checkpoint([x], block, () => batch.alias()));
    y?.dispose();
    batch.dispose();
    expect(stats()).toEqual(before);
    tape.backward([[y!, x]]);
    expect(stats()).toEqual(before); // the gradient takes the memory of the batch
    tape.takeGradient(x)?.dispose();
    tape.dispose();
    expect(stats()).toEqual({ tensors: before.tensors - 1, liveBytes: before.liveBytes / 2 });
    x.dispose();
  });

  test('frees its own references when its tape is disposed, or at once without a tape', () => {
    const before = stats();
    const x = device.zeros([4, 8]);
    const block = ([input]: readonly Tensor[], own: Tensor) => [swiglu(input!, own)];
    const tape = new Tape(device);
    tape.watch(x);
    tape.run(() => checkpoint([x], block, () => device.zeros([4, 8])))[0]?.dispose();
    tape.dispose();
    checkpoint([x], block, () => device.zeros([4, 8]))[0]?.dispose();
    x.dispose();
    expect(stats()).toEqual(before);
  });
});
