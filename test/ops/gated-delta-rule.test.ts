import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { unlessEmulated } from '../cuda/gpu.js';
import { isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, stored } from './precision.js';
import {
  CHUNKS,
  deltaRule,
  LAYOUTS,
  type Layout,
  layoutTensors,
  places,
  SHAPES,
  type Shape,
  type Storage,
  slope,
  TWO_LONG,
  tolerance,
  total,
  widthOf,
} from './recurrence-reference.js';

describe.each(isas)('gated_delta_rule on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  describe.each(Object.entries(LAYOUTS))('%s', (_, layout) => {
    const tokens = total(layout);

    describe.each(Object.entries(SHAPES))('delta rule of %s', (name, shape) => {
      const { heads, valueSize: V, keyHeads: G, keySize: K } = shape;
      const width = widthOf(shape);
      const inputs = (dtype: Storage) => ({
        qkv: stored(random(tokens * width, 6), dtype),
        a: stored(random(tokens * heads, 7), dtype),
        b: stored(random(tokens * heads, 8), dtype),
        aLog: random(heads, 9),
        dtBias: random(heads, 10),
      });
      const tensors = ({ qkv, a, b, aLog, dtBias }: ReturnType<typeof inputs>, dtype: Storage) => ({
        qkv: device.tensor(qkv, [tokens, width], dtype),
        a: device.tensor(a, [tokens, heads], dtype),
        b: device.tensor(b, [tokens, heads], dtype),
        a_log: device.tensor(aLog),
        dt_bias: device.tensor(dtBias),
        ...layoutTensors(device, layout),
        G,
        K,
      });

      it.each(['f32', 'bf16'] as const)('is the recurrence in %s', async (dtype) => {
        const given = inputs(dtype);
        const { o } = device.ops.gated_delta_rule({ ...tensors(given, dtype), V });
        const truth = deltaRule(given, layout, shape, exact);
        const plain = deltaRule(given, layout, shape, naive(dtype));
        expect(maxDifference(await o.readFloats(), truth)).toBeLessThan(tolerance(truth, plain, dtype));
      });

      // Finite differences of the largest shape take a minute.
      it.skipIf(name === 'released sizes')('has the gradients of finite differences', async () => {
        const given = inputs('f32');
        const dy = random(tokens * heads * V, 11);
        const backward = (da_log: Tensor, ddt_bias: Tensor) =>
          device.ops.gated_delta_rule_backward({
            ...tensors(given, 'f32'),
            do: device.tensor(dy, [tokens, heads, V]),
            da_log,
            ddt_bias,
          });
        const [da_log, ddt_bias] = [device.zeros([heads]), device.zeros([heads])];
        const { dqkv, da, db } = backward(da_log, ddt_bias);
        const before = [random(heads, 12), random(heads, 13)];
        const [more, others] = before.map((values) => device.tensor(values)) as [Tensor, Tensor];
        backward(more, others);
        for (const [sum, own, had] of [
          [more, da_log, before[0]],
          [others, ddt_bias, before[1]],
        ] as const) {
          const added = await own.readFloats();
          expect(await sum.readFloats()).toEqual(had!.map((x, i) => x + (added[i] as number)));
        }
        const found = { qkv: dqkv, a: da, b: db, aLog: da_log, dtBias: ddt_bias };
        for (const [key, gradient] of Object.entries(found)) {
          const values = await gradient.readFloats();
          const of = given[key as keyof typeof given];
          for (const i of places(of.length, 10)) {
            const wanted = slope(
              (moved) => deltaRule({ ...given, [key]: moved }, layout, shape, exact),
              of,
              dy,
              i,
            );
            const error = Math.abs((values[i] as number) - wanted);
            expect(error, `${key}[${i}]`).toBeLessThan(1e-4 * Math.max(1, Math.abs(wanted)));
          }
        }
      });
    });
  });

  it.each([
    ['f32', 'groups'],
    ['f32', 'released sizes'],
    ['bf16', 'released sizes'],
  ] as const)(
    'queries and keys of zeros, and small ones, are divided by their norms: %s, %s',
    async (dtype, name) => {
      const shape = SHAPES[name] as Shape;
      const { heads, valueSize: V, keyHeads: G, keySize: K } = shape;
      const layout = LAYOUTS['ragged sequences'] as Layout;
      const [tokens, width] = [total(layout), widthOf(shape)];
      const qkv = stored(
        random(tokens * width, 41).map((x, i) => {
          const [t, c] = [Math.floor(i / width), i % width];
          return c < 2 * G * K ? x * ([1, 0, 1e-4][t % 3] as number) : x;
        }),
        dtype,
      );
      const [a, b] = [stored(random(tokens * heads, 42), dtype), stored(random(tokens * heads, 43), dtype)];
      const given = { qkv, a, b, aLog: random(heads, 44), dtBias: random(heads, 45) };
      const { o } = device.ops.gated_delta_rule({
        qkv: device.tensor(qkv, [tokens, width], dtype),
        a: device.tensor(a, [tokens, heads], dtype),
        b: device.tensor(b, [tokens, heads], dtype),
        a_log: device.tensor(given.aLog),
        dt_bias: device.tensor(given.dtBias),
        ...layoutTensors(device, layout),
        G,
        K,
        V,
      });
      const truth = deltaRule(given, layout, shape, exact);
      const plain = deltaRule(given, layout, shape, naive(dtype));
      expect(maxDifference(await o.readFloats(), truth)).toBeLessThan(tolerance(truth, plain, dtype));
    },
  );

  describe('released sizes in bf16', () => {
    const shape: Shape = { ...(SHAPES['released sizes'] as Shape), keyHeads: 2, heads: 4 };
    const { heads, valueSize: V, keyHeads: G, keySize: K } = shape;
    const width = widthOf(shape);
    const numbers = (layout: Layout, repeats = 1, shift = 0) => {
      const tokens = total(layout);
      const of = (size: number, seed: number, moved = 0) => {
        const values = stored(
          random(tokens * size, seed).map((x) => x + moved),
          'bf16',
        );
        return Float32Array.from(
          Array(repeats)
            .fill([...values])
            .flat(),
        );
      };
      return { qkv: of(width, 31), a: of(heads, 32, shift), b: of(heads, 33), dy: of(heads * V, 34) };
    };
    const run = async (on: Device, layout: Layout, dtype: Storage, repeats = 1, shift = 0) => {
      const tokens = total(layout) * repeats;
      const { qkv, a, b, dy } = numbers(layout, repeats, shift);
      const many: Layout = {
        lengths: Array(repeats).fill(layout.lengths).flat(),
        ...(layout.branch ? { branch: Array(repeats).fill(layout.branch).flat() } : {}),
      };
      const given = {
        qkv: on.tensor(qkv, [tokens, width], dtype),
        a: on.tensor(a, [tokens, heads], dtype),
        b: on.tensor(b, [tokens, heads], dtype),
        a_log: on.tensor(random(heads, 35)),
        dt_bias: on.tensor(random(heads, 36)),
        ...layoutTensors(on, many),
        G,
        K,
      };
      const [da_log, ddt_bias] = [on.zeros([heads]), on.zeros([heads])];
      const { o } = on.ops.gated_delta_rule({ ...given, V });
      const { dqkv, da, db } = on.ops.gated_delta_rule_backward({
        ...given,
        do: on.tensor(dy, [tokens, heads, V], dtype),
        da_log,
        ddt_bias,
      });
      const read = { o, dqkv, da, db, da_log, ddt_bias };
      const found: Record<string, Float32Array> = {};
      for (const [name, tensor] of Object.entries(read)) found[name] = await tensor.readFloats();
      return found;
    };

    it.each([
      ...Object.entries(LAYOUTS),
      ['gates that hardly close', { lengths: [70] }, -15],
      // Hundreds of tokens, one by one, are an hour of the emulator.
      ...[
        ['ragged chunks', { lengths: [200, 64, 1, 129] }],
        ['branches over chunks', CHUNKS],
        // Gates that stay open, so that states reach through chunks.
        ['branches over chunks that begin in one', TWO_LONG, -5],
      ].slice(0, unlessEmulated(isa, 3, 0)),
    ] as [string, Layout, number?][])(
      'has the outputs and gradients of f32, %s',
      async (_, layout, shift) => {
        const [found, wanted] = [
          await run(device, layout, 'bf16', 1, shift),
          await run(device, layout, 'f32', 1, shift),
        ];
        for (const [name, values] of Object.entries(found)) {
          const truth = wanted[name] as Float32Array;
          const largest = truth.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
          // Two roundings to bf16 of the largest; sums over all tokens have many. A state of zeros gives exact zeros.
          const summed = name === 'da_log' || name === 'ddt_bias';
          expect(maxDifference(values, truth), name).toBeLessThanOrEqual(
            (summed ? 2 ** -6 : 2 ** -7) * largest,
          );
          if (summed) continue;
          // Of all of them together o and db have their own rounding alone, dqkv twice as much. Gates have four times
          // as much: they are sums of both signs, whose factors products in bf16 round.
          const squares = (of: (i: number) => number) => truth.reduce((sum, _, i) => sum + of(i) ** 2, 0);
          const error = squares((i) => (values[i] as number) - (truth[i] as number));
          const share = name === 'da' ? 2 ** -7 : name === 'dqkv' ? 2 ** -8 : 2 ** -9;
          expect(Math.sqrt(error), name).toBeLessThanOrEqual(
            share * Math.sqrt(squares((i) => truth[i] as number)),
          );
        }
      },
    );

    it.each([
      // Beyond a chunk of 64 tokens.
      ['sequences', { lengths: [unlessEmulated(isa, 150, 70)] }],
      ['branches', CHUNKS],
    ] as [string, Layout][])(
      'has the same bits alone, in a batch and in any number of threads, %s',
      async (_, layout) => {
        const alone = await run(device, layout, 'bf16');
        const single = openTest(isa, { threads: 1 });
        // A GPU has no threads, and the emulator takes minutes for each of them.
        for (const on of onGpu(isa) ? [device] : [device, single]) {
          const many = await run(on, layout, 'bf16', 3);
          for (const name of ['o', 'dqkv', 'da', 'db']) {
            const [one, all] = [alone[name] as Float32Array, many[name] as Float32Array];
            for (let i = 0; i < 3; i++)
              expect(all.subarray(i * one.length, (i + 1) * one.length)).toEqual(one);
          }
        }
        single.dispose();
      },
    );
  });
});
