// Branches: continuations of one trunk in one sequence equal one sequence for each.
import { afterAll, describe, expect, test } from 'vitest';
import { raggedBatch, type Sequence } from '../../src/models/batch.js';
import type { Decoder } from '../../src/models/decoder.js';
import { loadDecoder } from '../../src/models/load.js';
import { f32Bound, openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { DECODERS, goldenDirectory } from './golden.js';

const device = openTest();
afterAll(() => device.dispose());

const HIDDEN = 64;
const trunk = [5, 17, 99, 3, 250, 7];
const branches = [
  { at: 2, ids: [11, 12] },
  { at: 4, ids: [13, 14, 15] },
  { at: 6, ids: [11] },
];

/** Trunk and branches as one sequence: each branch directly after the trunk token that it follows. */
function together(): Required<Omit<Sequence, 'rowId'>> {
  const ids: number[] = [];
  const positions: number[] = [];
  const branch: number[] = [];
  trunk.forEach((token, t) => {
    ids.push(token);
    positions.push(t);
    branch.push(0);
    branches.forEach((other, b) => {
      if (other.at !== t + 1) return;
      other.ids.forEach((id, i) => {
        ids.push(id);
        positions.push(other.at + i);
        branch.push(b + 1);
      });
    });
  });
  return { ids, positions, branch };
}

async function hiddenOf(decoder: Decoder, sequences: readonly Sequence[]): Promise<Float32Array> {
  const batch = raggedBatch(device, sequences, decoder.config);
  try {
    const hidden = device.scope(() => decoder.forward(batch));
    const values = await hidden.readFloats();
    hidden.dispose();
    return values;
  } finally {
    batch.dispose();
  }
}

// The window of this mistral is shorter than a sequence with its branches, which is refused.
describe.each(DECODERS.filter((name) => name !== 'mistral'))('%s', (name) => {
  test('only the trunk before it and its own branch are visible to a token of a branch', async () => {
    const decoder = await loadDecoder(device, goldenDirectory(name), { dtype: 'f32' });
    const packed = together();
    // Between two plain sequences, so that leaks across its ends would show.
    const found = await hiddenOf(decoder, [{ ids: [1, 2, 3] }, packed, { ids: [4, 5] }]);
    const rowOf = (own: number, position: number) => {
      const at = Array.from(packed.ids).findIndex(
        (_, i) => packed.branch[i] === own && packed.positions[i] === position,
      );
      return found.subarray((3 + at) * HIDDEN, (4 + at) * HIDDEN);
    };
    const alone = await hiddenOf(decoder, [{ ids: trunk }]);
    trunk.forEach((_, t) => {
      expect(maxDifference(rowOf(0, t), alone.subarray(t * HIDDEN, (t + 1) * HIDDEN))).toBeLessThan(
        f32Bound(device, 1e-5, goldenDirectory(name)),
      );
    });
    for (const [b, { at, ids }] of branches.entries()) {
      const separate = await hiddenOf(decoder, [{ ids: [...trunk.slice(0, at), ...ids] }]);
      ids.forEach((_, i) => {
        const t = at + i;
        const expected = separate.subarray(t * HIDDEN, (t + 1) * HIDDEN);
        expect(maxDifference(rowOf(b + 1, t), expected)).toBeLessThan(
          f32Bound(device, 1e-5, goldenDirectory(name)),
        );
      });
    }
    decoder.dispose();
  });
});

test.each(['positions', 'branch'] as const)('%s must be as long as the ids', (key) => {
  const limits = { vocabSize: 320, maxPositions: 512 };
  expect(() => raggedBatch(device, [{ ids: [1] }, { ids: [1, 2, 3], [key]: [0, 0] }], limits)).toThrow(
    `sequence 1: expected as many ${key} as token ids, 3, found 2`,
  );
});

test('positions beyond the model are refused', async () => {
  const decoder = await loadDecoder(device, goldenDirectory('qwen2'), { dtype: 'f32' });
  const batch = raggedBatch(device, [{ ids: [1], positions: [512] }], { vocabSize: 320, maxPositions: 600 });
  expect(() => decoder.forward(batch)).toThrow(
    'the batch has position 512, and the model reads at most 512 (max_position_embeddings)',
  );
  batch.dispose();
  decoder.dispose();
});

test('branches under a sliding window are refused unless the whole sequence lies inside it', async () => {
  const decoder = await loadDecoder(device, goldenDirectory('mistral'), { dtype: 'f32' });
  await expect(hiddenOf(decoder, [{ ids: [1] }, together()])).rejects.toThrow(
    'sequence 1 of the batch has 12 tokens with its branches, more than the sliding window of 8; ' +
      'give each branch as a sequence of its own',
  );
  const short = { ids: [1, 2, 9, 3], positions: [0, 1, 2, 2], branch: [0, 0, 1, 0] };
  const found = await hiddenOf(decoder, [short]);
  const expected = await hiddenOf(decoder, [{ ids: [1, 2, 3] }]);
  expect(maxDifference(found.subarray(3 * HIDDEN), expected.subarray(2 * HIDDEN))).toBeLessThan(
    f32Bound(device, 1e-5, goldenDirectory('mistral')),
  );
  expect(await hiddenOf(decoder, [{ ids: Array(20).fill(3) }])).toHaveLength(20 * HIDDEN);
  decoder.dispose();
});
