import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { editDistance, nearestName } from '../../src/native/nearest.js';

describe('edit distance', () => {
  it.each([
    ['', '', 0],
    ['', 'abc', 3],
    ['kitten', 'sitting', 3],
    ['trian', 'train', 1],
    ['flaw', 'lawn', 2],
  ])('of %j and %j is %i', (a, b, distance) => {
    expect(editDistance(a, b)).toBe(distance);
  });

  it('is symmetric, and 0 only for equal words', () => {
    const word = fc.string({ maxLength: 8, unit: fc.constantFrom('a', 'b', 'c') });
    fc.assert(
      fc.property(word, word, (a, b) => {
        expect(editDistance(a, b)).toBe(editDistance(b, a));
        expect(editDistance(a, b) === 0).toBe(a === b);
        expect(editDistance(a, b)).toBeLessThanOrEqual(Math.max(a.length, b.length));
      }),
    );
  });
});

describe('the nearest name', () => {
  const names = ['learning_rate', 'lr_scheduler_type', 'max_steps', 'lora_alpha'];

  it('is a similar name, or one that the word abbreviates or is part of', () => {
    expect(nearestName('learningRate', names)).toBe('learning_rate');
    expect(nearestName('lr', names)).toBe('learning_rate');
    expect(nearestName('out', ['set', 'output', 'resume'])).toBe('output');
    expect(nearestName('sed', ['set', 'sedan'])).toBe('set');
    expect(nearestName('max', ['max_steps', 'max_tokens', 'mix'])).toBe('mix');
    expect(nearestName('alpha', names)).toBe('lora_alpha');
  });

  it('is undefined if nothing is close', () => {
    expect(nearestName('zebra', names)).toBeUndefined();
    expect(nearestName('x', [])).toBeUndefined();
  });
});
