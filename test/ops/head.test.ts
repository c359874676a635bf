import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { gradientsRoundAlike, unlessEmulated } from '../cuda/gpu.js';
import { call, isas, onGpu, openTest } from './devices.js';
import {
  type HeadForward,
  type HeadGradients,
  type HeadInputs,
  headBackward,
  headForward,
} from './head-reference.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, stored } from './precision.js';

type Storage = 'f32' | 'bf16';

/** Min tolerance, since a naive program may be exact by luck: a few f32 steps of numbers near 8. */
const FEW = 2 ** -19;

interface Case extends HeadInputs {
  readonly dtype: Storage;
  readonly weights: Storage;
}

function make(
  [rows, size, vocabulary]: readonly [number, number, number],
  dtype: Storage,
  weights: Storage = dtype,
  temperature = 0.7,
): Case {
  return {
    rows,
    size,
    vocabulary,
    temperature,
    dtype,
    weights,
    x: stored(
      random(rows * size, 1).map((v) => 2 * v),
      dtype,
    ),
    w: stored(random(vocabulary * size, 2), weights),
    targets: Int32Array.from({ length: rows }, (_, r) => (r * 7919 + vocabulary - 1) % vocabulary),
  };
}

interface Tensors {
  readonly x: Tensor;
  readonly w: Tensor;
  readonly targets: Tensor;
}

function upload(device: Device, c: Case, packed: boolean): Tensors {
  const plain = device.tensor(Float32Array.from(c.w), [c.vocabulary, c.size], c.weights);
  return {
    x: device.tensor(Float32Array.from(c.x), [c.rows, c.size], c.dtype),
    w: packed ? device.ops.pack_weight({ w: plain, dtype: c.weights }).y : plain,
    targets: device.tensor(c.targets),
  };
}

const read = async (tensors: Record<string, Tensor | undefined>): Promise<Record<string, number[]>> =>
  Object.fromEntries(
    await Promise.all(
      Object.entries(tensors).map(async ([name, t]) => [name, t ? Array.from(await t.read()) : []]),
    ),
  );

/** The exact head and a plain program's, which casts weights to the type of its activations; kept, as they are slow. */
function references(c: Case): Reference {
  const key = [c.rows, c.size, c.vocabulary, c.dtype, c.weights].join();
  const known = kept.get(key);
  if (known) return known;
  const low = naive(c.dtype);
  const cast = { ...c, w: stored(Float32Array.from(c.w), c.dtype === 'bf16' ? 'bf16' : c.weights) };
  const truth = headForward(c, exact);
  const plain = headForward(cast, low);
  const dlogprobs = random(c.rows, 5);
  const dentropy = random(c.rows, 6);
  const reference = {
    dlogprobs,
    dentropy,
    truth,
    plain,
    both: headBackward(c, truth, dlogprobs, dentropy, exact),
    bothPlain: headBackward(cast, plain, dlogprobs, dentropy, low),
    one: headBackward(c, truth, dlogprobs, undefined, exact),
    onePlain: headBackward(cast, plain, dlogprobs, undefined, low),
  };
  kept.set(key, reference);
  return reference;
}
const kept = new Map<string, Reference>();
interface Reference {
  readonly dlogprobs: Float32Array;
  readonly dentropy: Float32Array;
  readonly truth: HeadForward;
  readonly plain: HeadForward;
  readonly both: HeadGradients;
  readonly bothPlain: HeadGradients;
  readonly one: HeadGradients;
  readonly onePlain: HeadGradients;
}

/** Twice the error of a plain program in that storage. */
const tolerance = (truth: ArrayLike<number>, plain: ArrayLike<number>): number =>
  2 * maxDifference(truth, plain) + FEW;

const within = (found: ArrayLike<number>, truth: ArrayLike<number>, plain: ArrayLike<number>): void =>
  expect(maxDifference(found, truth)).toBeLessThan(tolerance(truth, plain));

// Odd sizes, several row blocks, several vocabulary tiles and splits, and a last panel that is not full.
const shapes = [
  [1, 8, 5],
  [3, 37, 601],
  [150, 24, 130],
  [5, 33, 8211],
] as const;
const kinds = [
  ['f32', 'f32', false],
  ['f32', 'f32', true],
  ['f32', 'bf16', true],
  ['bf16', 'bf16', false],
  ['bf16', 'bf16', true],
  ['bf16', 'f32', false],
] as const;

describe.each(isas)('head on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  const single = openTest(isa, { threads: 1 });
  afterAll(() => {
    device.dispose();
    single.dispose();
  });

  const forward = ({ temperature }: Case, t: Tensors, on = device) =>
    on.ops.head_logprobs({ ...t, temperature, expectation: true });
  const withoutExpectation = ({ temperature }: Case, t: Tensors, on = device) =>
    on.ops.head_logprobs({ ...t, temperature });

  it.each(['f32', 'bf16'] as const)('gives impossible tokens no share, in %s', async (dtype) => {
    const c = make([5, 8, 4100], dtype);
    const x = Float32Array.from(c.x, (v) => v + 3); // above 0, so that a weight of -infinity makes a logit of -infinity
    const w = Float32Array.from(c.w);
    // More than a tile at the start, and everything before the last token, which is a target.
    for (const [begin, end] of [
      [0, 2048],
      [4096, 4099],
    ] as const)
      w.fill(Number.NEGATIVE_INFINITY, begin * c.size, end * c.size);
    const given = { ...c, x: stored(x, dtype), w };
    const found = await read(withoutExpectation(given, upload(device, given, false)));
    for (let r = 0; r < c.rows; r++) {
      const z = Array.from({ length: c.vocabulary }, (_, v) => {
        let sum = 0;
        for (let h = 0; h < c.size; h++) sum += given.x[r * c.size + h]! * w[v * c.size + h]!;
        return sum / c.temperature;
      });
      const largest = Math.max(...z);
      const lse = largest + Math.log(z.reduce((sum, v) => sum + Math.exp(v - largest), 0));
      const entropy = z.reduce((sum, v) => sum + (v > -Infinity ? Math.exp(v - lse) * (lse - v) : 0), 0);
      const target = z[c.targets[r]!]!;
      expect(found.argmax![r]).toBe(z.indexOf(largest));
      expect(Math.abs(found.lse![r]! - lse)).toBeLessThan(2 ** -16);
      expect(Math.abs(found.entropy![r]! - entropy)).toBeLessThan(2 ** -16);
      if (target === -Infinity) expect(found.logprobs![r]).toBe(-Infinity);
      else expect(Math.abs(found.logprobs![r]! - (target - lse))).toBeLessThan(2 ** -16);
    }
  });

  describe.each(kinds)('x %s, W %s, packed %s', (dtype, weights, packed) => {
    it.each(shapes)('scores R %i, H %i, V %i', async (...shape) => {
      const c = make(shape, dtype, weights);
      const found = await read(forward(c, upload(device, c, packed)));
      const { truth, plain } = references(c);
      for (const name of ['logprobs', 'entropy', 'lse', 'expectation'] as const)
        within(found[name]!, truth[name], plain[name]);
      expect(found.argmax).toEqual(truth.argmax);
      expect((await read(withoutExpectation(c, upload(device, c, packed)))).logprobs).toEqual(found.logprobs);
    });

    it.each(shapes)('gives the gradients of R %i, H %i, V %i', async (...shape) => {
      const c = make(shape, dtype, weights);
      const t = upload(device, c, packed);
      const { size: H, vocabulary: V } = c;
      const { dlogprobs, dentropy, both, bothPlain, one, onePlain } = references(c);
      const { temperature } = c;
      const { lse, entropy, expectation } = forward(c, t);
      const d = { dlogprobs: device.tensor(dlogprobs), dentropy: device.tensor(dentropy) };

      const frozen = device.ops.head_logprobs_backward({ ...d, ...t, lse, entropy, temperature });
      within(await frozen.dx.read(), both.dx, bothPlain.dx);

      const before = random(V * H, 7);
      const dw = device.tensor(before, [V, H]);
      const trained = device.ops.head_logprobs_backward({ ...d, ...t, lse, entropy, dw, temperature });
      within(await trained.dx.read(), both.dx, bothPlain.dx);
      const gained = (await dw.read()).map((v, i) => v - before[i]!);
      within(gained, both.dw, bothPlain.dw);

      const free = device.ops.head_expectation_backward({
        dlogprobs: d.dlogprobs,
        w: t.w,
        targets: t.targets,
        expectation,
        temperature,
        dtype: dtype,
      });
      within(await free.dx.read(), one.dx, onePlain.dx);
      const { dentropy: _, ...without } = d;
      const plainLoss = device.ops.head_logprobs_backward({ ...without, ...t, lse, entropy, temperature });
      within(await plainLoss.dx.read(), one.dx, onePlain.dx);
    });

    it('gives the logits of chosen tokens, of all tokens, and their gradients', async () => {
      const c = make([3, 37, 601], dtype, weights);
      const { rows: R, size: H, vocabulary: V, temperature } = c;
      const t = upload(device, c, packed);
      const truth = references(c).truth.logits;
      const plain = references(c).plain.logits;
      within(await device.ops.head_logits({ x: t.x, w: t.w, temperature }).logits.read(), truth, plain);

      const C = 3;
      const chosen = Int32Array.from({ length: R * C }, (_, i) => (i * i) % 50);
      const tokens = device.tensor(chosen, [R, C]);
      const select = (values: Float64Array) =>
        Array.from(chosen, (v, i) => values[Math.floor(i / C) * V + v]!);
      const { logits } = device.ops.head_select({ x: t.x, w: t.w, tokens, temperature });
      within(await logits.read(), select(truth), select(plain));

      const d = random(R * C, 8);
      const before = random(V * H, 9);
      const dw = device.tensor(before, [V, H]);
      const dlogits = device.tensor(d, [R, C]);
      const { dx } = device.ops.head_select_backward({ dlogits, x: t.x, w: t.w, tokens, dw, temperature });
      const wantX = new Float64Array(R * H);
      const wantW = Float64Array.from(before);
      chosen.forEach((v, i) => {
        const r = Math.floor(i / C);
        for (let h = 0; h < H; h++) {
          wantX[r * H + h]! += (d[i]! * c.w[v * H + h]!) / temperature;
          wantW[v * H + h]! += (d[i]! * c.x[r * H + h]!) / temperature;
        }
      });
      within(await dx.read(), wantX, wantX.map(naive(dtype).store));
      within(await dw.read(), wantW, wantW.map(Math.fround));
    });

    it('gives a row the same bits in any batch and with any number of threads', async () => {
      const c = make([40, 37, 8300], dtype, weights);
      const all = await read(forward(c, upload(device, c, packed)));
      if (!onGpu(isa)) expect(await read(forward(c, upload(single, c, packed), single))).toEqual(all);
      for (const [begin, end] of [
        [0, 1],
        [7, 9],
        [17, 40],
      ] as const) {
        const part: Case = {
          ...c,
          rows: end - begin,
          x: Array.from(c.x).slice(begin * c.size, end * c.size),
          targets: c.targets.slice(begin, end),
        };
        const found = await read(forward(part, upload(device, part, packed)));
        for (const name of ['logprobs', 'entropy', 'lse', 'argmax'])
          expect(found[name]).toEqual(all[name]!.slice(begin, end));
        if (gradientsRoundAlike(device, end - begin, 40))
          expect(found.expectation).toEqual(all.expectation!.slice(begin * c.size, end * c.size));
      }
    });

    it('gives the same gradients again and with any number of threads', async () => {
      const rows = unlessEmulated(isa, 600, 140);
      const c = make([rows, 16, unlessEmulated(isa, 2100, 700)], dtype, weights);
      const { temperature } = c;
      const results = [];
      for (const on of [device, single]) {
        const t = upload(on, c, packed);
        const { lse, entropy } = withoutExpectation(c, t, on);
        const d = { dlogprobs: on.tensor(random(rows, 5)), dentropy: on.tensor(random(rows, 6)) };
        const dw = on.zeros([c.vocabulary, c.size]);
        const frozen = on.ops.head_logprobs_backward({ ...d, ...t, lse, entropy, temperature });
        const trained = on.ops.head_logprobs_backward({ ...d, ...t, lse, entropy, dw, temperature });
        results.push(await read({ frozen: frozen.dx, trained: trained.dx, dw }));
      }
      expect(results[1]).toEqual(results[0]);
    });
  });

  it('agrees with finite differences', async () => {
    const c = make([4, 12, 700], 'f32', 'f32', 1.3);
    const { temperature, rows: R, size: H } = c;
    const t = upload(device, c, true);
    const [dl, dh] = [random(R, 5), random(R, 6)];
    const { lse, entropy } = forward(c, t);
    const d = { dlogprobs: device.tensor(dl), dentropy: device.tensor(dh) };
    const { dx } = device.ops.head_logprobs_backward({ ...d, ...t, lse, entropy, temperature });
    const gradient = await dx.read();
    const step = 2 ** -7;
    const loss = async (i: number, by: number): Promise<number> => {
      const x = Float32Array.from(c.x);
      x[i]! += by;
      const out = await read(forward(c, { ...t, x: device.tensor(x, [R, H]) }));
      return dl.reduce((total, v, r) => total + v * out.logprobs![r]! + dh[r]! * out.entropy![r]!, 0);
    };
    for (let i = 0; i < R * H; i += 5) {
      const slope = ((await loss(i, step)) - (await loss(i, -step))) / (2 * step);
      expect(Math.abs(slope - gradient[i]!)).toBeLessThan(2e-3);
    }
  });

  it('picks the first of equal maxima, and is exact for large logits', async () => {
    const c = { ...make([2, 4, 9000], 'f32', 'f32', 1), x: [100, 0, 0, 0, -100, 0, 0, 0] };
    const w = new Float32Array(9000 * 4);
    for (const v of [40, 8500, 8501]) w[v * 4] = 50;
    const targets = Int32Array.of(8500, 3);
    const found = await read(forward({ ...c, w, targets }, upload(device, { ...c, w, targets }, true)));
    expect(found.argmax).toEqual([40, 0]);
    expect(found.logprobs![0]).toBeCloseTo(-Math.log(3), 5);
    expect(found.logprobs![1]).toBeCloseTo(-Math.log(8997), 5);
    expect(found.entropy![1]).toBeCloseTo(Math.log(8997), 4);
    expect(found.lse![0]).toBeCloseTo(5000 + Math.log(3), 3);
  });

  it('passes NaN on', async () => {
    const c = make([3, 8, 300], 'f32');
    const x = Array.from(c.x);
    x[9] = Number.NaN;
    const found = await read(forward(c, upload(device, { ...c, x }, true)));
    for (const name of ['logprobs', 'entropy', 'lse'])
      expect(found[name]!.map(Number.isNaN)).toEqual([false, true, false]);
  });

  it('accepts 0 rows', async () => {
    const c = make([0, 8, 50], 'f32');
    const t = upload(device, c, true);
    const out = forward(c, t);
    const empty = device.tensor(new Float32Array(0));
    const { dx } = device.ops.head_logprobs_backward({
      dlogprobs: empty,
      ...t,
      lse: out.lse,
      entropy: out.entropy,
      dw: device.zeros([50, 8]),
      temperature: 1,
    });
    expect(dx.shape).toEqual([0, 8]);
    expect(Array.from(await out.logprobs.read())).toEqual([]);
  });

  it('is one parallel region per op and never allocates [R, V]', async () => {
    const fresh = openTest(isa, { threads: 2 });
    // Scratch is constant on a GPU, so fewer would not show that it is smaller.
    const vocabulary = 20_000;
    const c = make([256, 16, vocabulary], 'f32');
    const { temperature } = c;
    const t = upload(fresh, c, true);
    await fresh.synchronize();
    fresh.resetPeak();
    const start = fresh.stats();
    const { lse, entropy, expectation } = forward(c, t, fresh);
    const dlogprobs = fresh.tensor(random(256, 5));
    fresh.ops.head_logprobs_backward({ dlogprobs, ...t, lse, entropy, temperature });
    fresh.ops.head_expectation_backward({
      dlogprobs,
      w: t.w,
      targets: t.targets,
      expectation,
      temperature,
      dtype: 'f32',
    });
    const tokens = fresh.tensor(new Int32Array(512), [256, 2]);
    const { logits } = fresh.ops.head_select({ x: t.x, w: t.w, tokens, temperature });
    fresh.ops.head_select_backward({ dlogits: logits, x: t.x, w: t.w, tokens, temperature });
    await fresh.synchronize();
    const end = fresh.stats();
    const held = 256 * vocabulary * 4;
    // A GPU needs some launches per span of the vocabulary.
    if (!onGpu(isa)) expect(end.launches - start.launches).toBe(5);
    expect(end.scratchBytes).toBeLessThan(held / 8);
    expect(end.peakBytes - start.liveBytes).toBeLessThan(held / 8);
    const dw = fresh.zeros([vocabulary, 16]);
    await fresh.synchronize();
    const before = fresh.stats().launches;
    fresh.ops.head_logprobs_backward({ dlogprobs, ...t, lse, entropy, dw, temperature });
    await fresh.synchronize();
    if (!onGpu(isa)) expect(fresh.stats().launches - before).toBe(1);
    expect(fresh.stats().scratchBytes).toBeLessThan(held / 2);
    fresh.dispose();
  });

  it.each([
    ['head_logprobs', { targets: [0, 5] }, 'head_logprobs: targets[1] is 5, outside 0..4'],
    ['head_select', { tokens: [-1, 3] }, 'head_select: tokens[0] is -1, outside 0..4'],
  ] as const)('%s refuses a token out of range', async (op, indices, message) => {
    const other = openTest(isa);
    const [[name, values]] = Object.entries(indices) as [[string, readonly number[]]];
    const x = other.tensor(random(16), [2, 8]);
    const w = other.tensor(random(40), [5, 8]);
    const shape = name === 'tokens' ? [2, 1] : [2];
    call(other, op, { x, w, [name]: other.tensor(Int32Array.from(values), shape), temperature: 1 });
    await expect(other.synchronize()).rejects.toThrow(message);
    other.dispose();
  });

  it('refuses a temperature of 0', async () => {
    const other = openTest(isa);
    other.ops.head_logits({ x: other.empty([2, 8]), w: other.empty([5, 8]), temperature: 0 });
    await expect(other.synchronize()).rejects.toThrow(
      'head_logits: temperature must be positive and finite, got 0',
    );
    other.dispose();
  });
});
