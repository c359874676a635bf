import { afterAll, describe, expect, it } from 'vitest';
import { isas, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, stored } from './precision.js';
import { convolve, LAYOUTS, layoutTensors, places, slope, tolerance, total } from './recurrence-reference.js';

describe.each(isas)('causal_conv1d on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  describe.each(Object.entries(LAYOUTS))('%s', (_, layout) => {
    const tokens = total(layout);

    describe.each(['f32', 'bf16'] as const)('convolution in %s', (dtype) => {
      const [channels, taps] = [131, 4];
      const x = stored(random(tokens * channels, 3), dtype);
      const weight = random(channels * taps, 4);
      const dy = stored(random(tokens * channels, 5), dtype);
      const tensors = () => ({
        x: device.tensor(x, [tokens, channels], dtype),
        weight: device.tensor(weight, [channels, 1, taps]),
        ...layoutTensors(device, layout),
      });

      it('is the sum over the tokens before', async () => {
        const { y } = device.ops.causal_conv1d(tensors());
        const truth = convolve(x, weight, layout, channels, exact);
        const plain = convolve(x, weight, layout, channels, naive(dtype));
        expect(maxDifference(await y.readFloats(), truth)).toBeLessThan(tolerance(truth, plain, dtype));
      });

      it('has the gradients of finite differences', async () => {
        const dweight = device.zeros([channels, 1, taps]);
        const { dx } = device.ops.causal_conv1d_backward({
          ...tensors(),
          dy: device.tensor(dy, [tokens, channels], dtype),
          dweight,
        });
        const [found, foundWeight] = [await dx.readFloats(), await dweight.readFloats()];
        const bound = dtype === 'bf16' ? 2e-2 : 1e-4;
        for (const i of places(x.length)) {
          const wanted = slope((values) => convolve(values, weight, layout, channels, exact), x, dy, i);
          expect(Math.abs((found[i] as number) - wanted)).toBeLessThan(bound);
        }
        for (const i of places(weight.length)) {
          const wanted = slope((values) => convolve(x, values, layout, channels, exact), weight, dy, i);
          expect(Math.abs((foundWeight[i] as number) - wanted)).toBeLessThan(bound);
        }
      });
    });
  });

  it.each([
    [{ branch: [0, 1, 0, 1] }, 'branch[3] is 1 after branch 1'],
    [{ cu: [0, 3, 2, 4] }, 'cu_seqlens[2] is 2, below the 3 before it'],
    [{ slots: [3], lengths: [4] }, 'slots[0] is 3, outside -1..1'],
    [{ slots: [1], lengths: [2] }, 'lengths[0] is 2, below the'],
  ])(
    'refuses %o',
    async (given: { branch?: number[]; cu?: number[]; slots?: number[]; lengths?: number[] }, message) => {
      const other = openTest(isa);
      other.ops.causal_conv1d({
        x: other.zeros([4, 2]),
        weight: other.zeros([2, 1, 3]),
        cu_seqlens: other.tensor(Int32Array.from(given.cu ?? [0, 4])),
        branch: given.branch && other.tensor(Int32Array.from(given.branch)),
        ...(given.slots && given.lengths
          ? {
              state: other.zeros([2, 2, 2]),
              slots: other.tensor(Int32Array.from(given.slots)),
              lengths: other.tensor(Int32Array.from(given.lengths)),
            }
          : {}),
      });
      await expect(other.synchronize()).rejects.toThrow(message);
      other.dispose();
    },
  );
});
