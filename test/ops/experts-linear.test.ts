import { afterAll, describe, expect, it } from 'vitest';
import { Tape } from '../../src/autograd/tape.js';
import { type ExpertProjection, expertWeight, linearExperts, stackWeight } from '../../src/ops/experts.js';
import { packQuantized, packWeight, unpackWeight } from '../../src/ops/gemm.js';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { isas, onGpu, openTest } from './devices.js';
import {
  dwBound,
  KEY,
  type Numbers,
  type Problem,
  reference,
  type Storage,
  tolerance,
} from './gemm-reference.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, stored, tensorCores } from './precision.js';
import { blockWeights, goldenWeights } from './quantized-weights.js';

/** Rows of each expert, N, K, r: none, one, several tiles, more than a block; odd extents, several panels, wide ranks. */
const sizes = [
  [[1], 1, 1, 1],
  [[0, 3, 0, 1, 5], 33, 7, 2],
  [[8, 0, 20, 1, 0, 0], 70, 64, 8],
  [[170, 2, 0, 37], 65, 130, 40],
] as const;
type Size = readonly [rows: readonly number[], N: number, K: number, r: number];
type Names = 'y' | 'u' | 'dx' | 'v' | 'da' | 'db' | 'dw';
const RESULTS: readonly Names[] = ['y', 'u', 'dx', 'v', 'da', 'db', 'dw'];

interface Experts {
  readonly size: Size;
  readonly each: readonly Problem[];
  readonly offsets: Int32Array;
}

function expertsOf(size: Size, rows: Storage, weights: Storage, dropout = 0): Experts {
  const [counts, N, K, r] = size;
  const offsets = Int32Array.from([0, ...counts], (_, e) => counts.slice(0, e).reduce((a, b) => a + b, 0));
  const each = counts.map((T, e): Problem => {
    const first = offsets[e]!;
    return {
      ...{ T, N, K, r, scale: 0.75, dropout },
      x: stored(random(T * K, 10 * e + 1), rows),
      w: stored(random(N * K, 10 * e + 2), weights),
      a: random(r * K, 10 * e + 4),
      b: random(N * r, 10 * e + 5),
      dy: stored(random(T * N, 10 * e + 6), rows),
      rowIds: Int32Array.from({ length: T }, (_, t) => 100 + Math.floor((first + t) / 5)),
      positions: Int32Array.from({ length: T }, (_, t) => (first + t) % 5),
    };
  });
  return { size, each, offsets };
}

const joined = (all: readonly Numbers[]) => Float32Array.from(all.flatMap((part) => Array.from(part)));

/** The tensors of all experts: what lies by expert as [E, …], what lies by row as [S, …]. */
function upload(
  device: Device,
  { size, each, offsets }: Experts,
  rows: Storage,
  weights: Storage,
  packed: boolean,
) {
  const [counts, N, K, r] = size;
  const [E, S] = [counts.length, offsets.at(-1) as number];
  const all = (name: 'x' | 'dy' | 'a' | 'b' | 'w', shape: readonly number[], dtype: Storage) =>
    device.tensor(joined(each.map((problem) => problem[name])), shape, dtype);
  const ints = (name: 'rowIds' | 'positions') =>
    device.tensor(Int32Array.from(joined(each.map((p) => p[name]))));
  let w = all('w', [E, N, K], weights);
  if (packed) {
    const one = w;
    let stack: Tensor | undefined;
    for (let e = 0; e < E; e++) stack = stackWeight(packWeight(expertWeight(one, e), weights), e, E, stack);
    w = stack as Tensor;
  }
  return {
    x: all('x', [S, K], rows),
    dy: all('dy', [S, N], rows),
    w,
    offsets: device.tensor(offsets),
    lora_a: all('a', [E, r, K], 'f32'),
    lora_b: all('b', [E, N, r], 'f32'),
    row_ids: ints('rowIds'),
    positions: ints('positions'),
  };
}

const scalarsOf = (dropout: number) => ({ scale: 0.75, dropout, key0: KEY[0], key1: KEY[1] });

/** Every op of the family, on gradients that hold `held` before. */
async function run(
  device: Device,
  experts: Experts,
  given: ReturnType<typeof upload>,
  dropout: number,
  held = 0,
) {
  const [counts, N, K, r] = experts.size;
  const E = counts.length;
  const { x, dy, w, offsets, row_ids, positions, ...pair } = given;
  const scalars = scalarsOf(dropout);
  const { ops } = device;
  const { y, u } = ops.linear_experts({ x, w, offsets, ...pair, row_ids, positions, ...scalars, u: true });
  const { dx, v } = ops.linear_experts_dx({
    dy,
    w,
    offsets,
    ...pair,
    row_ids,
    positions,
    ...scalars,
    v: true,
  });
  const filled = (shape: readonly number[]) => {
    const tensor = device.empty(shape);
    ops.fill({ x: tensor, value: held });
    return tensor;
  };
  const [da, db, dw] = [filled([E, r, K]), filled([E, N, r]), filled([E, N, K])];
  ops.linear_experts_lora_grads({ x, dy, u, v, offsets, da, db, row_ids, positions, ...scalars });
  ops.linear_experts_dw({ x, dy, offsets, dw });
  return read({ y, u, dx, v, da, db, dw });
}

async function read(tensors: Record<Names, Tensor>): Promise<Record<Names, Float32Array>> {
  const made = {} as Record<Names, Float32Array>;
  for (const name of RESULTS) made[name] = await tensors[name].readFloats();
  return made;
}

/** The same by linear, linear_dx and linear_dw of each expert. */
async function one(
  device: Device,
  experts: Experts,
  given: ReturnType<typeof upload>,
  dropout: number,
  held = 0,
) {
  const [, N, K, r] = experts.size;
  const { ops } = device;
  const scalars = scalarsOf(dropout);
  const parts: Record<Names, Float32Array>[] = [];
  for (const [e, { T }] of experts.each.entries()) {
    const [first, last] = [experts.offsets[e] as number, experts.offsets[e + 1] as number];
    const rows = (of: Tensor) => of.slice(first, last);
    const [x, dy, row_ids, positions] = [given.x, given.dy, given.row_ids, given.positions].map(rows) as [
      Tensor,
      Tensor,
      Tensor,
      Tensor,
    ];
    const [w, lora_a, lora_b] = [given.w, given.lora_a, given.lora_b].map((of) => expertWeight(of, e)) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    const lora = { lora_a, lora_b, row_ids, positions, ...scalars };
    const { y, u } = ops.linear({ x, w, ...lora, u: true });
    const [da, db, dw] = [
      [r, K],
      [N, r],
      [N, K],
    ].map((shape) => {
      const tensor = device.empty(shape);
      ops.fill({ x: tensor, value: held });
      return tensor;
    }) as [Tensor, Tensor, Tensor];
    const { dx, v } = ops.linear_dx({ dy, w, ...lora, x, u, da, db, v: true });
    if (T > 0) ops.linear_dw({ x, dy, dw });
    parts.push(await read({ y, u, dx, v, da, db, dw }));
  }
  return Object.fromEntries(RESULTS.map((name) => [name, joined(parts.map((part) => part[name]))]));
}

describe.each(isas)('linears of experts on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  const many = openTest(isa, { threads: 5 });
  afterAll(() => {
    device.dispose();
    many.dispose();
  });

  describe.each([
    ['f32', 'f32', true],
    ['bf16', 'bf16', true],
    ['f32', 'f32', false],
    ['bf16', 'f32', false],
    ['bf16', 'f32', true],
  ] as const)('%s rows, %s weights, packed: %s', (rows, weights, packed) => {
    it.each(sizes)('%j rows, %d outputs, %d features, rank %d', async (...size) => {
      for (const dropout of [0, 0.4]) {
        const experts = expertsOf(size, rows, weights, dropout);
        const plain = onGpu(isa) && rows === 'bf16' ? tensorCores : naive(rows);
        const got = await run(device, experts, upload(device, experts, rows, weights, packed), dropout);
        const want = experts.each.map((problem) => reference(problem, exact));
        const low = experts.each.map((problem) => reference(problem, plain));
        for (const name of RESULTS) {
          const [all, naively] = [want, low].map((of) => joined(of.map((each) => each[name])));
          const bound =
            name === 'dw' && plain === tensorCores
              ? Math.max(...experts.each.filter(({ T }) => T > 0).map(dwBound))
              : tolerance(naively!, all!, rows);
          expect(maxDifference(got[name], all!), name).toBeLessThanOrEqual(bound);
        }
      }
    });

    it.skipIf(onGpu(isa))('have the bits of linears of one expert each, at any thread count', async () => {
      for (const size of [...sizes, [[0, 1200, 3], 40, 35, 4], [[1, 0, 1, 2, 1], 200, 2048, 16]] as const) {
        for (const dropout of [0, 0.3]) {
          const experts = expertsOf(size, rows, weights, dropout);
          const given = upload(device, experts, rows, weights, packed);
          const want = await one(device, experts, given, dropout, 0.5);
          expect(await run(device, experts, given, dropout, 0.5), `${size}`).toEqual(want);
          const others = upload(many, experts, rows, weights, packed);
          expect(await run(many, experts, others, dropout, 0.5), `${size}`).toEqual(want);
        }
      }
    });
  });

  it.each(
    [...goldenWeights().weights, ...blockWeights([70, 256])].map((weight) => [weight.name, weight] as const),
  )(
    'multiplies experts of format %s like the weights that they stand for',
    async (_, { bytes, format, shape, values }) => {
      const [N, K] = shape;
      const E = 4;
      for (const dtype of ['f32', 'bf16'] as const) {
        for (const counts of [
          [1, 0, 3, 6],
          [33, 5, 0, 0],
        ]) {
          const S = counts.reduce((a, b) => a + b, 0);
          const offsets = device.tensor(
            Int32Array.from([0, ...counts], (_, e) => counts.slice(0, e).reduce((a, b) => a + b, 0)),
          );
          const x = device.tensor(random(S * K, 1), [S, K], dtype);
          const dy = device.tensor(random(S * N, 2), [S, N], dtype);
          const [quantised, plain] = device.scope(() => {
            let [codes, floats]: (Tensor | undefined)[] = [];
            for (let e = 0; e < E; e++) {
              const own = bytes.slice();
              // Experts differ in a code, the first one of each format's bytes that is no scale of q4_0 … q8_0.
              own[20] = (own[20]! + 16 * e) & 255;
              const packed = packQuantized(device.tensor(own), format, shape);
              codes = stackWeight(packed, e, E, codes);
              floats = stackWeight(packWeight(unpackWeight(packed, 'f32'), dtype), e, E, floats);
            }
            return [codes as Tensor, floats as Tensor] as const;
          });
          expect(await unpackWeight(expertWeight(quantised, 0), 'f32').readFloats()).toEqual(values);
          const products = (w: Tensor) => device.ops.linear_experts({ x, w, offsets }).y.readFloats();
          const gradients = (w: Tensor) => device.ops.linear_experts_dx({ dy, w, offsets }).dx.readFloats();
          expect(await gradients(quantised), `dx ${dtype}`).toEqual(await gradients(plain));
          // On a CPU the bits of the weight alone, which may be multiplied by other rules than the values that it stands for.
          const ends = counts.map((_, e) => counts.slice(0, e + 1).reduce((a, b) => a + b, 0));
          const alone = () =>
            Promise.all(
              ends.map((end, e) => {
                const rows = x.slice(end - counts[e]!, end);
                return device.ops.linear({ x: rows, w: expertWeight(quantised, e) }).y.readFloats();
              }),
            ).then(joined);
          expect(await products(quantised), `y ${dtype}`).toEqual(
            onGpu(isa) ? await products(plain) : await alone(),
          );
        }
      }
    },
  );

  it('multiplies rows of no adapter and of several, each with its own pair and scale on the weight of the expert', async () => {
    const [E, N, K, r] = [3, 40, 33, 5];
    const counts = [2, 0, 1, 9, 3, 0, 0, 17, 1];
    const scales = Float32Array.of(0.5, 0.5, 0.5, 1.7, 1.7, 1.7);
    for (const dtype of ['f32', 'bf16'] as const) {
      const groups = expertsOf([counts, N, K, r], dtype, dtype);
      const { w: all, x, offsets, ...each } = upload(device, groups, dtype, dtype, true);
      const [w, lora_a, lora_b] = [all.slice(0, E), each.lora_a.slice(E, 9), each.lora_b.slice(E, 9)];
      const given = { x, w, offsets, lora_a, lora_b, scales: device.tensor(scales) };
      const y = await device.ops.linear_experts(given).y.readFloats();
      const problems = groups.each.map((problem, p) => {
        const { w } = groups.each[p % E]!;
        return { ...problem, w, scale: scales[p - E] ?? 0 };
      });
      const [exactly, naively] = [exact, onGpu(isa) && dtype === 'bf16' ? tensorCores : naive(dtype)].map(
        (as) => joined(problems.map((problem) => reference(problem, as).y)),
      );
      expect(maxDifference(y, exactly!)).toBeLessThanOrEqual(tolerance(naively!, exactly!, dtype));
      if (onGpu(isa)) continue;
      const alone = counts.map((_, p) => {
        const rows = x.slice(groups.offsets[p]!, groups.offsets[p + 1]!);
        const pair = p >= E && {
          lora_a: expertWeight(lora_a, p - E),
          lora_b: expertWeight(lora_b, p - E),
          scale: scales[p - E]!,
        };
        return device.ops.linear({ x: rows, w: expertWeight(w, p % E), ...pair }).y.readFloats();
      });
      expect(y).toEqual(joined(await Promise.all(alone)));
    }
  });

  it.each([
    [
      'groups of no expert',
      { groups: 4 },
      'offsets have 4 groups, expected a multiple of the 3 experts of w',
    ],
    ['scales of no pair', { groups: 3, scales: true }, "scales are the LoRA pairs'"],
    ['more pairs than groups', { groups: 3, pairs: 4 }, 'lora_a has 4 pairs, expected at most the 3 groups'],
    ['u of groups without a pair', { groups: 6, pairs: 3, u: true }, "u is the LoRA pairs'"],
  ] as const)('refuses %s', async (_, given, message) => {
    const [E, N, K, r] = [3, 8, 6, 2];
    const { groups, pairs, scales, u } = { pairs: 0, scales: false, u: false, ...given };
    const own = openTest(isa);
    own.ops.linear_experts({
      ...{ x: own.zeros([2, K]), w: own.zeros([E, N, K]), u },
      offsets: own.tensor(Int32Array.from({ length: groups + 1 }, (_, p) => (p ? 2 : 0))),
      ...(pairs > 0 && { lora_a: own.zeros([pairs, r, K]), lora_b: own.zeros([pairs, N, r]) }),
      ...(scales && { scales: own.zeros([3]) }),
    });
    await expect(own.synchronize()).rejects.toThrow(`linear_experts: ${message}`);
    own.dispose();
  });

  it('adds to the dx that it is given, and needs no pair', async () => {
    const experts = expertsOf([[4, 0, 9], 40, 50, 1], 'f32', 'f32');
    const { dy, w, offsets, x } = upload(device, experts, 'f32', 'f32', true);
    const held = random(13 * 50, 8);
    const dx = device.tensor(held, [13, 50]);
    device.ops.linear_experts_dx({ dy, w, offsets, dx, accumulate: true });
    const { dx: alone } = device.ops.linear_experts_dx({ dy, w, offsets });
    const { z } = device.ops.add({ x: alone, y: device.tensor(held, [13, 50]) });
    expect(await dx.readFloats()).toEqual(await z.readFloats());
    const want = joined(experts.each.map((problem) => reference({ ...problem, scale: 0 }, exact).y));
    const { y } = device.ops.linear_experts({ x, w, offsets });
    expect(maxDifference(await y.readFloats(), want)).toBeLessThan(1e-5);
  });

  it('brings gradients to the rows, the pairs and a trained weight', async () => {
    const size = [[2, 0, 3], 4, 6, 2] as const;
    const experts = expertsOf(size, 'f32', 'f32', 0.3);
    const given = upload(device, experts, 'f32', 'f32', false);
    const dropout = { rate: 0.3, key: KEY, rowIds: given.row_ids, positions: given.positions };
    const trained = (name: string, value: Tensor) => ({ name, value, grad: device.zeros(value.shape) });
    const [weight, a, b] = [trained('w', given.w), trained('a', given.lora_a), trained('b', given.lora_b)];
    const projection: ExpertProjection = { weight, lora: { a, b, scale: 0.75 }, dropout };
    const tape = new Tape(device);
    tape.watch(given.x);
    const y = tape.run(() => linearExperts(given.x, projection, given.offsets));
    tape.backward([[y, given.dy]]);
    const dx = tape.takeGradient(given.x) as Tensor;
    const loss = async () => {
      const { y } = device.ops.linear_experts({
        ...{ x: given.x, w: given.w, offsets: given.offsets, lora_a: given.lora_a, lora_b: given.lora_b },
        ...{ row_ids: given.row_ids, positions: given.positions, ...scalarsOf(0.3) },
      });
      const [values, dy] = [await y.readFloats(), await given.dy.readFloats()];
      return values.reduce((total, value, i) => total + value * dy[i]!, 0);
    };
    for (const [name, value, gradient] of [
      ['x', given.x, dx],
      ['w', given.w, weight.grad],
      ['a', given.lora_a, a.grad],
      ['b', given.lora_b, b.grad],
    ] as const) {
      const values = await value.readFloats();
      const slopes: number[] = [];
      for (let i = 0; i < values.length; i++) {
        const sides: number[] = [];
        for (const step of [0.25, -0.25]) {
          value.write(values.map((each, at) => (at === i ? each + step : each)));
          sides.push(await loss());
        }
        slopes.push((sides[0]! - sides[1]!) / 0.5);
      }
      value.write(values);
      expect(Math.max(...slopes.map(Math.abs)), name).toBeGreaterThan(0.1);
      expect(maxDifference(await gradient.readFloats(), slopes), name).toBeLessThan(2e-5);
    }
    tape.dispose();
  });

  it('accepts no rows, and no experts', async () => {
    for (const counts of [[0, 0, 0], []]) {
      const experts = expertsOf([counts, 6, 10, 2], 'bf16', 'bf16');
      const got = await run(device, experts, upload(device, experts, 'bf16', 'f32', false), 0.1, 2);
      const E = counts.length;
      for (const name of ['y', 'u', 'dx', 'v'] as const) expect(got[name]).toHaveLength(0);
      expect(got.da).toEqual(new Float32Array(E * 20).fill(2));
      expect(got.db).toEqual(new Float32Array(E * 12).fill(2));
      expect(got.dw).toEqual(new Float32Array(E * 60).fill(2));
    }
  });

  it('keeps NaN of a row, and of the weight of an expert, to their own', async () => {
    const experts = expertsOf([[3, 2, 0, 4], 35, 9, 2], 'bf16', 'bf16');
    const { x, w, offsets } = upload(device, experts, 'bf16', 'bf16', false);
    const values = await x.readFloats();
    values[4 * 9 + 8] = Number.NaN;
    x.write(values);
    const weights = await w.readFloats();
    weights.fill(Number.NaN, 2 * 35 * 9, 3 * 35 * 9);
    w.write(weights);
    const y = await device.ops.linear_experts({ x, w, offsets }).y.readFloats();
    const rows = Array.from({ length: 9 }, (_, t) => y.slice(t * 35, t * 35 + 35).some(Number.isNaN));
    expect(rows.flatMap((bad, t) => (bad ? [t] : []))).toEqual([4]);
  });

  it.each([
    ['do not begin at 0', [1, 2, 5], 'offsets[0] is 1, expected 0'],
    ['descend', [0, 6, 5], 'offsets[2] is 5, below the 6 before it'],
    ['end before the last row', [0, 2, 4], 'offsets ends at 4, expected 5'],
    ['end after it', [0, 2, 6], 'offsets ends at 6, expected 5'],
  ])('refuses offsets that %s', async (_, offsets, message) => {
    for (const op of [
      'linear_experts',
      'linear_experts_dx',
      'linear_experts_lora_grads',
      'linear_experts_dw',
    ]) {
      const other = openTest(isa);
      const given = upload(other, expertsOf([[2, 3], 4, 6, 2], 'f32', 'f32'), 'f32', 'f32', false);
      const { x, dy, w } = given;
      const at = other.tensor(Int32Array.from(offsets));
      const [u, v] = [other.zeros([5, 2]), other.zeros([5, 2])];
      if (op === 'linear_experts') other.ops.linear_experts({ x, w, offsets: at });
      else if (op === 'linear_experts_dx') other.ops.linear_experts_dx({ dy, w, offsets: at });
      else if (op === 'linear_experts_dw') other.ops.linear_experts_dw({ x, dy, offsets: at, dw: w });
      else
        other.ops.linear_experts_lora_grads({ x, dy, u, v, offsets: at, da: given.lora_a, db: given.lora_b });
      await expect(other.synchronize()).rejects.toThrow(`${op}: ${message}`);
      other.dispose();
    }
  });

  it('refuses what does not belong together', () => {
    const { x, w, offsets, lora_a, lora_b } = upload(
      device,
      expertsOf([[2, 3], 4, 6, 2], 'f32', 'f32'),
      'f32',
      'f32',
      true,
    );
    const { ops } = device;
    expect(() => ops.linear_experts({ x, w: expertWeight(w, 0), offsets })).toThrow(
      'linear_experts: w must be [E,N,K], got [4,6]',
    );
    expect(() => ops.linear_experts({ x, w, offsets, lora_a, lora_b: lora_b.slice(0, 1) })).toThrow(
      'linear_experts: lora_b must be [G,N,r] with G = 2, got [1,4,2]',
    );
    const three = device.tensor(Int32Array.from([0, 2, 5, 5]));
    expect(() => ops.linear_experts_dx({ dy: device.zeros([5, 4]), w, offsets: three })).toThrow(
      'linear_experts_dx: offsets must be [E+1] with E = 2, got [4]',
    );
    expect(() => ops.unpack_weight({ w, dtype: 'f32' })).toThrow(
      'unpack_weight: w must be [N,K], got [2,4,6]',
    );
  });
});

describe.each(isas)('weights in their places on %s', (isa) => {
  const device = openTest(isa);
  afterAll(() => device.dispose());

  it('are views that ops read and write', async () => {
    const [E, N, K] = [3, 35, 10];
    const values = [1, 2, 3].map((seed) => random(N * K, seed));
    const w = values.map((each) => device.tensor(each, [N, K]));
    let stack: Tensor | undefined;
    for (const e of [2, 0, 1]) stack = stackWeight(packWeight(w[e]!, 'f32'), e, E, stack);
    const all = stack as Tensor;
    expect([all.shape, all.dtype]).toEqual([[E, N, K], 'f32']);
    for (let e = 0; e < E; e++)
      expect(await unpackWeight(expertWeight(all, e), 'f32').readFloats()).toEqual(values[e]);
    device.ops.pack_weight({ w: w[0]!, dtype: 'f32', y: expertWeight(all.slice(1, 3), 1) });
    for (const [e, of] of [0, 1, 0].entries())
      expect(await unpackWeight(expertWeight(all, e), 'f32').readFloats()).toEqual(values[of]);
  });

  it('are written by pack_quantized', async () => {
    const [{ bytes, format, shape, values }] = blockWeights() as [ReturnType<typeof blockWeights>[number]];
    const w = packQuantized(device.tensor(new Uint8Array(bytes.length)), format, shape);
    const stack = stackWeight(w, 1, 2, stackWeight(w, 0, 2));
    const [N, K] = shape;
    device.ops.pack_quantized({ bytes: device.tensor(bytes), format, N, K, y: expertWeight(stack, 1) });
    expect(await unpackWeight(expertWeight(stack, 1), 'f32').readFloats()).toEqual(values);
    expect(
      (await unpackWeight(expertWeight(stack, 0), 'f32').readFloats()).every((value) => value === 0),
    ).toBe(true);
  });

  it('refuse views across them, others of another layout, and places that there are not', async () => {
    const w = device.tensor(random(40), [5, 8]);
    const packed = packWeight(w, 'bf16');
    const stack = stackWeight(packed, 0, 2);
    for (const view of [() => stack.view(8, [5, 8]), () => stack.view(0, [8, 5]), () => stack.view(0, [80])])
      expect(view).toThrow('a view of a packed weight is that weight, or whole ones of several');
    expect(() => stack.view(40, [2, 5, 8])).toThrow('a view of 80 elements at 40 does not fit into 80');
    expect(() => stackWeight(w, 0, 2, stack)).toThrow('stack_weight: stack must be f32, got bf16');
    expect(() => stackWeight(packWeight(w, 'f32'), 0, 2, device.empty([2, 5, 8]))).toThrow(
      'stack_weight: stack must be a packed weight',
    );
    expect(() => stackWeight(w, 0, 2, stackWeight(packWeight(w, 'f32'), 0, 2))).toThrow(
      'stack_weight: stack must not be a packed weight',
    );
    expect(() => device.ops.pack_weight({ w, dtype: 'f32', y: device.empty([5, 8]) })).toThrow(
      'pack_weight: y must be a packed weight',
    );
    const bytes = device.empty([5 * 8 + 20], 'u8');
    expect(() =>
      device.ops.pack_quantized({ bytes, format: 'int8', N: 5, K: 8, y: device.empty([5, 8], 'u8') }),
    ).toThrow('pack_quantized: y must have the format int8, got none');
    for (const expert of [-1, 2]) {
      const other = openTest(isa);
      stackWeight(other.tensor(random(40), [5, 8]), expert, 2);
      await expect(other.synchronize()).rejects.toThrow(`stack_weight: expert is ${expert}, outside 0..1`);
      other.dispose();
    }
  });

  it('take no gradient before the backward, where gradients come and go', () => {
    const [E, N, K] = [2, 32, 8];
    let taken = 0;
    const weight = {
      name: 'experts',
      value: device.zeros([E, N, K]),
      get grad() {
        taken++;
        return device.zeros([E, N, K]);
      },
    };
    const offsets = device.tensor(Int32Array.from([0, 1, 3]));
    const x = device.zeros([3, K]);
    const tape = new Tape(device);
    const y = tape.run(() => linearExperts(x, { weight }, offsets));
    expect(y.shape).toEqual([3, N]);
    expect(taken).toBe(0);
    tape.dispose();
  });
});
