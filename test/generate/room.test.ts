// How many samples run together: by what was measured on the kind of device, and by its memory.
import { expect, test } from 'vitest';
import { readModelConfig } from '../../src/architectures/table.js';
import { cacheShape } from '../../src/generate/cache/keys-values.js';
import { Generator } from '../../src/generate/generator.js';
import { roomToGenerate } from '../../src/generate/room.js';
import type { Decoder } from '../../src/models/decoder.js';
import { goldenDirectory } from '../models/golden.js';

const config = readModelConfig(goldenDirectory('qwen2'));
const dtype = 'f32' as const;
const { pageBytes } = cacheShape({ config, dtype });

/** With memory for `pages` pages of keys and values, half of what may be planned for. */
function decoder(name: string, pages: number, memoryFraction = 0.9) {
  const memoryFree = Math.ceil((2 * pages * pageBytes) / 0.9);
  return {
    config,
    dtype,
    device: {
      memoryFraction,
      info: () => ({ name, memoryTotal: memoryFree, memoryFree }),
      stats: () => ({ liveBytes: 0, reservedBytes: 0 }),
    },
  } as unknown as Decoder;
}
const prompts = (count: number, length: number) =>
  Array.from({ length: count }, () => new Int32Array(length));

test.each([
  ['cpu', 64],
  ['cuda:0', 256],
])('%s takes the %i rows that were measured, where there is memory', (name, rows) => {
  const room = roomToGenerate(decoder(name, 10_000), prompts(1000, 60), { maxNewTokens: 40 });
  expect(room).toEqual({ maxRows: rows, cacheBytes: rows * 2 * pageBytes });
  const generator = new Generator(decoder(name, 10_000));
  expect(generator.cacheBytes).toBe(Math.min(10_000, rows * Math.ceil(config.maxPositions / 64)) * pageBytes);
});

test('takes as many rows as have room for their keys and values, at the length in question', () => {
  const rows = (pages: number, length: number, more = {}) =>
    roomToGenerate(decoder('cuda:0', pages), prompts(300, length), { maxNewTokens: 20, ...more }).maxRows;
  expect(rows(100, 40)).toBe(100);
  expect(rows(100, 100)).toBe(50);
  expect(rows(1, 100)).toBe(1);
  // What was asked for is taken as it is: rows that find no page wait.
  expect(rows(100, 100, { maxRows: 200 })).toBe(200);
  // Samples of a prompt share its whole pages: 2 for the first, 1 for each other.
  expect(rows(100, 100, { n: 4 })).toBe(80);
});

test('stays within a share of the memory, and within the bytes of a run', () => {
  const [whole, half] = [0.9, 0.45].map((fraction) =>
    roomToGenerate(decoder('cuda:0', 100, fraction), prompts(300, 40), { maxNewTokens: 20 }),
  );
  expect(whole).toEqual({ maxRows: 100, cacheBytes: 100 * pageBytes });
  expect(half).toEqual({ maxRows: 50, cacheBytes: 50 * pageBytes });
  const limited = { maxNewTokens: 20, cacheBytes: 7.5 * pageBytes };
  expect(roomToGenerate(decoder('cuda:0', 100), prompts(300, 40), limited)).toEqual({
    maxRows: 7,
    cacheBytes: 7 * pageBytes,
  });
});

test('says so where not even one page fits', () => {
  expect(() => roomToGenerate(decoder('cpu', 0), prompts(1, 8), { maxNewTokens: 8 })).toThrow(
    /no memory is left for keys and values: 0 bytes, .*raise run\.memory_fraction/,
  );
});
