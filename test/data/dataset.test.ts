import { describe, expect, it } from 'vitest';
import { dataset, indices, inMemory, subset } from '../../src/data/dataset.js';

describe('a dataset', () => {
  it('reads an item at every access, and nothing before', () => {
    const reads: number[] = [];
    const squares = dataset(4, (i) => {
      reads.push(i);
      return i * i;
    });
    expect(subset(squares, [3, 1, 3]).length).toBe(3);
    expect(reads).toEqual([]);
    expect([squares.get(2), squares.get(2)]).toEqual([4, 4]);
    expect(reads).toEqual([2, 2]);
    expect([...squares]).toEqual([0, 1, 4, 9]);
    expect(reads).toEqual([2, 2, 0, 1, 2, 3]);
  });

  it('has no item beyond its ends', () => {
    const letters = inMemory(['a', 'b']);
    for (const index of [-1, 2, 0.5, Number.NaN]) {
      expect(() => letters.get(index)).toThrow(`there is no item ${index} in a dataset of 2`);
    }
  });

  it('can select items of another, in any order and repeatedly', () => {
    const chosen = subset(inMemory(['a', 'b', 'c']), [2, 0, 2]);
    expect([...chosen]).toEqual(['c', 'a', 'c']);
    expect(chosen.get(1)).toBe('a');
    expect(indices(chosen)).toEqual([0, 1, 2]);
  });
});
