import { afterAll, describe, expect, it } from 'vitest';
import { call, isas, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, type Precision, stored } from './precision.js';

type Storage = 'f32' | 'bf16';
type Numbers = ArrayLike<number>;

/** Two f32 steps of numbers near 8, since a naive program may be exact by luck. */
const FEW = 2 ** -20;

/** P(N(0,1) ≤ x): by its Taylor series near 0, by its continued fraction in the tails. */
function normalCdf(x: number): number {
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  const size = Math.abs(x);
  let tail: number;
  if (size < 4) {
    let term = size;
    let sum = size;
    for (let k = 1; Math.abs(term) > 1e-18 * Math.abs(sum); k++) {
      term *= (size * size) / (2 * k + 1);
      sum += term;
    }
    tail = 0.5 - density * sum;
  } else {
    let fraction = size;
    for (let k = 60; k > 0; k--) fraction = size + k / fraction;
    tail = density / fraction;
  }
  return x < 0 ? tail : 1 - tail;
}

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const TANH = Math.sqrt(2 / Math.PI);

/** Each activation with its derivative, in double precision. */
const activations = {
  relu: {
    scalars: {},
    f: (x: number) => Math.max(x, 0),
    slope: (x: number, _: Precision = exact) => (x > 0 ? 1 : 0),
  },
  gelu_erf: {
    scalars: { tanh: false },
    f: (x: number) => x * normalCdf(x),
    slope: (x: number, _: Precision = exact) =>
      normalCdf(x) + (x * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI),
  },
  gelu_tanh: {
    scalars: { tanh: true },
    f: (x: number) => 0.5 * x * (1 + Math.tanh(TANH * (x + 0.044715 * x ** 3))),
    slope: (x: number, { sum }: Precision = exact) => {
      const t = sum(Math.tanh(TANH * (x + 0.044715 * x ** 3)));
      return 0.5 * (1 + t) + 0.5 * x * sum(1 - sum(t * t)) * TANH * (1 + 3 * 0.044715 * x * x);
    },
  },
} as const;

const tolerance = (truth: Numbers, plain: Numbers): number => 2 * maxDifference(truth, plain) + FEW;
const within = (found: Numbers, truth: Numbers, plain: Numbers): void =>
  expect(maxDifference(found, truth)).toBeLessThan(tolerance(truth, plain));

const spread = (n: number, seed: number): Float32Array => random(n, seed).map((v) => 9 * v);
const sizes = [0, 1, 15, 8192, 20_011] as const;
const dtypes: readonly Storage[] = ['f32', 'bf16'];

describe.each(isas)('mlp on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  describe.each(dtypes)('in %s', (dtype) => {
    it.each(Object.keys(activations) as (keyof typeof activations)[])('%s and its gradient', async (name) => {
      const { f, slope, scalars } = activations[name];
      const op = name.split('_')[0] as string;
      const p = naive(dtype);
      for (const n of sizes) {
        const x = stored(spread(n, 1), dtype);
        const dy = stored(random(n, 2), dtype);
        const t = { x: device.tensor(x, [n], dtype), dy: device.tensor(dy, [n], dtype) };
        const { y } = call(device, op, { x: t.x, ...scalars });
        const truth = Array.from(x, f);
        within(await y!.read(), truth, truth.map(p.store));
        const { dx } = call(device, `${op}_backward`, { ...t, ...scalars });
        const gradient = Array.from(x, (v, i) => dy[i]! * slope(v));
        within(
          await dx!.read(),
          gradient,
          Array.from(x, (v, i) => p.store(p.store(dy[i]!) * p.store(slope(v, p)))),
        );
      }
    });

    it('swiglu and its gradients', async () => {
      for (const [T, N] of [
        [0, 8],
        [1, 1],
        [3, 37],
        [41, 513],
      ] as const) {
        const [gate, up, dy] = [spread(T * N, 1), random(T * N, 2), random(T * N, 3)].map((v) =>
          stored(v, dtype),
        );
        const tensor = (v: Float32Array | undefined) => device.tensor(v!, [T, N], dtype);
        const t = { gate: tensor(gate), up: tensor(up), dy: tensor(dy) };
        const reference = (p: Precision) => ({
          y: Array.from(gate!, (g, i) => p.store(p.store(g * p.sum(sigmoid(g))) * up![i]!)),
          dgate: Array.from(gate!, (g, i) =>
            p.store(p.store(dy![i]! * up![i]!) * p.sum(sigmoid(g) * (1 + g * (1 - sigmoid(g))))),
          ),
          dup: Array.from(gate!, (g, i) => p.store(dy![i]! * p.store(g * p.sum(sigmoid(g))))),
        });
        const [truth, plain] = [reference(exact), reference(naive(dtype))];
        const { y } = device.ops.swiglu({ gate: t.gate, up: t.up });
        const { dgate, dup } = device.ops.swiglu_backward(t);
        within(await y.read(), truth.y, plain.y);
        within(await dgate.read(), truth.dgate, plain.dgate);
        within(await dup.read(), truth.dup, plain.dup);
      }
    });
  });

  it('exact GELU keeps its relative precision in the tail', async () => {
    const x = Float32Array.from({ length: 120 }, (_, i) => -i / 10);
    const y = await device.ops.gelu({ x: device.tensor(x), tanh: false }).y.read();
    x.forEach((v, i) => {
      const truth = v * normalCdf(v);
      expect(Math.abs(y[i]! - truth)).toBeLessThanOrEqual(1e-5 * Math.abs(truth));
    });
  });

  it('is finite at the ends of the range and passes NaN on', async () => {
    const x = device.tensor(Float32Array.of(-1e30, -200, 200, 1e30, Number.NaN));
    const ones = device.tensor(new Float32Array(5).fill(1));
    const expected = [0, 0, 200, 1e30, Number.NaN].map(Math.fround);
    const outputs = [
      device.ops.relu({ x }).y,
      device.ops.gelu({ x, tanh: false }).y,
      device.ops.swiglu({ gate: x.reshape([1, 5]), up: ones.reshape([1, 5]) }).y,
    ];
    for (const y of outputs) {
      const found = Array.from(await y.read(), (v) => (Math.abs(v) < 1e-7 ? 0 : v));
      expect(found).toEqual(expected);
    }
  });

  it('gives an element the same bits at any place', async () => {
    const x = spread(301, 4);
    const whole = await device.ops.gelu({ x: device.tensor(x), tanh: true }).y.read();
    for (const [begin, end] of [
      [0, 1],
      [5, 22],
      [100, 301],
    ] as const) {
      const part = await device.ops.gelu({ x: device.tensor(x.slice(begin, end)), tanh: true }).y.read();
      expect(Array.from(part)).toEqual(Array.from(whole.slice(begin, end)));
    }
  });

  it('runs each op as one parallel region', async () => {
    const x = device.tensor(random(30_000), [100, 300]);
    await device.synchronize();
    const before = device.stats().launches;
    device.ops.swiglu({ gate: x, up: x });
    device.ops.swiglu_backward({ dy: x, gate: x, up: x });
    device.ops.gelu({ x, tanh: true });
    device.ops.gelu_backward({ dy: x, x, tanh: false });
    device.ops.relu({ x });
    device.ops.relu_backward({ dy: x, x });
    await device.synchronize();
    expect(device.stats().launches - before).toBe(6);
  });
});
