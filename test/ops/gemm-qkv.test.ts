// q, k and v of one op have the bits of a linear each, on both devices, whatever stands beside the weights.
import { afterAll, describe, expect, it } from 'vitest';
import { Tape } from '../../src/autograd/tape.js';
import { linear, linearQkv, type Projection } from '../../src/ops/gemm.js';
import type { Device } from '../../src/runtime/device.js';
import { call, isas, onGpu, openTest } from './devices.js';
import type { Storage } from './gemm-reference.js';
import { random } from './numbers.js';

/** Outputs of q, of k and of v, and inputs: grouped heads, ragged, one output, and none at all. */
const shapes = [
  [136, 40, 40, 64],
  [70, 24, 24, 47],
  [1, 9, 70, 104],
  [64, 0, 8, 16],
] as const;
type Shape = readonly [number, number, number, number];
const SIDES = ['q', 'k', 'v'] as const;
/** Pairs that differ from side to side; v has none. In stacks, adapter by adapter. */
const RANKS = [8, 40, 0] as const;
const STACKED = [
  [8, 0, 40],
  [3, 16, 8],
] as const;
const STEP = 32;

interface Beside {
  readonly bias?: boolean;
  readonly pairs?: boolean;
  readonly stacks?: boolean;
}
const besides: readonly Beside[] = [
  {},
  { bias: true },
  { pairs: true },
  { bias: true, pairs: true },
  { bias: true, stacks: true },
];

/** Runs of neighbours, changes at every row, rows without an adapter. */
const adapterOf = (T: number) =>
  Int32Array.from({ length: T }, (_, t) => (t < T / 2 ? Math.floor(t / 5) % 4 : (t * 3) % 4) - 1);

const parameter = (name: string, value: Projection['weight']['value']) => ({ name, value });

function stackOf(device: Device, side: number, N: number, K: number, dtype: Storage) {
  const ranks: number[] = [];
  let end = 0;
  for (const rank of STACKED[side]!) {
    ranks.push(end, end + rank);
    end += Math.ceil(rank / STEP) * STEP;
  }
  const packed = (shape: readonly number[]) => device.ops.pack_weight({ w: device.zeros(shape), dtype }).y;
  const [a, b] = [packed([end, K]), packed([N, end])];
  STACKED[side]!.forEach((rank, g) => {
    const pair = {
      a: device.tensor(random(rank * K, 50 + 10 * side + g), [rank, K]),
      b: device.tensor(random(N * rank, 80 + 10 * side + g), [N, rank]),
    };
    if (rank > 0) device.ops.stack_lora({ ...pair, stack_a: a, stack_b: b, first: ranks[2 * g]! });
  });
  return {
    a,
    b,
    ranks: device.tensor(Int32Array.from(ranks), [3, 2]),
    scales: device.tensor(Float32Array.of(0.5, 2, 1.25)),
  };
}

/** x and the three projections; v has no pair and no stack. */
function inputs(device: Device, T: number, shape: Shape, dtype: Storage, { bias, pairs, stacks }: Beside) {
  const K = shape[3];
  const adapter = device.tensor(adapterOf(T));
  const projections = SIDES.map((side, i): Projection => {
    const [N, r] = [shape[i]!, RANKS[i]!];
    const w = device.tensor(random(N * K, 2 + i), [N, K], dtype);
    const value = (values: Float32Array, of: readonly number[]) => parameter(side, device.tensor(values, of));
    return {
      weight: parameter(side, device.ops.pack_weight({ w, dtype }).y),
      bias: bias && i !== 1 ? parameter(side, device.tensor(random(N, 20 + i), [N], dtype)) : undefined,
      lora:
        pairs && r > 0
          ? {
              a: value(random(r * K, 30 + i), [r, K]),
              b: value(random(N * r, 40 + i), [N, r]),
              scale: i + 0.5,
            }
          : undefined,
      stack: stacks && i < 2 ? { pairs: stackOf(device, i, N, K, dtype), adapter } : undefined,
    };
  });
  const x = device.tensor(random(T * K, 1), [T, K], dtype);
  return { x, projections: projections as [Projection, Projection, Projection] };
}

describe.each(isas)('%s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  async function both(T: number, shape: Shape, dtype: Storage, beside: Beside) {
    const { x, projections } = inputs(device, T, shape, dtype, beside);
    await device.synchronize();
    const before = device.stats().launches;
    const together = linearQkv(x, ...projections);
    await device.synchronize();
    const launches = device.stats().launches - before;
    const apart = projections.map((of) => linear(x, of.weight, of));
    const read = async (of: typeof apart) => {
      const values: Float32Array[] = [];
      for (const tensor of of) values.push(await tensor.readFloats());
      return values;
    };
    return { together: await read(together), apart: await read(apart), launches };
  }

  describe.each(['f32', 'bf16'] as const)('linear_qkv in %s', (dtype) => {
    it.each(besides)('has the bits of three linears: %o', async (beside) => {
      for (const shape of shapes)
        for (const T of [0, 1, 4, 16, 64]) {
          const { together, apart, launches } = await both(T, shape, dtype, beside);
          expect(together, `${T} rows of ${shape}`).toEqual(apart);
          if (!onGpu(isa)) expect(launches).toBe(1);
        }
    });
  });

  it('takes one launch for rows of bf16', async () => {
    for (const T of [1, 16, 64]) {
      const { launches } = await both(T, [64, 16, 16, 64], 'bf16', { bias: true });
      expect(launches).toBe(1);
    }
  });

  it('leaves to linear what it does not know: pairs beside a stack, and whatever a tape records', async () => {
    const stacked = inputs(device, 5, shapes[0], 'f32', { stacks: true });
    const paired = inputs(device, 5, shapes[0], 'f32', { pairs: true });
    const mixed = [stacked.projections[0], paired.projections[1], paired.projections[2]] as const;
    const launchesOf = async (run: () => unknown) => {
      await device.synchronize();
      const before = device.stats().launches;
      run();
      await device.synchronize();
      return device.stats().launches - before;
    };
    if (!onGpu(isa)) expect(await launchesOf(() => linearQkv(stacked.x, ...mixed))).toBe(3);

    const apart: typeof linearQkv = (x, ...sides) => {
      const of = sides.slice(0, 3) as Projection[];
      const [q, k, v] = of.map((one) => linear(x, one.weight, one));
      return [q!, k!, v!];
    };
    const gradient = async (apply: typeof linearQkv) => {
      const { x, projections } = paired;
      const tape = new Tape(device);
      tape.watch(x);
      const made = device.scope(() => tape.run(() => apply(x, ...projections)));
      tape.backward(
        made.map((of, i) => [of, device.tensor(random(5 * shapes[0][i]!, 9), of.shape)] as const),
      );
      return tape.takeGradient(x)!.readFloats();
    };
    expect(await gradient(linearQkv)).toEqual(await gradient(apart));
  });

  it.each([
    ['linear_qkv', { q_a: [2, 8] }, 'linear_qkv: q_a and q_b come together; only q_a was given'],
    ['linear_qkv', { v_b: [4, 2] }, 'linear_qkv: v_a and v_b come together; only v_b was given'],
    ['linear_qkv_stack', { k_stack_a: [32, 8] }, 'k_stack_a, k_stack_b, adapter, k_ranks and k_scales come'],
    ['linear_qkv', { w_k: [4, 9] }, 'linear_qkv'],
  ] as const)('%s refuses %o', async (op, wrong, message) => {
    const own = openTest(isa);
    const made = Object.entries(wrong).map(([name, shape]) => [name, own.zeros(shape as readonly number[])]);
    const given = {
      x: own.zeros([3, 8]),
      ...Object.fromEntries(SIDES.map((side) => [`w_${side}`, own.zeros([4, 8])])),
      ...(op === 'linear_qkv' ? {} : { adapter: own.tensor(Int32Array.of(0, 0, 0)) }),
    };
    const run = async () => {
      call(own, op, { ...given, ...Object.fromEntries(made) });
      await own.synchronize();
    };
    await expect(run()).rejects.toThrow(message);
    own.dispose();
  });
});
