import { describe, expect, test } from 'vitest';
import { branchedSequence } from '../../src/sequences/sequence.js';

const TRUNK = [10, 11, 12, 13, 14, 15];
const TAIL = [7, 8];

describe('branchedSequence', () => {
  test('gives each answer the positions that it has after the trunk before its place', () => {
    const { ids, positions, branch, answers } = branchedSequence(
      TRUNK,
      [
        { at: 2, answers: [[1], [2]] },
        { at: 5, answers: [[1], [2]] },
      ],
      TAIL,
    );
    expect(ids).toEqual([10, 11, 7, 8, 12, 13, 14, 7, 8]);
    expect(positions).toEqual([0, 1, 2, 3, 2, 3, 4, 5, 6]);
    expect(branch).toEqual([0, 0, 1, 1, 0, 0, 0, 2, 2]);
    // Words of one token are predicted by the same row, the last one of the tail.
    expect(answers.map((list) => list.map(({ rows }) => rows))).toEqual([
      [[{ row: 3, token: 1 }], [{ row: 3, token: 2 }]],
      [[{ row: 8, token: 1 }], [{ row: 8, token: 2 }]],
    ]);
  });

  test('gives answers of several tokens branches of their own; a prefix of an answer shares its branch', () => {
    const { ids, branch, answers } = branchedSequence(
      TRUNK,
      [
        {
          at: 1,
          answers: [
            [1, 2, 3],
            [1, 5],
            [4, 4],
          ],
        },
      ],
      [],
    );
    expect(ids).toEqual([10, 1, 2, 4]);
    expect(branch).toEqual([0, 1, 1, 2]);
    expect(answers[0]?.map(({ rows }) => rows.map(({ row }) => row))).toEqual([
      [0, 1, 2],
      [0, 1],
      [0, 3],
    ]);
  });

  test('gives the row of the last token of whole answers, and that of the tail for an empty one', () => {
    const { ids, answers } = branchedSequence(TRUNK, [{ at: 1, answers: [[1], [2], []] }], TAIL, {
      whole: true,
    });
    expect(ids).toEqual([10, 7, 8, 1, 7, 8, 2]);
    expect(answers[0]?.map(({ end }) => end)).toEqual([3, 6, 2]);
    const bare = branchedSequence(TRUNK, [{ at: 3, answers: [[]] }], [], { whole: true });
    expect(bare.branch).toBeUndefined();
    expect(bare.answers[0]?.[0]?.end).toBe(2);
  });
});
