import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { isas, openTest } from './devices.js';
import { random } from './numbers.js';
import { stored } from './precision.js';
import {
  borders,
  CHUNKS,
  LAYOUTS,
  type Layout,
  layoutTensors,
  type Numbers,
  previous,
  SHAPES,
  type Shape,
  total,
  widthOf,
} from './recurrence-reference.js';

describe.each(isas)('recurrence on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  // Heads of the released sizes take another kernel in bf16, by chunks of 64 tokens on AMX and of 32 on AVX-512-BF16.
  it.each([
    ['f32', 'groups', LAYOUTS['long branches']],
    ['bf16', 'groups', LAYOUTS['long branches']],
    ['bf16', 'released sizes', LAYOUTS['long branches']],
    ['bf16', 'released sizes', CHUNKS],
  ] as const)(
    'computes branches bit by bit as sequences of their own in %s, %s',
    async (dtype, sizes, chosenLayout) => {
      const shape = SHAPES[sizes] as Shape;
      const { heads, valueSize: V, keyHeads: G, keySize: K } = shape;
      const [width, taps] = [widthOf(shape), 4];
      const layout = chosenLayout as Required<Layout>;
      const tokens = total(layout);
      const [x, a, b] = [
        stored(random(tokens * width, 21), dtype),
        stored(random(tokens * heads, 22), dtype),
        stored(random(tokens * heads, 23), dtype),
      ];
      const rows = (values: Numbers, size: number, chosen: readonly number[]) =>
        device.tensor(
          Float32Array.from(
            chosen.flatMap((t) => Array.from({ length: size }, (_, i) => values[t * size + i] as number)),
          ),
          [chosen.length, size],
          dtype,
        );
      const run = async (chosen: readonly number[], own: Layout) => {
        const { y } = device.ops.causal_conv1d({
          x: rows(x, width, chosen),
          weight: device.tensor(random(width * taps, 24), [width, 1, taps]),
          ...layoutTensors(device, own),
        });
        const { o } = device.ops.gated_delta_rule({
          qkv: y,
          a: rows(a, heads, chosen),
          b: rows(b, heads, chosen),
          a_log: device.tensor(random(heads, 25)),
          dt_bias: device.tensor(random(heads, 26)),
          ...layoutTensors(device, own),
          G,
          K,
          V,
        });
        return o.readFloats();
      };
      const all = Array.from({ length: tokens }, (_, t) => t);
      const found = await run(all, layout);
      const before = previous(layout);
      // The last token of every branch, and of every sequence.
      const leaves = all.filter(
        (t) => layout.branch[t] !== (layout.branch[t + 1] ?? 0) && layout.branch[t] !== 0,
      );
      for (const leaf of [
        ...leaves,
        ...borders(layout)
          .slice(1)
          .map((end) => end - 1),
      ]) {
        const path: number[] = [];
        for (let t = leaf; t >= 0; t = before[t] as number) path.unshift(t);
        const alone = await run(path, { lengths: [path.length] });
        const size = heads * V;
        const wanted = Float32Array.from(path.flatMap((t) => [...found.subarray(t * size, (t + 1) * size)]));
        expect(alone).toEqual(wanted);
      }
    },
  );

  it('gives a token the same bits alone, in a batch, in pieces from kept states and in any number of threads', async () => {
    const shape = SHAPES.groups as Shape;
    const { heads, valueSize: V, keyHeads: G, keySize: K } = shape;
    const [width, taps, length] = [widthOf(shape), 4, 70];
    const x = random(length * width, 12);
    const [a, b] = [random(length * heads, 13), random(length * heads, 14)];
    const run = async (on: Device, repeats: number, cuts: readonly number[] = [length]) => {
      // What earlier sequences left there.
      const states = {
        conv: on.tensor(random(3 * (taps - 1) * width, 18), [3, taps - 1, width]),
        delta: on.tensor(random(3 * heads * K * V, 19), [3, heads, K, V]),
      };
      const out: number[] = [];
      for (let i = 0, from = 0; i < cuts.length; from = cuts[i++] as number) {
        const to = cuts[i] as number;
        const own = (values: Float32Array, size: number) =>
          on.tensor(
            Float32Array.from(
              Array(repeats)
                .fill([...values.subarray(from * size, to * size)])
                .flat(),
            ),
            [repeats * (to - from), size],
          );
        const cu_seqlens = on.tensor(Int32Array.from({ length: repeats + 1 }, (_, s) => s * (to - from)));
        const kept = {
          slots: on.tensor(Int32Array.from({ length: repeats }, (_, s) => 2 - s)),
          lengths: on.tensor(Int32Array.from({ length: repeats }, () => to)),
        };
        const continued = cuts.length > 1;
        const { y } = on.ops.causal_conv1d({
          x: own(x, width),
          weight: on.tensor(random(width * taps, 15), [width, 1, taps]),
          cu_seqlens,
          ...(continued ? { ...kept, state: states.conv } : {}),
        });
        const { o } = on.ops.gated_delta_rule({
          qkv: y,
          a: own(a, heads),
          b: own(b, heads),
          a_log: on.tensor(random(heads, 16)),
          dt_bias: on.tensor(random(heads, 17)),
          cu_seqlens,
          ...(continued ? { ...kept, state: states.delta } : {}),
          G,
          K,
          V,
        });
        const values = await o.readFloats();
        const each = (to - from) * heads * V;
        for (let s = 1; s < repeats; s++)
          expect(values.subarray(s * each, (s + 1) * each)).toEqual(values.subarray(0, each));
        out.push(...values.subarray(0, each));
      }
      // Rows without a sequence keep what they have, and others have changed.
      for (const [state, seed] of [
        [states.conv, 18],
        [states.delta, 19],
      ] as const) {
        const now = await state.readFloats();
        const row = now.length / 3;
        const was = random(now.length, seed);
        for (const slot of [0, 1, 2]) {
          const part = (of: Float32Array) => of.subarray(slot * row, (slot + 1) * row);
          const isUsed = cuts.length > 1 && slot > 2 - repeats;
          expect(String(part(now)) === String(part(was)), `row ${slot}`).toBe(!isUsed);
        }
      }
      return out;
    };
    const alone = await run(device, 1);
    expect(await run(device, 3)).toEqual(alone);
    expect(await run(device, 2, [1, 2, 40, 41, 70])).toEqual(alone);
    const single = openTest(isa, { threads: 1 });
    expect(await run(single, 3)).toEqual(alone);
    single.dispose();
  });
});
