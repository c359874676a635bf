// Several adapters in one batch: each row has what a batch of its own adapter gives it, whatever stands in the others'.
import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { isas, onGpu, openTest } from './devices.js';
import type { Storage } from './gemm-reference.js';
import { maxDifference, random } from './numbers.js';

const STEP = 32;
/** Ranks of the adapters: less than a panel, none, more than one, odd. */
const RANKS = [8, 0, 40, 3] as const;
const SCALES = Float32Array.of(0.75, 9, 1.5, 2);
const [N, K] = [70, 48];

const pairOf = (g: number) => ({
  a: random(RANKS[g]! * K, 10 + g),
  b: random(N * RANKS[g]!, 20 + g),
});

/** The stack with all pairs in it; `change` may put other values into one. */
function stackOf(device: Device, dtype: Storage, change: (g: number, values: Float32Array) => Float32Array) {
  const ranks: number[] = [];
  let end = 0;
  for (const rank of RANKS) {
    ranks.push(end, end + rank);
    end += Math.ceil(rank / STEP) * STEP;
  }
  const packed = (shape: readonly number[]) => device.ops.pack_weight({ w: device.zeros(shape), dtype }).y;
  const stack_a = packed([end, K]);
  const stack_b = packed([N, end]);
  RANKS.forEach((rank, g) => {
    if (rank === 0) return;
    const { a, b } = pairOf(g);
    const pair = { a: device.tensor(change(g, a), [rank, K]), b: device.tensor(change(g, b), [N, rank]) };
    device.ops.stack_lora({ ...pair, stack_a, stack_b, first: ranks[2 * g]! });
  });
  return {
    stack_a,
    stack_b,
    ranks: device.tensor(Int32Array.from(ranks), [RANKS.length, 2]),
    scales: device.tensor(SCALES),
  };
}

/** Runs of neighbours, changes at every row, and rows without an adapter. */
const adapterOf = (T: number) =>
  Int32Array.from({ length: T }, (_, t) => (t < T / 2 ? Math.floor(t / 5) % 5 : (t * 7) % 5) - 1);

async function stacked(
  device: Device,
  T: number,
  dtype: Storage,
  change: (g: number, values: Float32Array) => Float32Array = (_, values) => values,
) {
  const made = device.scope(() =>
    device.ops.linear({
      x: device.tensor(random(T * K, 1), [T, K], dtype),
      w: device.ops.pack_weight({ w: device.tensor(random(N * K, 2), [N, K]), dtype }).y,
      bias: device.tensor(random(N, 3), [N], dtype),
      adapter: device.tensor(adapterOf(T)),
      ...stackOf(device, dtype, change),
    }),
  );
  return made.y.readFloats();
}

/** The same rows of one adapter alone. */
async function alone(device: Device, T: number, dtype: Storage, g: number) {
  const { a, b } = g >= 0 && RANKS[g]! > 0 ? pairOf(g) : {};
  const made = device.scope(() =>
    device.ops.linear({
      x: device.tensor(random(T * K, 1), [T, K], dtype),
      w: device.ops.pack_weight({ w: device.tensor(random(N * K, 2), [N, K]), dtype }).y,
      bias: device.tensor(random(N, 3), [N], dtype),
      lora_a: a && device.tensor(a, [RANKS[g]!, K]),
      lora_b: b && device.tensor(b, [N, RANKS[g]!]),
      scale: g >= 0 ? SCALES[g]! : 1,
    }),
  );
  return made.y.readFloats();
}

describe.each(isas)('%s', (isa) => {
  const device = openTest(isa);
  afterAll(() => device.dispose());

  describe.each(['f32', 'bf16'] as const)('%s', (dtype) => {
    it.each([1, 4, 33, 70])('%i rows have what their adapter alone gives them', async (T) => {
      const found = await stacked(device, T, dtype);
      const single = new Map<number, Float32Array>();
      for (const g of [-1, 0, 1, 2, 3]) single.set(g, await alone(device, T, dtype, g));
      adapterOf(T).forEach((g, t) => {
        const row = found.subarray(t * N, (t + 1) * N);
        const expected = single.get(g)!.subarray(t * N, (t + 1) * N);
        if (onGpu(isa)) expect(maxDifference(row, expected)).toBeLessThan(dtype === 'f32' ? 1e-4 : 0.3);
        else expect(row).toEqual(expected);
      });
    });

    it('an adapter full of NaN or infinities changes no other row', async () => {
      const T = 33;
      const plain = await stacked(device, T, dtype);
      for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
        const found = await stacked(device, T, dtype, (g, values) => (g === 2 ? values.fill(value) : values));
        adapterOf(T).forEach((g, t) => {
          const row = found.subarray(t * N, (t + 1) * N);
          if (g === 2) expect(row.every(Number.isFinite)).toBe(false);
          else expect(row).toEqual(plain.subarray(t * N, (t + 1) * N));
        });
      }
    });
  });

  it('refuses adapters and ranks that are not there', async () => {
    const refused = async (adapter: number, ranks: readonly number[], message: string) => {
      const own = openTest(isa);
      const { stack_a, stack_b } = stackOf(own, 'f32', (_, values) => values);
      const { y } = own.ops.linear({
        x: own.zeros([2, K]),
        w: own.zeros([N, K]),
        stack_a,
        stack_b,
        adapter: own.tensor(Int32Array.of(0, adapter)),
        ranks: own.tensor(Int32Array.from(ranks), [1, 2]),
        scales: own.tensor(Float32Array.of(1)),
      });
      await expect(y.readFloats()).rejects.toThrow(message);
      own.dispose();
    };
    await refused(1, [0, 8], 'linear: adapter[1] is 1, outside -1..0');
    await refused(-2, [0, 8], 'linear: adapter[1] is -2, outside -1..0');
    await refused(-1, [0, 1000], 'linear: ranks[0] is 0..1000, expected an ascending pair in 0..');
    await refused(-1, [32, 8], 'linear: ranks[0] is 32..8, expected an ascending pair in 0..');
  });

  it('refuses half a stack, a stack beside a pair, and a pair that does not fit into it', async () => {
    const refused = async (args: object, message: string) => {
      const own = openTest(isa);
      const stack = stackOf(own, 'f32', (_, values) => values);
      const adapter = own.tensor(Int32Array.of(0));
      const all = { x: own.zeros([1, K]), w: own.zeros([N, K]), ...stack, adapter };
      own.ops.linear({ ...all, ...Object.fromEntries(Object.entries(args).map(([k, v]) => [k, v?.(own)])) });
      await expect(own.synchronize()).rejects.toThrow(message);
      own.dispose();
    };
    await refused({ scales: undefined }, 'linear: stack_a, stack_b, adapter, ranks and scales come together');
    await refused(
      { lora_a: (d: Device) => d.zeros([2, K]), lora_b: (d: Device) => d.zeros([N, 2]) },
      'linear: pass one LoRA pair or a stack of them, not both',
    );
    const own = openTest(isa);
    const { stack_a, stack_b } = stackOf(own, 'f32', (_, values) => values);
    const pair = { a: own.zeros([8, K]), b: own.zeros([N, 8]) };
    own.ops.stack_lora({ ...pair, stack_a, stack_b, first: 8 });
    await expect(own.synchronize()).rejects.toThrow('stack_lora: first is 8, expected a multiple of 32');
    own.dispose();
  });
});
