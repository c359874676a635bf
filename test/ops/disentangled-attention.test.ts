// DeBERTa's attention against a plain program in float64, its gradient against finite differences.
import { afterAll, describe, expect, it } from 'vitest';
import { logBuckets } from '../../src/ops/disentangled-attention.js';
import type { Device } from '../../src/runtime/device.js';
import { unlessEmulated } from '../cuda/gpu.js';
import { isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, type Precision, stored } from './precision.js';

type Storage = 'f32' | 'bf16';

interface Case {
  readonly lengths: readonly number[];
  readonly heads: number;
  readonly size: number;
  /** Buckets in each direction, and the distance at which the last ends. */
  readonly span: number;
  readonly longest: number;
}

const INPUTS = ['q', 'k', 'v', 'pos_q', 'pos_k'] as const;
const OUTPUTS = ['o', 'lse', 'dq', 'dk', 'dv', 'dpos_q', 'dpos_k'] as const;
type Values = Readonly<Record<(typeof INPUTS)[number] | 'dout', Float32Array>>;
type Results = Readonly<Record<(typeof OUTPUTS)[number], Float64Array>>;

const tokensOf = (c: Case) => c.lengths.reduce((a, b) => a + b, 0);
const distancesOf = (c: Case) => Math.max(1, ...c.lengths);

function valuesOf(c: Case, dtype: Storage): Values {
  const of = (rows: number, part: number) =>
    stored(
      random(rows * c.heads * c.size, part).map((x) => 2 * x),
      dtype,
    );
  const [tokens, positions] = [tokensOf(c), 2 * c.span];
  return {
    q: of(tokens, 1),
    k: of(tokens, 2),
    v: of(tokens, 3),
    dout: of(tokens, 4),
    pos_q: of(positions, 5),
    pos_k: of(positions, 6),
  };
}

/** One query after the other; `store` and `sum` round as a plain program in that storage would. */
function reference(c: Case, values: Values, { store, sum }: Precision): Results {
  const { heads, size, span } = c;
  const { q, k, v, pos_q, pos_k, dout } = values;
  const tokens = tokensOf(c);
  const buckets = logBuckets(distancesOf(c), span, c.longest);
  const scale = Math.fround((3 * size) ** -0.5);
  const zeros = (rows: number) => new Float64Array(rows * heads * size);
  const result = {
    o: zeros(tokens),
    lse: new Float64Array(heads * tokens),
    dq: zeros(tokens),
    dk: zeros(tokens),
    dv: zeros(tokens),
    dpos_q: zeros(2 * span),
    dpos_k: zeros(2 * span),
  };
  const dot = (a: Float32Array | Float64Array, at: number, b: Float32Array, bt: number) => {
    let total = 0;
    for (let d = 0; d < size; d++) total = sum(total + a[at + d]! * b[bt + d]!);
    return total;
  };
  let begin = 0;
  for (const length of c.lengths) {
    for (let head = 0; head < heads; head++) {
      const at = (row: number) => (row * heads + head) * size;
      const bucket = (i: number, j: number) => {
        const away = buckets[Math.abs(i - j)]!;
        return Math.min(Math.max(span + (i < j ? -away : away), 0), 2 * span - 1);
      };
      for (let i = 0; i < length; i++) {
        const row = at(begin + i);
        const scores = Array.from({ length }, (_, j) => {
          const [key, b] = [at(begin + j), at(bucket(i, j))];
          return store(scale * sum(sum(dot(q, row, k, key) + dot(q, row, pos_k, b)) + dot(k, key, pos_q, b)));
        });
        const top = Math.max(...scores);
        const weights = scores.map((score) => sum(Math.exp(score - top)));
        const mass = weights.reduce((total, weight) => sum(total + weight), 0);
        result.lse[head * tokens + begin + i] = top + Math.log(mass);
        const p = weights.map((weight) => store(weight / mass));
        let delta = 0;
        for (let d = 0; d < size; d++) {
          const o = p.reduce((total, weight, j) => sum(total + weight * v[at(begin + j) + d]!), 0);
          result.o[row + d] = store(o);
          delta = sum(delta + store(o) * dout[row + d]!);
        }
        for (let j = 0; j < length; j++) {
          const [key, b] = [at(begin + j), at(bucket(i, j))];
          const ds = store(p[j]! * (dot(dout, row, v, key) - delta) * scale);
          for (let d = 0; d < size; d++) {
            result.dv[key + d] = sum(result.dv[key + d]! + p[j]! * dout[row + d]!);
            result.dq[row + d] = sum(result.dq[row + d]! + ds * sum(k[key + d]! + pos_k[b + d]!));
            result.dk[key + d] = sum(result.dk[key + d]! + ds * sum(q[row + d]! + pos_q[b + d]!));
            result.dpos_k[b + d] = sum(result.dpos_k[b + d]! + ds * q[row + d]!);
            result.dpos_q[b + d] = sum(result.dpos_q[b + d]! + ds * k[key + d]!);
          }
        }
      }
    }
    begin += length;
  }
  for (const name of ['dq', 'dk', 'dv', 'dpos_q', 'dpos_k'] as const)
    result[name].set(result[name].map(store));
  return result;
}

function upload(device: Device, c: Case, values: Values, dtype: Storage) {
  const cu = new Int32Array(c.lengths.length + 1);
  for (const [s, length] of c.lengths.entries()) cu[s + 1] = cu[s]! + length;
  const of = (name: keyof Values) =>
    device.tensor(values[name], [values[name].length / (c.heads * c.size), c.heads, c.size], dtype);
  return {
    q: of('q'),
    k: of('k'),
    v: of('v'),
    pos_q: of('pos_q'),
    pos_k: of('pos_k'),
    buckets: device.tensor(logBuckets(distancesOf(c), c.span, c.longest)),
    cu_seqlens: device.tensor(cu),
  };
}

async function run(
  device: Device,
  c: Case,
  values: Values,
  dtype: Storage,
): Promise<Record<keyof Results, Float32Array>> {
  const scale = (3 * c.size) ** -0.5;
  const inputs = upload(device, c, values, dtype);
  const dout = device.tensor(values.dout, inputs.q.shape, dtype);
  const forward = device.ops.disentangled_attention({ ...inputs, scale });
  const backward = device.ops.disentangled_attention_backward({ ...inputs, ...forward, do: dout, scale });
  const read: [string, Float32Array][] = [];
  for (const [name, tensor] of Object.entries({ ...forward, ...backward }))
    read.push([name, await tensor.readFloats()]);
  for (const tensor of Object.values({ ...inputs, dout, ...forward, ...backward })) tensor.dispose();
  return Object.fromEntries(read) as Record<keyof Results, Float32Array>;
}

const cases: Record<string, Case> = {
  'one token': { lengths: [1], heads: 2, size: 8, span: 4, longest: 16 },
  'ragged, empty sequences among them': {
    lengths: [3, 0, 70, 1, 0],
    heads: 3,
    size: 16,
    span: 8,
    longest: 64,
  },
  'many tiles, few buckets': { lengths: [200], heads: 1, size: 8, span: 4, longest: 64 },
  'many buckets': { lengths: [150, 9], heads: 2, size: 32, span: 256, longest: 512 },
  'beyond the last bucket': { lengths: [130], heads: 1, size: 8, span: 16, longest: 24 },
  'odd head size': { lengths: [33, 66], heads: 2, size: 13, span: 12, longest: 40 },
  'head size 64': { lengths: [65], heads: 2, size: 64, span: 32, longest: 512 },
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

it('has the buckets of transformers', () => {
  // make_log_bucket_position(arange, 8, 64) and (arange, 256, 512) of transformers 5.18
  const small = [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6];
  expect([...logBuckets(20, 8, 64)]).toEqual(small);
  const v3 = logBuckets(512, 256, 512);
  expect([127, 128, 129, 130, 200, 300, 511].map((distance) => v3[distance])).toEqual([
    127, 128, 129, 130, 169, 207, 255,
  ]);
});

it('the reference gradient is that of finite differences', () => {
  const c: Case = { lengths: [5, 3], heads: 2, size: 3, span: 4, longest: 8 };
  const values = valuesOf(c, 'f32');
  const got = reference(c, values, exact);
  for (const name of INPUTS) {
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
    expect(maxDifference(got[`d${name}`], slopes), name).toBeLessThan(1e-5);
  }
});

describe.each(isas)('disentangled attention on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  describe.each(['f32', 'bf16'] as const)('%s', (dtype) => {
    it.each(Object.keys(cases))('%s', async (name) => {
      const { values, want, low } = expectedOf(name, dtype);
      const got = await run(device, cases[name]!, values, dtype);
      for (const output of OUTPUTS) {
        const largest = want[output].reduce((a, x) => Math.max(a, Math.abs(x)), 2);
        const step = largest * (dtype === 'bf16' && output !== 'lse' ? 2 ** -8 : 2 ** -21);
        const tolerance = 2 * maxDifference(low[output], want[output]) + step;
        expect(maxDifference(got[output], want[output]), output).toBeLessThanOrEqual(tolerance);
      }
    });

    it('gives a sequence the same bits at any place in a batch', async () => {
      const c: Case = { lengths: [37, 150, 64], heads: 2, size: 24, span: 16, longest: 200 };
      const values = valuesOf(c, dtype);
      const all = await run(device, c, values, dtype);
      const row = c.heads * c.size;
      const part = (x: Float32Array) => x.slice(37 * row, 187 * row);
      const [q, k, v, dout] = [part(values.q), part(values.k), part(values.v), part(values.dout)];
      const alone = await run(device, { ...c, lengths: [150] }, { ...values, q, k, v, dout }, dtype);
      for (const output of ['o', 'dq', 'dk', 'dv'] as const) expect(alone[output]).toEqual(part(all[output]));
    });

    it.skipIf(onGpu(isa))('gives the same bits at any thread count', async () => {
      const c: Case = { lengths: [540, 490, 70, 1], heads: 1, size: 8, span: 16, longest: 200 };
      const values = valuesOf(c, dtype);
      const all = await run(device, c, values, dtype);
      const other = openTest(isa, { threads: 5 });
      expect(await run(other, c, values, dtype)).toEqual(all);
      other.dispose();
    });
  });

  it('is one launch each way on the CPU, and accepts 0 tokens', async () => {
    const before = device.stats().launches;
    const c: Case = { lengths: [], heads: 2, size: 8, span: 4, longest: 16 };
    const none = await run(device, c, valuesOf(c, 'f32'), 'f32');
    expect(none.dpos_k).toEqual(new Float32Array(8 * 2 * 8));
    expect(device.stats().launches - before).toBe(onGpu(isa) ? 5 : 2);
  });

  it('never allocates a matrix of tokens by tokens', async () => {
    const scratch = async (length: number) => {
      const fresh = openTest(isa, { threads: 1 });
      const c: Case = { lengths: [length], heads: 1, size: 8, span: 16, longest: 64 };
      await run(fresh, c, valuesOf(c, 'f32'), 'f32');
      const { scratchBytes } = fresh.stats();
      fresh.dispose();
      return scratchBytes;
    };
    const few = unlessEmulated(isa, 1000, 300);
    const [short, long] = [await scratch(few), await scratch(3 * few)];
    expect(long - short).toBeLessThan(2 * few * (3 * 16 + 4) * 4);
  });

  describe('refuses', () => {
    const c: Case = { lengths: [3, 2], heads: 2, size: 8, span: 4, longest: 16 };
    const refusal = async (change: Partial<Record<'buckets' | 'cu_seqlens', Int32Array<ArrayBuffer>>>) => {
      const other = openTest(isa);
      const inputs = upload(other, c, valuesOf(c, 'f32'), 'f32');
      const changed = Object.fromEntries(
        Object.entries(change).map(([name, values]) => [name, other.tensor(values)]),
      );
      other.ops.disentangled_attention({ ...inputs, ...changed, scale: 1 });
      const message = await other.synchronize().then(
        () => 'nothing',
        (error: Error) => error.message,
      );
      other.dispose();
      return message;
    };

    it('a sequence longer than the buckets reach', async () => {
      expect(await refusal({ buckets: Int32Array.of(0, 1) })).toMatch(/2 distances, a sequence of 3 tokens/);
    });
    it('buckets that leave some out', async () => {
      expect(await refusal({ buckets: Int32Array.of(0, 1, 3) })).toMatch(
        /buckets\[2\] is 3, expected to begin at 0 and grow/,
      );
      expect(await refusal({ buckets: Int32Array.of(1, 1, 1) })).toMatch(/buckets\[0\] is 1/);
    });
    it('offsets that do not end at the tokens', async () => {
      expect(await refusal({ cu_seqlens: Int32Array.of(0, 3, 4) })).toMatch(/cu_seqlens/);
    });
  });
});
