// A token attends with the same bits wherever its keys lie: alone, behind other sequences, with masked keys of other
// branches between its own, and from pages, however the row was cut into calls.

import { afterAll, describe, expect, it } from 'vitest';
import { attentionPaged, cacheWrite, PAGE_TOKENS, pageElements } from '../../src/ops/cache.js';
import { isas, onGpu, openTest } from './devices.js';
import { random } from './numbers.js';
import { stored } from './precision.js';

/** The tokens of one row: a prompt, and an answer that is a branch of it where there are others. */
const PROMPT = 140;
const LENGTH = 150;

/** Places of a layout: which token of the row lies there, or a foreign one, and in which branch. */
interface Place {
  readonly token: number | undefined;
  readonly branch: number;
}

const own = (from: number, to: number, branch: number): Place[] =>
  Array.from({ length: to - from }, (_, i) => ({ token: from + i, branch }));
const foreign = (count: number, branch: number): Place[] =>
  Array.from({ length: count }, () => ({ token: undefined, branch }));

const layouts: Record<string, readonly (readonly Place[])[]> = {
  'behind other sequences': [foreign(37, 0), own(0, LENGTH, 0), foreign(70, 0)],
  'as the only branch': [[...own(0, PROMPT, 0), ...own(PROMPT, LENGTH, 1)]],
  'behind a branch of one token': [
    [...own(0, PROMPT, 0), ...foreign(1, 1), ...own(PROMPT, LENGTH, 2), ...foreign(9, 3)],
  ],
  'with branches within the prompt, behind a long one, and more of the prompt behind it': [
    foreign(5, 0),
    [
      ...own(0, 1, 0),
      ...foreign(2, 1),
      ...own(1, 60, 0),
      ...foreign(3, 2),
      ...own(60, 63, 0),
      ...foreign(8, 3),
      ...foreign(1, 4),
      ...own(63, PROMPT, 0),
      ...foreign(131, 5),
      ...own(PROMPT, LENGTH, 6),
      ...foreign(20, 0),
      ...foreign(3, 7),
    ],
  ],
};

/** The layouts that put keys at odd places which are at even ones alone. */
const shifts = new Set(Object.keys(layouts).filter((name) => /branch of one|branches within/.test(name)));

const shapes = [
  { heads: 14, kvHeads: 2, headDim: 64 },
  { heads: 4, kvHeads: 2, headDim: 128 },
  { heads: 2, kvHeads: 2, headDim: 13 },
];

/** How many numbers are not the same. */
function different(a: Float32Array, b: Float32Array): number {
  expect(a).toHaveLength(b.length);
  return a.reduce((count, x, i) => count + (Object.is(x, b[i]) ? 0 : 1), 0);
}

describe.each(isas.filter((isa) => !onGpu(isa)))('attention in any layout on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  describe.each(['f32', 'bf16'] as const)('%s', (dtype) => {
    describe.each(shapes)('$heads heads on $kvHeads of $headDim', ({ heads, kvHeads, headDim }) => {
      // Scores of some tens, so that the maximum moves from tile to tile.
      const values = (tokens: number, of: number, seed: number) =>
        stored(
          random(tokens * of * headDim, seed).map((x) => 4 * x),
          dtype,
        );
      const [q, k, v] = [values(LENGTH, heads, 1), values(LENGTH, kvHeads, 2), values(LENGTH, kvHeads, 3)];
      const dout = values(LENGTH, heads, 4);

      /** Of the row's tokens in a layout: o, lse, and the gradients where nothing comes from the foreign ones. */
      async function attended(sequences: readonly (readonly Place[])[]) {
        const places = sequences.flat();
        const tokens = places.length;
        const at = places.flatMap(({ token }, i) => (token === undefined ? [] : [i]));
        const laid = (x: Float32Array, around: Float32Array) => {
          const width = x.length / LENGTH;
          for (const i of at)
            around.set(x.subarray(places[i]!.token! * width, (places[i]!.token! + 1) * width), i * width);
          return device.tensor(around, [tokens, width / headDim, headDim], dtype);
        };
        const inputs = {
          q: laid(q, values(tokens, heads, 5)),
          k: laid(k, values(tokens, kvHeads, 6)),
          v: laid(v, values(tokens, kvHeads, 7)),
          cu_seqlens: device.tensor(
            Int32Array.from([0, ...sequences.map((_, s) => sequences.slice(0, s + 1).flat().length)]),
          ),
          branch: device.tensor(Int32Array.from(places, ({ branch }) => branch)),
          causal: true,
          scale: headDim ** -0.5,
        };
        const forward = device.ops.attention(inputs);
        const upstream = laid(dout, new Float32Array(tokens * heads * headDim));
        const { dq, dk, dv } = device.ops.attention_backward({ ...inputs, ...forward, do: upstream });
        const found: Record<string, Float32Array> = {};
        for (const [name, tensor] of Object.entries({ o: forward.o, dq, dk, dv })) {
          const all = await tensor.readFloats();
          const width = all.length / tokens;
          found[name] = Float32Array.from(
            at.flatMap((i) => Array.from(all.subarray(i * width, (i + 1) * width))),
          );
        }
        const sums = await forward.lse.readFloats();
        found.lse = Float32Array.from(
          at.flatMap((i) => Array.from({ length: heads }, (_, h) => sums[h * tokens + i]!)),
        );
        return found;
      }

      let alone: ReturnType<typeof attended> | undefined;
      const wanted = async () => (alone ??= attended([own(0, LENGTH, 0)]));

      // BFDOT of ARM adds both products of a pair at once, so there pairs must begin at the same keys.
      const inPairs = isa === 'neonbf16' && dtype === 'bf16';
      it.skipIf(inPairs).each(Object.keys(layouts).filter((name) => shifts.has(name)))('%s', sameBits);
      it.each(Object.keys(layouts).filter((name) => !shifts.has(name)))('%s', sameBits);

      async function sameBits(name: string): Promise<void> {
        const [want, got] = [await wanted(), await attended(layouts[name]!)];
        const counted = Object.entries(want).map(([output, bits]) => [output, different(got[output]!, bits)]);
        expect(counted).toEqual(Object.keys(want).map((output) => [output, 0]));
      }

      it('from pages, in calls of any size', async () => {
        const want = (await wanted()).o!;
        const pages = Math.ceil(LENGTH / PAGE_TOKENS);
        const cache = device.empty([pages, pageElements(kvHeads, headDim)], dtype);
        const wide = (x: Float32Array, width: number) => device.tensor(x, [x.length / width, width], dtype);
        cacheWrite(wide(k, kvHeads * headDim), wide(v, kvHeads * headDim), cache, {
          slots: device.tensor(Int32Array.from({ length: LENGTH }, (_, i) => i)),
          headDim,
        });
        let begin = 0;
        for (const count of [1, 70, 40, 2, 1, 36]) {
          const rows = [begin * heads * headDim, (begin + count) * heads * headDim] as const;
          begin += count;
          const o = attentionPaged(wide(q.slice(...rows), heads * headDim), cache, {
            headDim,
            queryOffsets: device.tensor(Int32Array.of(0, count)),
            pages: device.tensor(
              Int32Array.from({ length: pages }, (_, i) => i),
              [1, pages],
            ),
            lengths: device.tensor(Int32Array.of(begin)),
          });
          expect(different(await o.readFloats(), want.slice(...rows))).toBe(0);
        }
        expect(begin).toBe(LENGTH);
      });
    });
  });
});
