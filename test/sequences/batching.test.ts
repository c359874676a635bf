// The order of the items: shuffled anew each epoch, or as they are.
import { describe, expect, it } from 'vitest';
import { scheduleBatches, tokensAtOnce } from '../../src/sequences/batching.js';

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
    expect(batches.flat()).toEqual([...items, ...items]);
  });

  it('shuffles each epoch anew otherwise', () => {
    const order = scheduleBatches(items, settings).batches.flat();
    expect(order).not.toEqual([...items, ...items]);
    expect(order.slice(0, 12)).not.toEqual(order.slice(12));
    expect(order.slice(12).sort((a, b) => a - b)).toEqual(items);
  });
});
