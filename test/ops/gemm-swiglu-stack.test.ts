// silu(gate)·up of rows of several adapters: each row has what linear_swiglu gives it with its adapter's pairs alone.
import { afterAll, describe, expect, it } from 'vitest';
import { linearSwiglu } from '../../src/ops/gemm.js';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { isas, onGpu, openTest } from './devices.js';
import { product, type Storage } from './gemm-reference.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, type Precision, stored } from './precision.js';

const STEP = 32;
const ADAPTERS = 4;
const SIDES = ['gate', 'up'] as const;
type Side = (typeof SIDES)[number];
/** Less than a panel, none, more than one, odd; gate and up of an adapter differ. */
const RANKS = { gate: [8, 0, 40, 3], up: [40, 16, 8, 0] } as const;
const SCALES = { gate: [0.75, 9, 1.5, 2], up: [0.5, 1.25, 1, 7] } as const;
const [N, K] = [70, 48];

type Change = (g: number, values: Float32Array) => Float32Array;
const unchanged: Change = (_, values) => values;

const seedOf = (side: Side) => (side === 'gate' ? 100 : 200);
const weightOf = (side: Side, dtype: Storage) => stored(random(N * K, seedOf(side)), dtype);
const pairOf = (side: Side, g: number) => ({
  a: random(RANKS[side][g]! * K, seedOf(side) + 10 + g),
  b: random(N * RANKS[side][g]!, seedOf(side) + 20 + g),
});

/** Runs of neighbours, changes at every row, and rows without an adapter. */
const adapterOf = (T: number) =>
  Int32Array.from({ length: T }, (_, t) => (t < T / 2 ? Math.floor(t / 5) % 5 : (t * 7) % 5) - 1);

/** The stack of one side, by the names of the op's inputs. */
function stackOf(device: Device, side: Side, dtype: Storage, change = unchanged) {
  const ranks: number[] = [];
  let end = 0;
  for (const rank of RANKS[side]) {
    ranks.push(end, end + rank);
    end += Math.ceil(rank / STEP) * STEP;
  }
  const packed = (shape: readonly number[]) => device.ops.pack_weight({ w: device.zeros(shape), dtype }).y;
  const stack_a = packed([end, K]);
  const stack_b = packed([N, end]);
  RANKS[side].forEach((rank, g) => {
    if (rank === 0) return;
    const { a, b } = pairOf(side, g);
    const pair = { a: device.tensor(change(g, a), [rank, K]), b: device.tensor(change(g, b), [N, rank]) };
    device.ops.stack_lora({ ...pair, stack_a, stack_b, first: ranks[2 * g]! });
  });
  return {
    stack_a,
    stack_b,
    ranks: device.tensor(Int32Array.from(ranks), [ADAPTERS, 2]),
    scales: device.tensor(Float32Array.from(SCALES[side])),
  };
}

const named = (side: Side, stack: ReturnType<typeof stackOf>) =>
  Object.fromEntries(Object.entries(stack).map(([name, tensor]) => [`${side}_${name}`, tensor]));

const packedWeight = (device: Device, side: Side, dtype: Storage) =>
  device.ops.pack_weight({ w: device.tensor(weightOf(side, dtype), [N, K]), dtype }).y;

/** What the op takes beside stacks, for T rows. */
const inputsOf = (device: Device, T: number, dtype: Storage) => ({
  x: device.tensor(random(T * K, 1), [T, K], dtype),
  w_gate: packedWeight(device, 'gate', dtype),
  w_up: packedWeight(device, 'up', dtype),
  adapter: device.tensor(adapterOf(T)),
});

const stacked = (
  device: Device,
  T: number,
  dtype: Storage,
  sides: readonly Side[] = SIDES,
  change = unchanged,
) =>
  device
    .scope(() =>
      device.ops.linear_swiglu_stack({
        ...inputsOf(device, T, dtype),
        ...Object.assign({}, ...sides.map((side) => named(side, stackOf(device, side, dtype, change)))),
      }),
    )
    .y.readFloats();

/** All rows with the pairs of adapter g, or of those of its sides. */
function alone(device: Device, T: number, dtype: Storage, g: number, sides: readonly Side[]) {
  const pair = (side: Side) => {
    const rank = g >= 0 && sides.includes(side) ? RANKS[side][g]! : 0;
    if (rank === 0) return {};
    const { a, b } = pairOf(side, g);
    return {
      [`${side}_a`]: device.tensor(a, [rank, K]),
      [`${side}_b`]: device.tensor(b, [N, rank]),
      [`${side}_scale`]: SCALES[side][g],
    };
  };
  const { y } = device.scope(() => {
    const { adapter: _, ...inputs } = inputsOf(device, T, dtype);
    return device.ops.linear_swiglu({ ...inputs, ...pair('gate'), ...pair('up') });
  });
  return y.readFloats();
}

/** linear with a stack for each side, then swiglu. */
function apart(device: Device, T: number, dtype: Storage) {
  const { y } = device.scope(() => {
    const { x, w_gate, w_up, adapter } = inputsOf(device, T, dtype);
    const side = (of: Side, w: Tensor) =>
      device.ops.linear({ x, w, adapter, ...stackOf(device, of, dtype) }).y;
    return device.ops.swiglu({ gate: side('gate', w_gate), up: side('up', w_up) });
  });
  return y.readFloats();
}

/** Row by row in the given arithmetic. */
function expected(T: number, dtype: Storage, p: Precision): number[] {
  const x = stored(random(T * K, 1), dtype);
  const row = (side: Side, t: number): number[] => {
    const own = x.subarray(t * K, (t + 1) * K);
    const frozen = product(own, weightOf(side, dtype), 1, N, K, p);
    const g = adapterOf(T)[t]!;
    const rank = g >= 0 ? RANKS[side][g]! : 0;
    if (rank === 0) return frozen.map(p.store);
    const { a, b } = pairOf(side, g);
    const low = product(own, Array.from(a, p.store), 1, rank, K, p).map(p.store);
    const spread = product(low, Array.from(b, p.store), 1, N, rank, p);
    return frozen.map((sum, n) => p.store(p.store(sum) + p.store(SCALES[side][g]! * p.store(spread[n]!))));
  };
  return Array.from({ length: T }, (_, t) => {
    const [gate, up] = [row('gate', t), row('up', t)];
    return gate.map((g, n) => p.store(p.store(g / (1 + Math.exp(-g))) * up[n]!));
  }).flat();
}

describe.each(isas)('%s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  describe.each(['f32', 'bf16'] as const)('linear_swiglu_stack in %s', (dtype) => {
    it('agrees with its definition', async () => {
      const T = 33;
      const [truth, plain] = [expected(T, dtype, exact), expected(T, dtype, naive(dtype))];
      const found = await stacked(device, T, dtype);
      expect(maxDifference(found, truth)).toBeLessThanOrEqual(2 * maxDifference(plain, truth) + 2 ** -22);
    });

    it.each([
      [1, SIDES],
      [4, SIDES],
      [16, SIDES],
      [33, ['gate']],
      [33, ['up']],
      [70, SIDES],
    ] as const)('%i rows have what the pairs of their adapter alone give them: %s', async (T, sides) => {
      const found = await stacked(device, T, dtype, sides);
      const single = new Map<number, Float32Array>();
      for (const g of [-1, 0, 1, 2, 3]) single.set(g, await alone(device, T, dtype, g, sides));
      adapterOf(T).forEach((g, t) => {
        const row = found.subarray(t * N, (t + 1) * N);
        const want = single.get(g)!.subarray(t * N, (t + 1) * N);
        const largest = want.reduce((most, value) => Math.max(most, Math.abs(value)), 1);
        if (onGpu(isa))
          expect(maxDifference(row, want)).toBeLessThan(largest * (dtype === 'f32' ? 1e-5 : 0.05));
        else expect(row).toEqual(want);
      });
    });

    it('has the bits of linear, linear, swiglu', async () => {
      for (const T of [1, 7, 40])
        expect(await stacked(device, T, dtype)).toEqual(await apart(device, T, dtype));
    });

    it('an adapter full of NaN or infinities changes no other row', async () => {
      const T = 33;
      const plain = await stacked(device, T, dtype);
      for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
        const found = await stacked(device, T, dtype, SIDES, (g, values) =>
          g === 2 ? values.fill(value) : values,
        );
        adapterOf(T).forEach((g, t) => {
          const row = found.subarray(t * N, (t + 1) * N);
          if (g === 2) expect(row.every(Number.isFinite)).toBe(false);
          else expect(row).toEqual(plain.subarray(t * N, (t + 1) * N));
        });
      }
    });
  });

  it('linearSwiglu of projections with stacks is this op', async () => {
    const { x, w_gate, w_up, adapter } = inputsOf(device, 5, 'bf16');
    const side = (of: Side, weight: Tensor) => {
      const { stack_a: a, stack_b: b, ranks, scales } = stackOf(device, of, 'bf16');
      return { weight: { name: of, value: weight }, stack: { pairs: { a, b, ranks, scales }, adapter } };
    };
    const [gate, up] = [side('gate', w_gate), side('up', w_up)];
    await device.synchronize();
    const before = device.stats().launches;
    const y = linearSwiglu(x, gate, up);
    await device.synchronize();
    if (!onGpu(isa)) expect(device.stats().launches - before).toBe(1);
    expect(await y.readFloats()).toEqual(await stacked(device, 5, 'bf16'));
  });

  it('accepts 0 rows', async () => {
    expect(await stacked(device, 0, 'bf16')).toHaveLength(0);
  });

  it.each([
    [
      'gate_scales',
      { gate_scales: undefined },
      'gate_stack_a, gate_stack_b, adapter, gate_ranks and gate_scales come',
    ],
    ['up_stack_a', { up_stack_a: undefined }, 'up_stack_a, up_stack_b, adapter, up_ranks and up_scales come'],
    ['an adapter', { adapter: [4] }, 'adapter[0] is 4, outside -1..3'],
    [
      'ranks',
      { adapter: [2], up_ranks: [0, 8, 0, 8, 0, 1000, 0, 8] },
      'up_ranks[2] is 0..1000, expected an ascending pair in 0..',
    ],
  ] as const)('refuses wrong %s', async (_, wrong, message) => {
    const own = openTest(isa);
    const changed = Object.entries(wrong).map(([name, values]: [string, readonly number[] | undefined]) => [
      name,
      values && own.tensor(Int32Array.from(values), values.length > 1 ? [ADAPTERS, 2] : [1]),
    ]);
    own.ops.linear_swiglu_stack({
      ...inputsOf(own, 1, 'f32'),
      ...named('gate', stackOf(own, 'gate', 'f32')),
      ...named('up', stackOf(own, 'up', 'f32')),
      ...Object.fromEntries(changed),
    });
    await expect(own.synchronize()).rejects.toThrow(`linear_swiglu_stack: ${message}`);
    own.dispose();
  });
});
