// The order of the items: shuffled anew each epoch, or as they are.
import { describe, expect, it } from 'vitest';
import { scheduleBatches } from '../../src/sequences/batching.js';

const settings = { epochs: 2, seed: 3, sizeOf: () => 1, tokensOf: () => 1, batchSize: 4 };
const items = Array.from({ length: 12 }, (_, i) => i);

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
