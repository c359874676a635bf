/** Hostile safetensors files: each gives one specific sentence, and every mutation of a good file an error of this package. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { WeightsError } from '../../src/weights/error.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const F32 = (shape: unknown, offsets: unknown) => ({ dtype: 'F32', shape, data_offsets: offsets });

/** A file with the given header and number of data bytes. */
function file(header: string | Uint8Array | object, dataBytes: number, headerBytes?: bigint): Uint8Array {
  const bytes =
    header instanceof Uint8Array
      ? header
      : Buffer.from(typeof header === 'string' ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(headerBytes ?? BigInt(bytes.length));
  return Buffer.concat([length, bytes, Buffer.alloc(dataBytes)]);
}

function open(bytes: Uint8Array): void {
  const path = join(temporaryDirectory(), 'model.safetensors');
  writeFileSync(path, bytes);
  openSafetensors(path).close();
}

describe('a hostile safetensors file', () => {
  it.each<[string, Uint8Array, RegExp]>([
    ['nothing', new Uint8Array(0), /at least 8 bytes, found 0; it is truncated/],
    ['half a length', new Uint8Array(7), /at least 8 bytes, found 7/],
    ['an empty header', file('', 0), /expected the header to begin with '\{'/],
    [
      'a header that is cut',
      file('{}', 0, 1000n),
      /header of 1000 bytes, found 2 bytes after its length; the file is truncated/,
    ],
    [
      'a header above the limit',
      file('{}', 0, 100_000_001n),
      /header of at most 100000000 bytes, found 100000001; this is not a safetensors file/,
    ],
    [
      'the largest header length',
      file('{}', 0, 2n ** 64n - 1n),
      /found 18446744073709551615; this is not a safetensors file/,
    ],
    ['a header length beyond exact integers', file('{}', 0, 2n ** 53n + 1n), /header of at most/],
    [
      'a header that is not JSON',
      file('{"a":}', 0),
      /header: line 1, column 6: expected a JSON value, found "\}"/,
    ],
    ['a header that is a list', file('[]', 0), /begin with '\{'/],
    ['a header after a space', file(' {}', 0), /begin with '\{'/],
    ['text after the header', file('{} x', 0), /expected the end of the text, found "x"/],
    ['a NUL after the header', file('{}\0', 0), /expected the end of the text/],
    ['bytes that are not UTF-8', file(Buffer.from('7b22ff22', 'hex'), 0), /header: expected UTF-8 text/],
    ['an overlong encoding', file(Buffer.from('7b22c08022', 'hex'), 0), /header: expected UTF-8 text/],
    ['a raw control character in a name', file('{"a\u0001":1}', 0), /expected no control character/],
    ['nesting without end', file(`{"a":${'['.repeat(50_000)}`, 0), /expected at most 64 levels of nesting/],
    ['objects without end', file('{"a":'.repeat(50_000), 0), /expected at most 64 levels of nesting/],
    [
      'a tensor given twice',
      file(
        '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        1,
      ),
      /the name "a" occurs twice in one object/,
    ],
    [
      'the same name in other escapes',
      file('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\\u0061":{}}', 1),
      /the name "a" occurs twice/,
    ],
    [
      'a key of a tensor given twice',
      file('{"a":{"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,1]}}', 1),
      /the name "dtype" occurs twice/,
    ],
    [
      'two lots of metadata',
      file('{"__metadata__":{},"__metadata__":{}}', 0),
      /the name "__metadata__" occurs twice/,
    ],
    [
      'metadata that is not text',
      file({ __metadata__: { step: 3 } }, 0),
      /__metadata__: expected a string for 'step', found 3/,
    ],
    ['nested metadata', file({ __metadata__: { a: { b: 'c' } } }, 0), /expected a string for 'a'/],
    ['metadata that is a list', file({ __metadata__: [] }, 0), /__metadata__: expected an object/],
    ['a tensor that is text', file({ a: 'F32' }, 0), /tensor "a": expected an object/],
    ['a tensor that is null', file({ a: null }, 0), /tensor "a": expected an object, found null/],
    [
      'a tensor with more keys',
      file({ a: { ...F32([1], [0, 4]), strides: [1] } }, 4),
      /expected only dtype, shape and data_offsets, found 'strides'/,
    ],
    [
      'an unknown dtype',
      file({ a: { dtype: 'F33', shape: [1], data_offsets: [0, 4] } }, 4),
      /expected dtype to be one of .*, found "F33"/,
    ],
    [
      'a dtype from the prototype',
      file({ a: { dtype: 'constructor', shape: [1], data_offsets: [0, 4] } }, 4),
      /found "constructor"/,
    ],
    [
      'a dtype of half bytes',
      file({ a: { dtype: 'F4', shape: [2], data_offsets: [0, 1] } }, 1),
      /found "F4"/,
    ],
    ['a missing dtype', file({ a: { shape: [1], data_offsets: [0, 4] } }, 4), /expected dtype to be one of/],
    [
      'a missing shape',
      file({ a: { dtype: 'F32', data_offsets: [0, 4] } }, 4),
      /expected shape to be a list/,
    ],
    [
      'a negative extent',
      file({ a: F32([-1], [0, 4]) }, 4),
      /expected shape to be a list of non-negative integers, found \[-1\]/,
    ],
    ['two negative extents', file({ a: F32([-1, -1], [0, 4]) }, 4), /expected shape/],
    ['a fractional extent', file({ a: F32([0.5, 2], [0, 4]) }, 4), /expected shape/],
    ['an extent that is text', file({ a: F32(['1'], [0, 4]) }, 4), /expected shape/],
    [
      'NaN for an extent',
      file('{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', 4),
      /expected a JSON value, found "NaN/,
    ],
    [
      'an infinite extent',
      file('{"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}}', 4),
      /expected a number within the range of a double/,
    ],
    [
      'an extent beyond exact integers',
      file('{"a":{"dtype":"F32","shape":[9007199254740993],"data_offsets":[0,4]}}', 4),
      /expected shape/,
    ],
    [
      'a size that wraps around to four bytes',
      file({ a: F32([2 ** 32, 2 ** 32 + 1, 1], [0, 4]) }, 4),
      /the size of F32 × .* overflows/,
    ],
    ['an overflow hidden behind a zero', file({ a: F32([2 ** 40, 2 ** 40, 0], [0, 0]) }, 0), /overflows/],
    [
      'negative offsets',
      file({ a: F32([1], [-4, 0]) }, 4),
      /expected data_offsets to be two non-negative integers/,
    ],
    ['offsets in the wrong order', file({ a: F32([1], [4, 0]) }, 4), /expected data_offsets to be in order/],
    ['three offsets', file({ a: F32([1], [0, 4, 8]) }, 4), /expected data_offsets to be two/],
    [
      'huge offsets',
      file({ a: F32([1], [2 ** 52, 2 ** 52 + 4]) }, 4),
      /leaves a hole of 4503599627370496 bytes/,
    ],
    ['offsets beyond exact integers', file({ a: F32([1], [1e300, 1e300]) }, 4), /expected data_offsets/],
    [
      'fewer bytes than the shape',
      file({ a: F32([2], [0, 4]) }, 4),
      /expected 8 bytes for F32 × \[2\], found 4/,
    ],
    [
      'more bytes than the shape',
      file({ a: F32([1], [0, 8]) }, 8),
      /expected 4 bytes for F32 × \[1\], found 8/,
    ],
    [
      'a hole at the start',
      file({ a: F32([1], [4, 8]) }, 8),
      /'a' leaves a hole of 4 bytes: expected it to begin at byte 0, found 4/,
    ],
    [
      'a hole between',
      file({ a: F32([1], [0, 4]), b: F32([1], [8, 12]) }, 12),
      /'b' leaves a hole of 4 bytes/,
    ],
    [
      'overlapping tensors',
      file({ a: F32([2], [0, 8]), b: F32([2], [4, 12]) }, 12),
      /'b' overlaps the tensor before it: expected it to begin at byte 8, found 4/,
    ],
    ['the same bytes twice', file({ a: F32([1], [0, 4]), b: F32([1], [0, 4]) }, 4), /'b' overlaps/],
    [
      'data that are cut',
      file({ a: F32([2], [0, 8]) }, 7),
      /expected 8 bytes of tensor data, found 7; the file is truncated/,
    ],
    [
      'extra bytes at the end',
      file({ a: F32([2], [0, 8]) }, 9),
      /expected 8 bytes of tensor data, found 9; there are extra bytes at the end/,
    ],
    ['data without tensors', file('{}', 3), /expected 0 bytes of tensor data, found 3/],
    ['an empty name', file({ '': F32([1], [0, 4]) }, 4), /expected a name, found an empty one/],
    [
      'a control character in a name',
      file({ 'a\n\u001b[31m': F32([1], [0, 4]) }, 4),
      /expected no control character/,
    ],
    [
      'half a character in a name',
      file('{"\\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4),
      /lone surrogate/,
    ],
    [
      'an endless name',
      file({ ['a'.repeat(600)]: F32([1], [0, 4]) }, 4),
      /expected a name of at most 512 characters/,
    ],
  ])('%s', (_, bytes, message) => {
    expect(() => open(bytes)).toThrow(WeightsError);
    expect(() => open(bytes)).toThrow(message);
  });

  it('is refused for an overflow that a zero extent hides, wherever the zero is', () => {
    expect(() => open(file({ a: F32([0, 2 ** 40, 2 ** 40], [0, 0]) }, 0))).toThrow(/overflows/);
  });

  it('may list its tensors in any order, empty ones too', () => {
    open(file({ c: F32([1], [4, 8]), b: F32([1], [0, 4]), e: F32([0], [4, 4]), a: F32([0], [0, 0]) }, 8));
  });

  it('may use names of the prototype as ordinary names', () => {
    open(
      file(
        '{"__proto__":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"toString":{"dtype":"U8","shape":[],"data_offsets":[4,5]}}',
        5,
      ),
    );
    expect(({} as Record<string, unknown>).dtype).toBeUndefined();
  });

  it('is refused if it claims a terabyte of data in a small file', () => {
    const path = join(temporaryDirectory(), 'model.safetensors');
    writeFileSync(path, file({ a: { dtype: 'U8', shape: [2 ** 40], data_offsets: [0, 2 ** 40] } }, 10));
    expect(() => openSafetensors(path)).toThrow(/expected 1099511627776 bytes of tensor data, found 10/);
  });

  it('is refused if it is a directory, a pipe, a device or a dangling link', () => {
    const directory = temporaryDirectory();
    mkdirSync(join(directory, 'directory'));
    symlinkSync(join(directory, 'absent'), join(directory, 'link'));
    execFileSync('mkfifo', [join(directory, 'pipe')]);
    expect(() => openSafetensors(join(directory, 'directory'))).toThrow(
      /expected a safetensors file, found something else/,
    );
    expect(() => openSafetensors(join(directory, 'pipe'))).toThrow(/found something else/);
    expect(() => openSafetensors('/dev/zero')).toThrow(/found something else/);
    expect(() => openSafetensors(join(directory, 'link'))).toThrow(/no such file/);
  });

  it('gives an error if it shrinks while it is open', () => {
    const path = join(temporaryDirectory(), 'model.safetensors');
    writeFileSync(path, file({ a: { dtype: 'U8', shape: [1000], data_offsets: [0, 1000] } }, 1000));
    const opened = openSafetensors(path);
    expect(opened.read('a')).toHaveLength(1000);
    truncateSync(path, 500);
    expect(() => opened.read('a')).toThrow(WeightsError);
    opened.close();
  });

  it('gives an error of ours or works under any mutation', () => {
    const good = readFileSync(goldenPath('safetensors/mixed.safetensors'));
    const path = join(temporaryDirectory(), 'model.safetensors');
    const edit = fc.record({
      at: fc.nat(good.length - 1),
      remove: fc.nat(8),
      insert: fc.oneof(
        fc.uint8Array({ maxLength: 8 }),
        fc.constantFrom('[', '{', '"', ',', '-', '9', '}', 'null', '1e9').map((text) => Buffer.from(text)),
      ),
    });
    fc.assert(
      fc.property(fc.array(edit, { minLength: 1, maxLength: 4 }), (edits) => {
        let bytes: Uint8Array = good;
        for (const { at, remove, insert } of edits) {
          bytes = Buffer.concat([bytes.subarray(0, at), insert, bytes.subarray(at + remove)]);
        }
        writeFileSync(path, bytes);
        try {
          const opened = openSafetensors(path);
          for (const [name, { begin, end }] of opened.tensors)
            expect(opened.read(name)).toHaveLength(end - begin);
          opened.close();
        } catch (error) {
          if (!(error instanceof WeightsError)) throw error;
          expect(error.message).toContain(path);
        }
      }),
      { numRuns: 500, seed: 1 },
    );
  });
});
