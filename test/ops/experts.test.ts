import { afterAll, describe, expect, it } from 'vitest';
import { Tape } from '../../src/autograd/tape.js';
import { combineExperts, linearExperts, route } from '../../src/ops/experts.js';
import { linear } from '../../src/ops/gemm.js';
import { gatherRows } from '../../src/ops/memory.js';
import { swiglu } from '../../src/ops/mlp.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { stored } from './precision.js';

/** p of each token, and the k experts of its largest logits with their weights, in float64. */
function routed(logits: ArrayLike<number>, [T, E, k]: readonly [number, number, number], normalise: boolean) {
  return Array.from({ length: T }, (_, t) => {
    const row = Array.from({ length: E }, (_, e) => logits[t * E + e]!);
    const largest = Math.max(...row);
    const exps = row.map((logit) => Math.exp(logit - largest));
    const sum = exps.reduce((a, b) => a + b, 0);
    const p = exps.map((value) => value / sum);
    const experts = row
      .map((_, e) => e)
      .sort((a, b) => row[b]! - row[a]! || a - b)
      .slice(0, k);
    const total = normalise ? experts.reduce((all, e) => all + p[e]!, 0) : 1;
    return { p, experts, weights: experts.map((e) => p[e]! / total) };
  });
}

const sizes = [
  [1, 1, 1],
  [5, 3, 2],
  [17, 8, 8],
  [70, 60, 4],
  [300, 128, 8],
] as const;

describe.each(isas)('experts on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  const single = openTest(isa, { threads: 1 });
  afterAll(() => {
    device.dispose();
    single.dispose();
  });
  const ints = async (tensor: Tensor) => Array.from((await tensor.read()) as Int32Array);

  describe.each(['f32', 'bf16'] as const)('by logits in %s', (dtype) => {
    it.each(sizes)('%d tokens, %d experts, %d each: are chosen and weighed', async (...size) => {
      const [T, E, k] = size;
      // Of bf16 some are equal.
      const logits = stored(
        random(T * E, 1).map((x) => 4 * x),
        dtype,
      );
      for (const normalise of [true, false]) {
        const want = routed(logits, size, normalise);
        const got = device.ops.route({ logits: device.tensor(logits, [T, E], dtype), k, normalise, P: E });
        expect(await ints(got.experts)).toEqual(want.flatMap(({ experts }) => experts));
        const weights = want.flatMap((token) => token.weights);
        expect(maxDifference(await got.weights.readFloats(), weights)).toBeLessThan(1e-6);
        // The rows of each expert, from its tokens in order.
        const rows = Array.from({ length: E }, (_, e) =>
          want.flatMap(({ experts }, t) => (experts.includes(e) ? [t] : [])),
        );
        expect(await ints(got.rows)).toEqual(rows.flat());
        const offsets = Array.from({ length: E + 1 }, (_, e) => rows.slice(0, e).flat().length);
        expect(await ints(got.offsets)).toEqual(offsets);
        const places = want.flatMap(({ experts }, t) =>
          experts.map((e) => offsets[e]! + rows[e]!.indexOf(t)),
        );
        expect(await ints(got.places)).toEqual(places);
        if (onGpu(isa)) continue;
        const again = single.ops.route({ logits: single.tensor(logits, [T, E], dtype), k, normalise, P: E });
        expect(await again.weights.read()).toEqual(await got.weights.read());
        expect(await ints(again.places)).toEqual(places);
      }
    });

    it.each(sizes.slice(1))(
      '%d tokens, %d experts, %d each: has the slope for its gradient',
      async (...size) => {
        const [T, E, k] = size;
        const logits = stored(
          random(T * E, 2).map((x) => 2 * x),
          dtype,
        );
        const dweights = random(T * k, 3);
        const further = random(E, 4);
        for (const normalise of [true, false]) {
          for (const balance of [undefined, further]) {
            const loss = (token: ReturnType<typeof routed>[number], t: number) =>
              token.weights.reduce((sum, weight, j) => sum + weight * dweights[t * k + j]!, 0) +
              token.p.reduce((sum, p, e) => sum + p * (balance?.[e] ?? 0), 0);
            const slopes: number[] = [];
            for (let t = 0; t < Math.min(T, 5); t++) {
              for (let e = 0; e < E; e++) {
                const sides = [1e-6, -1e-6].map((step) => {
                  const row = Array.from(logits.slice(t * E, t * E + E));
                  row[e]! += step;
                  // Those that are chosen stay chosen: their order of equals counts on the values before.
                  const chosen = routed(logits.slice(t * E, t * E + E), [1, E, k], false)[0]!.experts;
                  const { p } = routed(row, [1, E, k], false)[0]!;
                  const total = normalise ? chosen.reduce((all, at) => all + p[at]!, 0) : 1;
                  return loss({ p, experts: chosen, weights: chosen.map((at) => p[at]! / total) }, t);
                });
                slopes.push((sides[0]! - sides[1]!) / 2e-6);
              }
            }
            const given = device.tensor(logits, [T, E], dtype);
            const { weights, experts } = device.ops.route({ logits: given, k, normalise, P: E });
            const { dlogits } = device.ops.route_backward({
              ...{ dweights: device.tensor(dweights, [T, k]), logits: given, weights, experts, normalise },
              balance: balance && device.tensor(balance),
            });
            const got = (await dlogits.readFloats()).slice(0, slopes.length);
            const largest = Math.max(...slopes.map(Math.abs));
            if (!(normalise && k === E && balance === undefined) || k > 1)
              expect(largest).toBeGreaterThan(1e-3);
            expect(maxDifference(got, slopes)).toBeLessThan(dtype === 'f32' ? 1e-6 : largest / 256);
          }
        }
      },
    );

    it.each([
      [1, 1, 5],
      [9, 3, 33],
      [40, 8, 130],
    ] as const)('%d tokens of %d rows of %d values each: are weighed and added', async (T, k, H) => {
      const S = T * k;
      const y = stored(random(S * H, 1), dtype);
      const dz = stored(random(T * H, 2), dtype);
      const weights = random(S, 3);
      const order = random(S, 4);
      const places = Int32Array.from({ length: S }, (_, i) => i).sort((a, b) => order[a]! - order[b]!);
      const of = (values: Float32Array, row: number) => values.slice(row * H, row * H + H);
      const z = Array.from({ length: T * H }, (_, i) => {
        const [t, h] = [Math.floor(i / H), i % H];
        return Array.from(
          { length: k },
          (_, j) => weights[t * k + j]! * of(y, places[t * k + j]!)[h]!,
        ).reduce((a, b) => a + b, 0);
      });
      const dy = new Float32Array(S * H);
      const dweights = Array.from(places, (place, i) => {
        const from = of(dz, Math.floor(i / k));
        dy.set(
          from.map((value) => value * weights[i]!),
          place * H,
        );
        return from.reduce((sum, value, h) => sum + value * y[place * H + h]!, 0);
      });
      const tensors = {
        y: device.tensor(y, [S, H], dtype),
        places: device.tensor(places, [T, k]),
        weights: device.tensor(weights, [T, k]),
      };
      const found = device.ops.combine_experts(tensors).z;
      const back = device.ops.combine_experts_backward({ dz: device.tensor(dz, [T, H], dtype), ...tensors });
      const step = dtype === 'f32' ? 2 ** -22 : 2 ** -8;
      expect(maxDifference(await found.readFloats(), z)).toBeLessThanOrEqual(step * k);
      expect(maxDifference(await back.dy.readFloats(), dy)).toBeLessThanOrEqual(step);
      expect(maxDifference(await back.dweights.readFloats(), dweights)).toBeLessThan(2e-5);
    });
  });

  it('are a mixture whose gradients are the slopes of one of linears', async () => {
    const [T, E, k, H, N] = [6, 4, 2, 5, 3];
    const values = {
      x: random(T * H, 1),
      router: random(E * H, 2).map((x) => 3 * x),
      gate: random(E * N * H, 3),
      up: random(E * N * H, 4),
      down: random(E * H * N, 5),
    };
    const shapes = { x: [T, H], router: [E, H], gate: [E, N, H], up: [E, N, H], down: [E, H, N] };
    type Name = keyof typeof values;
    const dot = (a: ArrayLike<number>, from: number, b: ArrayLike<number>, to: number, n: number) =>
      Array.from({ length: n }, (_, i) => a[from + i]! * b[to + i]!).reduce((sum, each) => sum + each, 0);
    const dz = random(T * H, 6);
    const loss = (of: Record<Name, ArrayLike<number>>) => {
      let total = 0;
      const logits = Array.from({ length: T * E }, (_, i) =>
        dot(of.x, Math.floor(i / E) * H, of.router, (i % E) * H, H),
      );
      routed(logits, [T, E, k], true).forEach(({ experts, weights }, t) => {
        experts.forEach((e, j) => {
          const inner = Array.from({ length: N }, (_, n) => {
            const gate = dot(of.x, t * H, of.gate, (e * N + n) * H, H);
            return (gate / (1 + Math.exp(-gate))) * dot(of.x, t * H, of.up, (e * N + n) * H, H);
          });
          for (let h = 0; h < H; h++)
            total += dz[t * H + h]! * weights[j]! * dot(inner, 0, of.down, (e * H + h) * N, N);
        });
      });
      return total;
    };
    const trained = (name: Name) => ({
      name,
      value: device.tensor(values[name], shapes[name]),
      grad: device.zeros(shapes[name]),
    });
    const [x, router, gate, up, down] = (['x', 'router', 'gate', 'up', 'down'] as const).map(trained) as [
      ReturnType<typeof trained>,
      ReturnType<typeof trained>,
      ReturnType<typeof trained>,
      ReturnType<typeof trained>,
      ReturnType<typeof trained>,
    ];
    const tape = new Tape(device);
    tape.watch(x.value);
    const z = tape.run(() => {
      const routing = route(linear(x.value, router), k);
      const rows = gatherRows(x.value, routing.rows);
      const inner = swiglu(
        linearExperts(rows, { weight: gate }, routing.offsets),
        linearExperts(rows, { weight: up }, routing.offsets),
      );
      return combineExperts(linearExperts(inner, { weight: down }, routing.offsets), routing);
    });
    tape.backward([[z, device.tensor(dz, [T, H])]]);
    const dx = tape.takeGradient(x.value) as Tensor;
    for (const [name, gradient] of [
      ['x', dx],
      ['router', router.grad],
      ['gate', gate.grad],
      ['up', up.grad],
      ['down', down.grad],
    ] as const) {
      const slopes = Array.from(values[name], (_, i) => {
        const sides = [1e-5, -1e-5].map((step) =>
          loss({
            ...values,
            [name]: Array.from(values[name], (each, at) => (at === i ? each + step : each)),
          }),
        );
        return (sides[0]! - sides[1]!) / 2e-5;
      });
      expect(Math.max(...slopes.map(Math.abs)), name).toBeGreaterThan(0.05);
      expect(maxDifference(await gradient.readFloats(), slopes), name).toBeLessThan(1e-5);
    }
    tape.dispose();
  });

  it('of equal logits are the first, and k of them where logits are not finite', async () => {
    const [bad, up, least] = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    const rows = [
      [0, 0, 0, 0],
      [1, 2, 2, 1],
      [least, 0, least, least],
      [bad, 1, 2, 3],
      [0, 1, 2, bad],
      [0, bad, bad, 0],
      [up, 0, up, 0],
      [bad, bad, bad, bad],
      [least, least, least, least],
    ];
    const logits = device.tensor(Float32Array.from(rows.flat()), [9, 4]);
    const {
      weights,
      experts,
      places,
      rows: tokens,
      offsets,
    } = device.ops.route({ logits, k: 3, P: logits.shape[1]! });
    const chosen = await ints(experts);
    const found = await weights.readFloats();
    const of = (values: ArrayLike<number>, t: number) =>
      Array.from({ length: 3 }, (_, j) => values[3 * t + j]);
    expect(of(chosen, 0)).toEqual([0, 1, 2]);
    expect(of(chosen, 1)).toEqual([1, 2, 0]);
    expect(of(chosen, 2)).toEqual([1, 0, 2]);
    expect(of(found, 2)).toEqual([1, 0, 0]);
    for (let t = 3; t < 9; t++) {
      expect(new Set(of(chosen, t)).size, `token ${t}`).toBe(3);
      expect(of(found, t), `token ${t}`).toEqual([bad, bad, bad]);
    }
    expect(chosen.every((e) => e >= 0 && e < 4)).toBe(true);
    expect((await ints(places)).sort((a, b) => a - b)).toEqual(Array.from({ length: 27 }, (_, i) => i));
    expect((await ints(offsets)).at(-1)).toBe(27);
    expect((await ints(tokens)).every((t) => t >= 0 && t < 9)).toBe(true);
  });

  it('of no tokens have no rows', async () => {
    const { offsets, rows, weights, places } = device.ops.route({ logits: device.empty([0, 5]), k: 2, P: 5 });
    expect(await ints(offsets)).toEqual([0, 0, 0, 0, 0, 0]);
    expect([rows.shape, weights.shape]).toEqual([
      [0, 2],
      [0, 2],
    ]);
    const { z } = device.ops.combine_experts({ y: device.empty([0, 7]), places, weights });
    expect(z.shape).toEqual([0, 7]);
  });

  it.each([0, 4])('refuse %d of 3', async (k) => {
    const other = openTest(isa);
    other.ops.route({ logits: other.zeros([2, 3]), k, P: 3 });
    await expect(other.synchronize()).rejects.toThrow(
      `route: k is ${k}, expected 1 to the 3 experts of logits`,
    );
    other.dispose();
  });

  it.each([
    ['outside the rows', [0, 4], 4, 'places[1] is 4, outside 0..3'],
    ['negative', [0, -1], 4, 'places[1] is -1, outside 0..3'],
  ] as const)('refuse places that are %s', async (_, [first, second], S, message) => {
    for (const op of ['combine_experts', 'combine_experts_backward'] as const) {
      const other = openTest(isa);
      const places = other.tensor(Int32Array.from([first, second, 2, 3]), [2, 2]);
      const [y, weights, dz] = [other.zeros([S, 3]), other.zeros([2, 2]), other.zeros([2, 3])];
      if (op === 'combine_experts') other.ops[op]({ y, places, weights });
      else other.ops[op]({ dz, y, places, weights });
      await expect(other.synchronize()).rejects.toThrow(`${op}: ${message}`);
      other.dispose();
    }
  });

  it('refuse other rows than one for each place', async () => {
    for (const S of [3, 5]) {
      const other = openTest(isa);
      const places = other.tensor(Int32Array.from([0, 1, 2, 2]), [2, 2]);
      other.ops.combine_experts({ y: other.zeros([S, 3]), places, weights: other.zeros([2, 2]) });
      await expect(other.synchronize()).rejects.toThrow(
        `combine_experts: y has ${S} rows, expected one for each of the 4 places`,
      );
      other.dispose();
    }
  });

  // On a GPU every place is written by its own pair, and nobody compares them.
  it.skipIf(onGpu(isa))('refuse two pairs in one place', async () => {
    const other = openTest(isa);
    const places = other.tensor(Int32Array.from([0, 1, 1, 2]), [2, 2]);
    other.ops.combine_experts({ y: other.zeros([4, 3]), places, weights: other.zeros([2, 2]) });
    await expect(other.synchronize()).rejects.toThrow('places[2] is 1, which another place is too');
    other.dispose();
  });

  it('are grouped by adapters, of which each has groups of its own', async () => {
    const [T, E, k, adapters] = [40, 5, 2, 3];
    const P = (1 + adapters) * E;
    const logits = device.tensor(random(T * E, 1), [T, E]);
    const adapter = Int32Array.from(random(T, 2), (x) => Math.floor((x + 1) * 2) - 1);
    expect(new Set(adapter).size).toBe(4);
    const plain = device.ops.route({ logits, k, P: E });
    const got = device.ops.route({ logits, k, P, adapter: device.tensor(adapter) });
    const experts = await ints(plain.experts);
    expect(await ints(got.experts)).toEqual(experts);
    expect(await got.weights.read()).toEqual(await plain.weights.read());
    const order = experts
      .map((e, i) => ({ i, group: (adapter[Math.floor(i / k)]! + 1) * E + e }))
      .sort((a, b) => a.group - b.group || a.i - b.i);
    expect(await ints(got.rows)).toEqual(order.map(({ i }) => Math.floor(i / k)));
    expect(await ints(got.places)).toEqual(experts.map((_, i) => order.findIndex((row) => row.i === i)));
    const offsets = Array.from({ length: P + 1 }, (_, p) => order.filter(({ group }) => group < p).length);
    expect(await ints(got.offsets)).toEqual(offsets);
  });

  it.each([
    ['an adapter below none', [0, -2], 6, 'route: adapter[1] is -2, outside -1..0'],
    ['an adapter without groups', [1, 0], 6, 'route: adapter[0] is 1, outside -1..0'],
    ['one far outside', [2 ** 31 - 1, 0], 6, 'route: adapter[0] is 2147483647, outside -1..0'],
  ])('refuse %s', async (_, adapter, P, message) => {
    const other = openTest(isa);
    other.ops.route({
      logits: other.zeros([2, 3]),
      k: 1,
      P,
      adapter: other.tensor(Int32Array.from(adapter)),
    });
    await expect(other.synchronize()).rejects.toThrow(message);
    other.dispose();
  });

  it.each([0, 2, 4])('refuse %d groups of 3', async (P) => {
    const other = openTest(isa);
    other.ops.route({ logits: other.zeros([2, 3]), k: 1, P });
    await expect(other.synchronize()).rejects.toThrow(
      `route: P is ${P}, expected a multiple of the 3 experts of logits`,
    );
    other.dispose();
  });

  it('refuse a gradient to experts that there are not', async () => {
    const other = openTest(isa);
    const logits = other.zeros([1, 3]);
    const [weights, dweights] = [other.zeros([1, 2]), other.zeros([1, 2])];
    const experts = other.tensor(Int32Array.from([1, 3]), [1, 2]);
    other.ops.route_backward({ dweights, logits, weights, experts });
    await expect(other.synchronize()).rejects.toThrow('route_backward: experts[1] is 3, outside 0..2');
    other.dispose();
  });
});
