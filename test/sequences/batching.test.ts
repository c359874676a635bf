// The order of the items: shuffled anew each epoch, or as they are.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { epochOrder, groupBySize, scheduleBatches, tokensAtOnce } from '../../src/sequences/batching.js';

const settings = { epochs: 2, seed: 3, sizeOf: () => 1, tokensOf: () => 1, batchSize: 4 };
const items = Array.from({ length: 12 }, (_, i) => i);

describe('tokensAtOnce', () => {
  const of = (name: string, numLayers: number, hiddenSize: number, signal?: AbortSignal) =>
    tokensAtOnce({ device: { info: () => ({ name }) as never }, config: { numLayers, hiddenSize } }, signal);
  const { signal } = new AbortController();

  it('is less only where a signal may stop a CPU in between, and the model is large', () => {
    expect(of('cpu', 30, 576)).toBe(4096);
    expect(of('cuda:0', 30, 576, signal)).toBe(4096);
    expect(of('cpu', 4, 192, signal)).toBe(4096);
    expect(of('cpu', 30, 576, signal)).toBe(2301);
    expect(of('cpu', 32, 4096, signal)).toBe(512);
  });
});

describe('scheduleBatches', () => {
  it('takes the items in their own order where they are not shuffled, in every epoch', () => {
    const { batches } = scheduleBatches(items, { ...settings, shuffle: false });
    expect([...batches].flat()).toEqual([...items, ...items]);
  });

  it('shuffles each epoch anew otherwise', () => {
    const order = [...scheduleBatches(items, settings).batches].flat();
    expect(order).not.toEqual([...items, ...items]);
    expect(order.slice(0, 12)).not.toEqual(order.slice(12));
    expect(order.slice(12).sort((a, b) => a - b)).toEqual(items);
  });

  it('gives the groups of each epoch up to its share, the batches or the tokens that are asked for', () => {
    const sizes = fc.array(fc.nat(9), { minLength: 1, maxLength: 40 });
    const limits = fc.record({
      epochs: fc.double({ min: 0.05, max: 3.5, noNaN: true }),
      maxBatches: fc.option(fc.integer({ min: 1, max: 30 }), { nil: undefined }),
      tokens: fc.option(fc.integer({ min: 1, max: 300 }), { nil: undefined }),
      batchSize: fc.integer({ min: 1, max: 20 }),
    });
    fc.assert(
      fc.property(sizes, limits, (sizes, { epochs, maxBatches, tokens, batchSize }) => {
        fc.pre(tokens === undefined || sizes.some((size) => size > 0));
        const items = sizes.map((_, i) => 3 * i);
        const sizeOf = (item: number) => sizes[item / 3] as number;
        const wanted: number[][] = [];
        const marks: number[] = [];
        let [sum, whole] = [0, 0];
        const isFull = () => wanted.length >= (maxBatches ?? 1e9) || sum >= (tokens ?? 1e9);
        for (let epoch = 0; epoch < (tokens === undefined ? epochs : 1e9) && !isFull(); epoch++) {
          const order = Array.from(epochOrder(items.length, 5, epoch), (i) => items[i] as number);
          const groups = groupBySize(order, sizeOf, batchSize);
          const share = Math.min(1, (tokens === undefined ? epochs : 1e9) - epoch);
          for (const group of groups.slice(0, Math.max(1, Math.round(share * groups.length)))) {
            if (isFull()) break;
            wanted.push(group);
            for (const item of group) sum += sizeOf(item);
            marks.push(epoch + (wanted.length - whole) / groups.length);
          }
          whole += groups.length;
        }
        const schedule = scheduleBatches(items, {
          ...{ epochs, maxBatches, tokens, batchSize, seed: 5 },
          sizeOf,
          tokensOf: sizeOf,
        });
        expect([...schedule.batches]).toEqual(wanted);
        expect(schedule.tokens).toBe(sum);
        expect(wanted.map((_, i) => schedule.epochAt(i + 1))).toEqual(marks);
        const [last] = wanted.slice(-1);
        expect(schedule.batches.get(wanted.length - 1)).toEqual(last);
      }),
    );
  });
});
