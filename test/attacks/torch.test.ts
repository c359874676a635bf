/** Hostile files of torch.save: each gives one specific sentence, and every mutation of a good file an error of this package. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { WeightsError } from '../../src/weights/error.js';
import { openTorch } from '../../src/weights/torch/file.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

interface Entry {
  readonly name: string;
  readonly data: Uint8Array;
  readonly method?: number;
  readonly flags?: number;
  readonly size?: number;
  readonly at?: number;
}

/** A zip whose entries are stored, but for what the entries themselves say. */
function zip(entries: readonly Entry[]): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let at = 0;
  for (const { name, data, method = 0, flags = 0, size = data.length, at: place } of entries) {
    const sum = crc32(data);
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt32LE(sum, 14);
    local.writeUInt16LE(Buffer.byteLength(name), 26);
    parts.push(local, Buffer.from(name), Buffer.from(data));
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(flags, 8);
    entry.writeUInt16LE(method, 10);
    entry.writeUInt32LE(sum, 16);
    entry.writeUInt32LE(size, 20);
    entry.writeUInt32LE(size, 24);
    entry.writeUInt16LE(Buffer.byteLength(name), 28);
    entry.writeUInt32LE(place ?? at, 42);
    directory.push(entry, Buffer.from(name));
    at += 30 + Buffer.byteLength(name) + data.length;
  }
  const bytes = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt32LE(bytes.length, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...parts, bytes, end]);
}

const u32 = (value: number) => String.fromCharCode(...[0, 8, 16, 24].map((shift) => (value >>> shift) & 255));
const text = (value: string) => `X${u32(value.length)}${value}`;
const count = (value: number) => `J${u32(value)}`;
const tuple = (...items: string[]) => `(${items.join('')}t`;
const counts = (...values: number[]) => tuple(...values.map(count));
const storage = (key: string, length: number, type = 'torch\nFloatStorage\n') =>
  `${tuple(text('storage'), `c${type}`, text(key), text('cpu'), count(length))}Q`;
const tensor = (of: string, offset: number, shape: string, strides: string) =>
  `ctorch._utils\n_rebuild_tensor_v2\n${tuple(of, count(offset), shape, strides, '\x89', 'ccollections\nOrderedDict\n)R')}R`;
const dict = (...items: string[]) => `}(${items.join('')}u`;
const pickle = (body: string, protocol = 2) =>
  Buffer.from(`\x80${String.fromCharCode(protocol)}${body}.`, 'latin1');

/** Four singles behind one tensor. */
const four = { name: 'x/data/0', data: new Uint8Array(16) };
const withPickle = (body: string | Buffer, ...entries: Entry[]) =>
  zip([{ name: 'x/data.pkl', data: typeof body === 'string' ? pickle(body) : body }, ...entries]);
const one = (value: string) => withPickle(dict(text('w'), value), four);

function open(bytes: Uint8Array): void {
  const path = join(temporaryDirectory(), 'pytorch_model.bin');
  writeFileSync(path, bytes);
  const file = openTorch(path);
  try {
    for (const name of file.tensors.keys()) file.read(name);
  } finally {
    file.close();
  }
}

describe('a hostile file of torch.save', () => {
  it('is good before it is made hostile', () => {
    expect(() => open(one(tensor(storage('0', 4), 0, counts(2, 2), counts(2, 1))))).not.toThrow();
  });

  it.each<[string, Uint8Array, RegExp]>([
    ['nothing', new Uint8Array(0), /expected the zip archive that torch\.save writes since PyTorch 1\.6/],
    ['a pickle without an archive', pickle('}'), /expected the zip archive/],
    [
      'an archive without an end',
      one(tensor(storage('0', 4), 0, counts(4), counts(1))).subarray(0, 90),
      /truncated/,
    ],
    ['an archive without a pickle', zip([four]), /expected an entry data\.pkl, found none/],
    [
      'a compressed entry',
      zip([{ name: 'x/data.pkl', data: pickle('}'), method: 8 }]),
      /is compressed \(method 8\)/,
    ],
    ['an encrypted entry', zip([{ name: 'x/data.pkl', data: pickle('}'), flags: 1 }]), /is encrypted/],
    ['an entry given twice', withPickle('}', four, four), /"x\/data\/0" occurs twice/],
    [
      'an entry beyond the file',
      withPickle('}', { ...four, size: 1e9 }),
      /ends at byte \d+ of \d+; the file is truncated/,
    ],
    ['an entry without a header', withPickle('}', { ...four, at: 7 }), /expected its header at byte 7/],
    ['an entry whose header is beyond the file', withPickle('}', { ...four, at: 1e9 }), /would end at byte/],
    [
      'a size of 64 bits that is missing',
      withPickle('}', { ...four, size: 0xffffffff }),
      /its size is missing/,
    ],
    [
      'big-endian values',
      withPickle('}', { name: 'x/byteorder', data: Buffer.from('big') }),
      /little-endian order/,
    ],
    ['an empty pickle', withPickle(Buffer.alloc(0)), /ends within an instruction, at byte 0/],
    ['another protocol', withPickle(pickle('}', 4)), /expected a pickle of protocol 2, found 4/],
    [
      'a call of the system',
      withPickle(`cos\nsystem\n${tuple(text('touch /tmp/owned'))}R`),
      /names "os\.system", which is neither a tensor nor a container; nothing of it was run/,
    ],
    ['a function of Python', withPickle('c__builtin__\neval\n'), /names "__builtin__\.eval"/],
    ['a prototype of JavaScript', withPickle('c__proto__\nconstructor\n'), /names "__proto__\.constructor"/],
    [
      'a name that begins like a known one',
      withPickle('ctorch\nFloatStorage.load\n'),
      /names "torch\.FloatStorage\.load"/,
    ],
    ['a name without an end', withPickle(`c${'a'.repeat(10_000)}`), /names what has no end/],
    ['a class that is made (INST)', withPickle('(ios\nsystem\n'), /the instruction 0x69 at byte 3/],
    ['an object that is made (OBJ)', withPickle('(oos\n'), /the instruction 0x6f/],
    [
      'a name from the stack (STACK_GLOBAL)',
      withPickle(`${text('os')}${text('system')}\x93`),
      /the instruction 0x93/,
    ],
    ['a new object (NEWOBJ)', withPickle('ccollections\nOrderedDict\n)\x81'), /the instruction 0x81/],
    ['an extension (EXT1)', withPickle('\x82\x01'), /the instruction 0x82/],
    ['a text that is cut', withPickle('X\xff\xff\xff\x7fabc'), /ends within an instruction/],
    ['a value that was not put', withPickle('h\x05'), /takes the value 5, which it did not put/],
    ['a stack that is empty', withPickle(''), /takes a value that it does not have/],
    ['a group that was not begun', withPickle('u'), /ends a group that it did not begin/],
    ['groups without an end', withPickle('('.repeat(400_000)), /begins groups without end/],
    ['containers without an end', withPickle('}'.repeat(400_000)), /at most 300000 containers/],
    ['more than one value', withPickle('}}'), /more than one value/],
    ['a key without a value', withPickle(`}(${text('w')}u`), /a key without a value/],
    ['a key given twice', withPickle(dict(text('w'), 'N', text('w'), 'N')), /the key "w" occurs twice/],
    ['a list as a key', withPickle(dict(']', 'N')), /keys of dicts to be texts or numbers/],
    ['an item of a list', withPickle(`](${text('w')}Nu`), /sets an item of what is no dict/],
    ['a value that is appended to a dict', withPickle('}Na'), /appends to what is no list/],
    ['attributes of a list', withPickle(']}b'), /sets attributes of what is no dict/],
    ['a call of a dict', withPickle('})R'), /calls what is no constructor/],
    [
      'a dict made of a list, again and again',
      withPickle(`ccollections\nOrderedDict\n${tuple(']')}R`),
      /collections\.OrderedDict arguments that it does not take/,
    ],
    ['a storage that is none', withPickle('NQ'), /refers to what is no storage/],
    ['a storage of another kind', one(`${tuple(text('module'), 'N')}Q`), /no storage of a tensor/],
    ['an integer without an end', withPickle(`\x8a\xff${'\x7f'.repeat(255)}`), /is too large/],
    ['a list instead of a dict', withPickle(']'), /expected tensors by name, found something else/],
    [
      'a number instead of a tensor',
      one('K\x01'),
      /something else under "w"; is it a checkpoint of a training/,
    ],
    ['a number instead of a name', withPickle(dict('K\x01', 'N')), /something else under 1/],
    [
      'a name with a control character',
      withPickle(dict(text('a\x01'), tensor(storage('0', 4), 0, counts(4), counts(1))), four),
      /no control character/,
    ],
    [
      'a storage that is not there',
      one(tensor(storage('7', 4), 0, counts(4), counts(1))),
      /there is no storage "7"/,
    ],
    [
      'a storage with a path as key',
      one(tensor(storage('../data.pkl', 4), 0, counts(4), counts(1))),
      /there is no storage/,
    ],
    [
      'a storage of another length',
      one(tensor(storage('0', 5), 0, counts(4), counts(1))),
      /expected 20 bytes in its storage "0", found 16/,
    ],
    [
      'a tensor beyond its storage',
      one(tensor(storage('0', 4), 1, counts(4), counts(1))),
      /does not lie within its storage/,
    ],
    [
      'a stride beyond its storage',
      one(tensor(storage('0', 4), 0, counts(2), counts(4))),
      /does not lie within/,
    ],
    ['a stride below zero', one(tensor(storage('0', 4), 3, counts(2), counts(-1))), /does not lie within/],
    ['an extent below zero', one(tensor(storage('0', 4), 0, counts(-4), counts(1))), /does not lie within/],
    [
      'one value repeated to fill the memory',
      one(tensor(storage('0', 4), 0, counts(2_000_000_000), counts(0))),
      /does not lie within its storage/,
    ],
    [
      'extents whose product overflows',
      one(tensor(storage('0', 4), 0, counts(2 ** 30, 2 ** 30, 2 ** 30), counts(0, 0, 0))),
      /does not lie within/,
    ],
    [
      'fewer strides than extents',
      one(tensor(storage('0', 4), 0, counts(2, 2), counts(1))),
      /does not lie within/,
    ],
    [
      'a fraction as an extent',
      one(tensor(storage('0', 4), 0, tuple(`G${'\x3f'.repeat(8)}`), counts(1))),
      /does not lie within/,
    ],
  ])('%s', (_, bytes, message) => {
    let thrown: unknown;
    try {
      open(bytes);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(WeightsError);
    expect((thrown as Error).message).toMatch(message);
    expect(existsSync('/tmp/owned')).toBe(false);
  });

  it('never takes more memory than its size allows, or fails with another error, whatever is changed', () => {
    const good = readFileSync(goldenPath('torch/mixed.bin'));
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(good.length - 1), fc.nat(255)), { minLength: 1, maxLength: 8 }),
        fc.nat(good.length),
        (changes, length) => {
          const bytes = Buffer.from(good);
          for (const [at, value] of changes) bytes[at] = value;
          try {
            open(length % 5 === 0 ? bytes.subarray(0, length) : bytes);
          } catch (error) {
            if (!(error instanceof WeightsError)) throw error;
          }
        },
      ),
      { numRuns: 300 },
    );
  });
});
