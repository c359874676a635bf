import { afterAll, describe, expect, it } from 'vitest';
import { type Parameter, TrainableParameters } from '../../src/autograd/parameters.js';
import { Tape } from '../../src/autograd/tape.js';
import { linear, linearSwiglu, type Projection } from '../../src/ops/gemm.js';
import { swiglu } from '../../src/ops/mlp.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { openTest } from '../ops/devices.js';
import { random } from '../ops/numbers.js';

const SCALES = [0.75, 1.5] as const;

describe('linearSwiglu', () => {
  const device = openTest();
  afterAll(() => device.dispose());
  const [T, N, K, r] = [6, 12, 16, 3];
  const rowIds = device.tensor(Int32Array.from({ length: T }, () => 4));
  const positions = device.tensor(Int32Array.from({ length: T }, (_, t) => t));

  function projections(
    parameters: TrainableParameters,
    rate: number,
    biased: boolean,
  ): [Projection, Projection] {
    const named = (name: string) => parameters.list.find((parameter) => parameter.name === name) as Parameter;
    return ['gate', 'up'].map((name, i): Projection => {
      return {
        weight: named(`${name} w`),
        bias: biased ? named(`${name} bias`) : undefined,
        lora: { a: named(`${name} a`), b: named(`${name} b`), scale: SCALES[i]! },
        dropout: rate > 0 ? { rate, key: [i, 5], rowIds, positions } : undefined,
      };
    }) as [Projection, Projection];
  }

  const trainable = () =>
    new TrainableParameters(
      device,
      ['gate', 'up'].flatMap((name, i) => [
        { name: `${name} w`, shape: [N, K], init: random(N * K, 10 * i + 1) },
        { name: `${name} bias`, shape: [N], init: random(N, 10 * i + 2) },
        { name: `${name} a`, shape: [r, K], init: random(r * K, 10 * i + 3) },
        { name: `${name} b`, shape: [N, r], init: random(N * r, 10 * i + 4) },
      ]),
    );

  async function gradients(
    apply: (x: Tensor, gate: Projection, up: Projection) => Tensor,
    { rate = 0, biased = false } = {},
  ) {
    const parameters = trainable();
    const [gate, up] = projections(parameters, rate, biased);
    const x = device.tensor(random(T * K, 7), [T, K]);
    const dy = device.tensor(random(T * N, 8), [T, N]);
    const tape = new Tape(device);
    tape.watch(x);
    const y = device.scope(() => tape.run(() => apply(x, gate, up)));
    tape.backward([[y, dy]]);
    const dx = tape.takeGradient(x)!;
    const values = {
      y: await y.readFloats(),
      dx: await dx.readFloats(),
      grads: await parameters.grads.readFloats(),
    };
    for (const tensor of [x, dy, y, dx]) tensor.dispose();
    tape.dispose();
    parameters.dispose();
    return values;
  }

  it.each([
    { rate: 0, biased: false },
    { rate: 0.3, biased: false },
    { rate: 0.3, biased: true },
  ])('carries back the gradients of linear, linear, swiglu: %o', async (options) => {
    const before = device.stats().tensors;
    const apart = (x: Tensor, gate: Projection, up: Projection) =>
      swiglu(linear(x, gate.weight, gate), linear(x, up.weight, up));
    const got = await gradients(linearSwiglu, options);
    expect(got).toEqual(await gradients(apart, options));
    expect(got.grads.some((g) => g !== 0)).toBe(true);
    expect(device.stats().tensors).toBe(before);
  });

  it('has the gradient of finite differences', async () => {
    const { dx } = await gradients(linearSwiglu, { rate: 0.3 });
    const parameters = trainable();
    const [gate, up] = projections(parameters, 0.3, false);
    const x = random(T * K, 7);
    const dy = random(T * N, 8);
    const loss = async (values: Float32Array) => {
      const y = device.scope(() => linearSwiglu(device.tensor(values, [T, K]), gate, up));
      const read = await y.readFloats();
      y.dispose();
      return read.reduce((sum, value, i) => sum + value * dy[i]!, 0);
    };
    for (const i of [0, 17, 40, 95]) {
      const moved = (by: number) => x.map((value, j) => (j === i ? value + by : value));
      const slope = ((await loss(moved(0.01))) - (await loss(moved(-0.01)))) / 0.02;
      expect(Math.abs(slope - dx[i]!)).toBeLessThan(2e-2 * Math.max(1, Math.abs(dx[i]!)));
    }
    parameters.dispose();
  });

  it('writes gate and up only if a tape is open', () => {
    const parameters = trainable();
    const [gate, up] = projections(parameters, 0, false);
    const x = device.tensor(random(T * K, 7), [T, K]);
    const before = device.stats().tensors;
    const y = linearSwiglu(x, gate, up);
    expect(device.stats().tensors).toBe(before + 1);
    for (const tensor of [x, y]) tensor.dispose();
    parameters.dispose();
  });
});
