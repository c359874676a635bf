import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { unlessEmulated } from '../cuda/gpu.js';
import { isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, type Precision, stored } from './precision.js';

type Storage = 'f32' | 'bf16';

interface Case {
  readonly lengths: readonly number[];
  readonly heads: number;
  readonly kvHeads: number;
  readonly size: number;
  readonly causal?: boolean;
  readonly window?: number;
  /** Branch of every token; all 0 where absent. */
  readonly branch?: Int32Array;
}

interface Values {
  readonly q: Float32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;
  readonly dout: Float32Array;
}

interface Results {
  readonly o: Float64Array;
  readonly lse: Float64Array;
  readonly dq: Float64Array;
  readonly dk: Float64Array;
  readonly dv: Float64Array;
}

const tokensOf = (c: Case) => c.lengths.reduce((a, b) => a + b, 0);

function offsets(lengths: readonly number[]): Int32Array {
  const cu = new Int32Array(lengths.length + 1);
  for (const [s, length] of lengths.entries()) cu[s + 1] = cu[s]! + length;
  return cu;
}

function valuesOf(c: Case, dtype: Storage, seed = 1): Values {
  const [queries, keys] = [tokensOf(c) * c.heads * c.size, tokensOf(c) * c.kvHeads * c.size];
  const of = (n: number, part: number) =>
    stored(
      random(n, seed * 10 + part).map((x) => 2 * x),
      dtype,
    );
  return { q: of(queries, 1), k: of(keys, 2), v: of(keys, 3), dout: of(queries, 4) };
}

/** Attention and its gradient, one query after the other; `p` rounds every tensor that a plain program would store. */
function reference(c: Case, { q, k, v, dout }: Values, { store, sum }: Precision): Results {
  const { heads, kvHeads, size } = c;
  const tokens = tokensOf(c);
  const scale = Math.fround(1 / Math.sqrt(size));
  const result: Results = {
    o: new Float64Array(q.length),
    lse: new Float64Array(heads * tokens),
    dq: new Float64Array(q.length),
    dk: new Float64Array(k.length),
    dv: new Float64Array(v.length),
  };
  const dot = (a: Float32Array | Float64Array, at: number, b: Float32Array, bt: number) => {
    let total = 0;
    for (let d = 0; d < size; d++) total = sum(total + a[at + d]! * b[bt + d]!);
    return total;
  };
  const cu = offsets(c.lengths);
  for (const [s, length] of c.lengths.entries()) {
    for (let i = 0; i < length; i++) {
      const row = cu[s]! + i;
      const keys: number[] = [];
      for (let j = 0; j < length; j++) {
        const own = c.branch?.[cu[s]! + j] ?? 0;
        if (c.causal && j > i) continue;
        if (c.window && i - j >= c.window) continue;
        if (own === 0 || own === c.branch?.[row]) keys.push(cu[s]! + j);
      }
      for (let h = 0; h < heads; h++) {
        const at = (row * heads + h) * size;
        const kv = (key: number) => (key * kvHeads + Math.floor(h / (heads / kvHeads))) * size;
        const scores = keys.map((key) => store(store(dot(q, at, k, kv(key))) * scale));
        const top = Math.max(...scores);
        const total = scores.reduce((a, x) => sum(a + sum(Math.exp(sum(x - top)))), 0);
        const p = scores.map((x) => store(Math.exp(sum(x - top)) / total));
        result.lse[h * tokens + row] = sum(top + Math.log(total));
        for (let d = 0; d < size; d++)
          result.o[at + d] = store(keys.reduce((a, key, n) => sum(a + p[n]! * v[kv(key) + d]!), 0));
        const delta = dot(result.o, at, dout, at);
        for (const [n, key] of keys.entries()) {
          const ds = store(store(p[n]! * sum(store(dot(dout, at, v, kv(key))) - delta)) * scale);
          for (let d = 0; d < size; d++) {
            result.dq[at + d] = sum(result.dq[at + d]! + ds * k[kv(key) + d]!);
            result.dk[kv(key) + d] = sum(result.dk[kv(key) + d]! + ds * q[at + d]!);
            result.dv[kv(key) + d] = sum(result.dv[kv(key) + d]! + p[n]! * dout[at + d]!);
          }
        }
      }
    }
  }
  return {
    ...result,
    dq: result.dq.map(store),
    dk: result.dk.map(store),
    dv: result.dv.map(store),
  };
}

const settings = (c: Case) => ({
  causal: c.causal ?? false,
  window: c.window ?? 0,
  scale: Math.fround(1 / Math.sqrt(c.size)),
});

/** Both ops on the device, by name of output. */
async function run(
  device: Device,
  c: Case,
  values: Values,
  dtype: Storage,
): Promise<Record<keyof Results, Float32Array>> {
  const tokens = tokensOf(c);
  const queries = [tokens, c.heads, c.size];
  const keys = [tokens, c.kvHeads, c.size];
  const inputs = {
    q: device.tensor(values.q, queries, dtype),
    k: device.tensor(values.k, keys, dtype),
    v: device.tensor(values.v, keys, dtype),
    cu_seqlens: device.tensor(offsets(c.lengths)),
    ...(c.branch && { branch: device.tensor(c.branch) }),
  };
  const forward = device.ops.attention({ ...inputs, ...settings(c) });
  const upstream = { do: device.tensor(values.dout, queries, dtype) };
  const backward = device.ops.attention_backward({ ...inputs, ...forward, ...upstream, ...settings(c) });
  const read: [string, Float32Array][] = [];
  for (const [name, tensor] of Object.entries({ ...forward, ...backward }))
    read.push([name, await tensor.readFloats()]);
  for (const tensor of Object.values({ ...inputs, ...forward, ...upstream, ...backward })) tensor.dispose();
  return Object.fromEntries(read) as Record<keyof Results, Float32Array>;
}

/** A trunk, then two alternating branches; in the second sequence all branches follow the first token. */
function branches(lengths: readonly number[]): Int32Array {
  return Int32Array.from(
    lengths.flatMap((length) =>
      Array.from({ length }, (_, i) =>
        i < length / 3 ? 0 : i < length / 2 ? 7 : 7 + (i % 2) * 1_000_000_007,
      ),
    ),
  );
}

const cases: Record<string, Case> = {
  'one token': { lengths: [1], heads: 2, kvHeads: 1, size: 8, causal: true },
  'ragged, empty sequences among them': {
    lengths: [3, 0, 70, 1, 0],
    heads: 4,
    kvHeads: 2,
    size: 16,
    causal: true,
  },
  'seven heads to a group': { lengths: [40, 25], heads: 14, kvHeads: 2, size: 64, causal: true },
  'both directions': { lengths: [70, 9], heads: 3, kvHeads: 3, size: 24 },
  'over many tiles': { lengths: [300], heads: 2, kvHeads: 1, size: 8, causal: true },
  'over many tiles both ways': { lengths: [141], heads: 1, kvHeads: 1, size: 32 },
  window: { lengths: [150, 20], heads: 2, kvHeads: 2, size: 40, causal: true, window: 37 },
  'window of one': { lengths: [9], heads: 2, kvHeads: 2, size: 8, causal: true, window: 1 },
  'window both ways': { lengths: [150], heads: 2, kvHeads: 1, size: 8, window: 20 },
  branches: { lengths: [90, 31], heads: 4, kvHeads: 2, size: 16, causal: true, branch: branches([90, 31]) },
  'branches, window, both ways': {
    lengths: [80],
    heads: 2,
    kvHeads: 1,
    size: 8,
    window: 33,
    branch: branches([80]),
  },
  'a branch hides whole tiles': {
    lengths: [210],
    heads: 1,
    kvHeads: 1,
    size: 8,
    causal: true,
    branch: Int32Array.from({ length: 210 }, (_, i) => (i < 3 ? 0 : i < 140 ? 1 : 2)),
  },
  'odd head size': { lengths: [33, 5], heads: 3, kvHeads: 1, size: 13, causal: true },
  'head size 1': { lengths: [20], heads: 2, kvHeads: 2, size: 1 },
  'head size 128': { lengths: [70], heads: 2, kvHeads: 1, size: 128, causal: true },
  'head size 256': { lengths: [20], heads: 1, kvHeads: 1, size: 256, causal: true },
  'head size 300': { lengths: [18], heads: 1, kvHeads: 1, size: 300 },
};

const expected = new Map<string, { values: Values; want: Results; low: Results }>();
function expectedOf(name: string, dtype: Storage) {
  const known = expected.get(name + dtype);
  if (known) return known;
  const c = cases[name]!;
  const values = valuesOf(c, dtype);
  const made = { values, want: reference(c, values, exact), low: reference(c, values, naive(dtype)) };
  expected.set(name + dtype, made);
  return made;
}

it('the reference gradient is that of finite differences', () => {
  const c: Case = {
    lengths: [5, 3],
    heads: 4,
    kvHeads: 2,
    size: 3,
    causal: true,
    window: 4,
    branch: Int32Array.of(0, 0, 1, 2, 1, 0, 3, 4),
  };
  const values = valuesOf(c, 'f32');
  const got = reference(c, values, exact);
  for (const [name, gradient] of [
    ['q', got.dq],
    ['k', got.dk],
    ['v', got.dv],
  ] as const) {
    const slopes = Array.from(values[name], (x, i) => {
      const loss = (step: number) => {
        // f32 inputs hold the step only roughly, so divide by their actual difference.
        const moved = values[name].slice();
        moved[i] = x + step;
        const { o } = reference(c, { ...values, [name]: moved }, exact);
        return { x: moved[i], y: o.reduce((total, y, n) => total + y * values.dout[n]!, 0) };
      };
      const [up, down] = [loss(1 / 4096), loss(-1 / 4096)];
      return (up.y - down.y) / (up.x - down.x);
    });
    expect(maxDifference(gradient, slopes)).toBeLessThan(1e-5);
  }
});

describe.each(isas)('attention on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  describe.each(['f32', 'bf16'] as const)('%s', (dtype) => {
    it.each(Object.keys(cases))('%s', async (name) => {
      const { values, want, low } = expectedOf(name, dtype);
      const got = await run(device, cases[name]!, values, dtype);
      for (const output of ['o', 'lse', 'dq', 'dk', 'dv'] as const) {
        // The naive program may be exact on a short sum, so also allow roundings of the largest value.
        const largest = want[output].reduce((a, x) => Math.max(a, Math.abs(x)), 2);
        const step = largest * (dtype === 'bf16' && output !== 'lse' ? 2 ** -8 : 2 ** -21);
        const tolerance = 2 * maxDifference(low[output], want[output]) + step;
        expect(maxDifference(got[output], want[output]), output).toBeLessThanOrEqual(tolerance);
      }
    });

    it('gives a sequence the same bits at any place in a batch, and before any other tokens', async () => {
      const c: Case = { lengths: [37, 150, 64], heads: 6, kvHeads: 2, size: 24, causal: true };
      const values = valuesOf(c, dtype);
      const all = await run(device, c, values, dtype);
      const one = openTest(isa, { threads: 1 });
      const cut = (length: number) => {
        const part = (x: Float32Array, heads: number) => x.slice(37 * heads * 24, (37 + length) * heads * 24);
        return {
          q: part(values.q, 6),
          k: part(values.k, 2),
          v: part(values.v, 2),
          dout: part(values.dout, 6),
        };
      };
      const alone = await run(one, { ...c, lengths: [150] }, cut(150), dtype);
      for (const [output, heads] of [
        ['o', 6],
        ['dq', 6],
        ['dk', 2],
        ['dv', 2],
      ] as const)
        expect(alone[output]).toEqual(all[output].slice(37 * heads * 24, 187 * heads * 24));
      // The result of a causal query does not depend on later tokens.
      for (const length of [1, 5, 77]) {
        const prefix = await run(one, { ...c, lengths: [length] }, cut(length), dtype);
        expect(prefix.o).toEqual(alone.o.slice(0, length * 6 * 24));
        for (let h = 0; h < 6; h++)
          expect(prefix.lse.slice(h * length, (h + 1) * length)).toEqual(
            alone.lse.slice(h * 150, h * 150 + length),
          );
      }
      one.dispose();
    });

    it.skipIf(onGpu(isa))('gives the same bits at any thread count', async () => {
      const c: Case = { lengths: [200, 300, 1], heads: 4, kvHeads: 2, size: 16, causal: true, window: 170 };
      const values = valuesOf(c, dtype);
      const all = await run(device, c, values, dtype);
      for (const threads of [1, 3, 5]) {
        const other = openTest(isa, { threads });
        for (let i = 0; i < 3; i++) expect(await run(other, c, values, dtype)).toEqual(all);
        other.dispose();
      }
    });
  });

  it('is one launch each way, and accepts 0 tokens', async () => {
    const before = device.stats().launches;
    const c: Case = { lengths: [], heads: 2, kvHeads: 1, size: 8, causal: true };
    const none = await run(device, c, valuesOf(c, 'f32'), 'f32');
    expect(none.dk).toHaveLength(0);
    await run(device, { ...c, lengths: [0, 0] }, valuesOf(c, 'f32'), 'f32');
    expect(device.stats().launches - before).toBe(4);
  });

  it('never allocates a matrix of tokens by tokens', async () => {
    const scratch = async (length: number) => {
      const fresh = openTest(isa, { threads: 1 });
      const c: Case = { lengths: [length], heads: 1, kvHeads: 1, size: 8, causal: true };
      await run(fresh, c, valuesOf(c, 'f32'), 'f32');
      const { scratchBytes } = fresh.stats();
      fresh.dispose();
      return scratchBytes;
    };
    const few = unlessEmulated(isa, 1000, 300);
    const [short, long] = [await scratch(few), await scratch(3 * few)];
    // A token's key and value, each padded to 16 floats, or dq with two statistics.
    expect(long - short).toBeLessThan(2 * few * (2 * 16 + 4) * 4);
  });

  describe('refuses', () => {
    const c: Case = { lengths: [2, 2], heads: 2, kvHeads: 1, size: 8 };
    const refusal = async (change: (on: Device) => Record<string, Tensor>) => {
      const other = openTest(isa);
      const inputs = {
        q: other.tensor(random(64), [4, 2, 8]),
        k: other.tensor(random(32), [4, 1, 8]),
        v: other.tensor(random(32), [4, 1, 8]),
        cu_seqlens: other.tensor(offsets(c.lengths)),
        ...change(other),
      };
      other.ops.attention({ ...inputs, ...settings(c) });
      const message = await other.synchronize().then(
        () => '',
        (error: Error) => error.message,
      );
      other.dispose();
      return message;
    };

    it.each([
      [[1, 2, 4], 'attention: cu_seqlens[0] is 1, must be 0'],
      [[0, 3, 2], 'attention: cu_seqlens[2] is 2, below the 3 before it'],
      [[0, 2, 3], 'attention: cu_seqlens[2] is 3, must end at the 4 tokens'],
      [[0, 2, 5], 'attention: cu_seqlens[2] is 5, must end at the 4 tokens'],
    ])('cu_seqlens %j', async (cu, message) => {
      expect(await refusal((on) => ({ cu_seqlens: on.tensor(Int32Array.from(cu)) }))).toContain(message);
    });

    it('query heads that are not a multiple of the key heads', async () => {
      const message = await refusal((on) => ({
        q: on.tensor(random(96), [4, 3, 8]),
        k: on.tensor(random(64), [4, 2, 8]),
        v: on.tensor(random(64), [4, 2, 8]),
      }));
      expect(message).toContain('attention: 3 query heads cannot share 2 KV heads evenly');
    });

    it('mixed dtypes', async () => {
      const message = await refusal((on) => ({ k: on.tensor(random(32), [4, 1, 8], 'bf16') }));
      expect(message).toContain('attention: q is f32, so k and v must be, got bf16 and f32');
    });
  });
});
