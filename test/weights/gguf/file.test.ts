// Damaged and hostile GGUF files: one sentence each, and no memory beyond the file's size.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeAll, describe, expect, inject, it } from 'vitest';
import { WeightsError } from '../../../src/weights/error.js';
import { openGguf } from '../../../src/weights/gguf/file.js';
import { type Typed, writeGguf } from '../../../src/weights/gguf/writer.js';
import { temporaryDirectory } from '../temporary-directory.js';

const METADATA = new Map<string, Typed>([
  ['general.architecture', { text: 'llama' }],
  ['general.alignment', { u32: 32 }],
  ['tokens', { texts: ['a', 'ü', ''] }],
  ['scores', { f32s: [0.5, -1] }],
  ['kinds', { i32s: [1, -3] }],
  ['flag', { flag: true }],
]);

describe('GGUF files', () => {
  let whole: Buffer;
  beforeAll(async () => {
    const path = join(mkdtempSync(join(inject('folder'), 'gguf-')), 'whole.gguf');
    await writeGguf(path, METADATA, [
      { name: 'a.weight', type: 'F32', shape: [2, 3], data: () => new Uint8Array(24).fill(7) },
      { name: 'b.weight', type: 'Q8_0', shape: [1, 32], data: () => new Uint8Array(34).fill(9) },
    ]);
    whole = readFileSync(path);
  });

  function open(bytes: Uint8Array) {
    const path = join(temporaryDirectory(), 'x.gguf');
    writeFileSync(path, bytes);
    return openGguf(path);
  }
  /** The file with the bytes at the first `mark` (and `further` ones) replaced. */
  function changed(mark: string | Buffer, further: number, bytes: number[]): Buffer {
    const copy = Buffer.from(whole);
    const at = copy.indexOf(mark) + further;
    copy.set(bytes, at);
    return copy;
  }

  it('are read as they were written', () => {
    const file = open(whole);
    expect([...file.metadata.values()]).toEqual(['llama', 32, ['a', 'ü', ''], [0.5, -1], [1, -3], true]);
    expect(file.tensors.get('a.weight')).toMatchObject({ shape: [2, 3], type: { name: 'F32' } });
    expect(file.read('b.weight')).toEqual(new Uint8Array(34).fill(9));
    expect(() => file.read('c')).toThrow(/there is no tensor "?c/);
    file.close();
  });

  const u64 = (value: bigint) => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(value);
    return [...bytes];
  };
  const HOSTILE: [string, () => Buffer, RegExp][] = [
    ['nothing', () => Buffer.alloc(0), /begins with "GGUF"/],
    ['another kind', () => Buffer.from('PK\u0003\u0004 and more'), /begins with "GGUF"/],
    ['version 1', () => changed('GGUF', 4, [1]), /version 2 or 3, found 1/],
    ['big endian', () => changed('GGUF', 4, [0, 0, 0, 3]), /big endian/],
    [
      'many tensors',
      () => changed('GGUF', 8, u64(2n ** 63n)),
      /tensors do not fit .* damaged or truncated, fetch it again$/,
    ],
    ['many entries', () => changed('GGUF', 16, u64(2n ** 40n)), /entries of metadata do not fit/],
    ['a long key', () => changed('general.architecture', -8, u64(2n ** 50n)), /do not fit into/],
    ['a long list', () => changed('tokens', 6 + 8, u64(2n ** 32n)), /values of tokens do not fit/],
    ['a list of lists of lists', () => nested(6), /nested deeper/],
    ['an unknown type of value', () => changed('flag', 4, [99]), /has the type 99/],
    ['an odd alignment', () => changed('general.alignment', 17 + 4, [33]), /a power of two, found "?33/],
    [
      'a key twice',
      () => changed('tokens', 0, [...Buffer.from('scores')]),
      /the key "?scores"? is there twice/,
    ],
    ['no UTF-8', () => changed('llama', 0, [0xff]), /is not UTF-8/],
    ['an unknown type of tensor', () => changed('b.weight', 8 + 4 + 16, [19]), /type 19 of ggml is not read/],
    ['a row of half a block', () => changed('b.weight', 8 + 4, u64(33n)), /no whole number of blocks/],
    ['nine extents', () => changed('a.weight', 8, [9]), /1 to 4 extents, found 9/],
    ['a large extent', () => changed('a.weight', 8 + 4, u64(2n ** 62n)), /is too large/],
    [
      'extents that overflow',
      () => changed('a.weight', 12, [...u64(2n ** 40n), ...u64(2n ** 40n)]),
      /overflows/,
    ],
    ['an offset beyond', () => changed('b.weight', 8 + 4 + 16 + 4, u64(2n ** 20n)), /the file is truncated/],
    ['an odd offset', () => changed('b.weight', 8 + 4 + 16 + 4, u64(33n)), /no multiple of 32/],
    ['tensors over each other', () => changed('b.weight', 8 + 4 + 16 + 4, u64(0n)), /overlaps/],
    ['the same name', () => changed('b.weight', 0, [...Buffer.from('a')]), /twice/],
  ];

  function nested(levels: number): Buffer {
    const list = (inner: Buffer, type: number) => {
      const head = Buffer.alloc(12);
      head.writeUInt32LE(type, 0);
      head.writeBigUInt64LE(1n, 4);
      return Buffer.concat([head, inner]);
    };
    let value = list(Buffer.from([1]), 0);
    for (let i = 0; i < levels; i++) value = list(value, 9);
    const key = Buffer.concat([Buffer.from(u64(1n)), Buffer.from('k'), Buffer.from([9, 0, 0, 0])]);
    return Buffer.concat([whole.subarray(0, 8), Buffer.from([...u64(0n), ...u64(1n)]), key, value]);
  }

  it.each(HOSTILE)('%s is refused in a sentence', (_name, bytes, message) => {
    expect(() => open(bytes())).toThrow(WeightsError);
    expect(() => open(bytes())).toThrow(message);
  });

  it('cut anywhere is refused', () => {
    for (let length = 0; length < whole.length - 62; length += 3)
      expect(() => open(whole.subarray(0, length)), `${length} bytes`).toThrow(WeightsError);
  });

  it('with any bytes changed opens or is refused', () => {
    const change = fc.record({ at: fc.nat(whole.length - 1), byte: fc.integer({ min: 0, max: 255 }) });
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 6 }), (changes) => {
        const copy = Buffer.from(whole);
        for (const { at, byte } of changes) copy[at] = byte;
        try {
          const file = open(copy);
          for (const name of file.tensors.keys()) file.read(name);
          file.close();
        } catch (error) {
          expect(error).toBeInstanceOf(WeightsError);
        }
      }),
      { numRuns: 300 },
    );
  });
});
