/**
 * GGUF files: metadata and tensors of a model as llama.cpp stores them (versions 2 and 3, little endian). The header is checked
 * against the size of the file before anything is allocated for it.
 */
import { closeSync } from 'node:fs';
import { show, WeightsError } from '../error.js';
import { openWeights, readFully } from '../file-bytes.js';
import { tensorNameProblem } from '../safetensors.js';
import { type BlockType, blockType, blockTypeNames } from './types.js';

export type MetadataValue = string | number | bigint | boolean | readonly MetadataValue[];

export interface GgufTensor {
  readonly name: string;
  readonly type: BlockType;
  /** Rows first, as in PyTorch; ggml lists the innermost extent first. */
  readonly shape: readonly number[];
  /** Place in the file, in bytes. */
  readonly begin: number;
  readonly end: number;
}

interface GgufHeader {
  readonly metadata: ReadonlyMap<string, MetadataValue>;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

export interface GgufFile extends GgufHeader {
  readonly path: string;
  /** The stored bytes of a tensor, or of one of `of` equal parts. @throws WeightsError for a name that is not there */
  read(name: string, part?: { readonly index: number; readonly of: number }): Uint8Array<ArrayBuffer>;
  close(): void;
}

const MAGIC = 0x46554747;
/** Bytes read at a time while the header is parsed. */
const CHUNK = 4 << 20;
const MAX_EXTENTS = 4;
/** Max depth of lists in lists. No writer nests them, and each level is a recursive call. */
const MAX_NESTING = 4;
/** Values of a list; the largest vocabularies have 300,000. */
const MAX_LIST = 1 << 24;

const SCALARS: Readonly<Record<number, [bytes: number, (view: DataView, at: number) => MetadataValue]>> = {
  0: [1, (view, at) => view.getUint8(at)],
  1: [1, (view, at) => view.getInt8(at)],
  2: [2, (view, at) => view.getUint16(at, true)],
  3: [2, (view, at) => view.getInt16(at, true)],
  4: [4, (view, at) => view.getUint32(at, true)],
  5: [4, (view, at) => view.getInt32(at, true)],
  6: [4, (view, at) => view.getFloat32(at, true)],
  7: [1, (view, at) => view.getUint8(at) !== 0],
  10: [8, (view, at) => exact(view.getBigUint64(at, true))],
  11: [8, (view, at) => exact(view.getBigInt64(at, true))],
  12: [8, (view, at) => view.getFloat64(at, true)],
};
const STRING = 8;
const LIST = 9;

/**
 * Opens a file and checks its whole header.
 *
 * @throws WeightsError that names the file and its error
 */
export function openGguf(path: string): GgufFile {
  return openWeights(path, 'a GGUF file', (descriptor, bytes) => {
    const header = readHeader(new Reader(path, descriptor, bytes));
    return {
      path,
      ...header,
      read(name, { index, of } = { index: 0, of: 1 }) {
        const tensor = header.tensors.get(name);
        if (tensor === undefined) throw new WeightsError(`${path}: there is no tensor ${show(name)}`);
        const stored = new Uint8Array((tensor.end - tensor.begin) / of);
        readFully(path, descriptor, stored, tensor.begin + index * stored.length);
        return stored;
      },
      close: () => closeSync(descriptor),
    };
  });
}

function readHeader(reader: Reader): GgufHeader {
  const { path } = reader;
  const magic = reader.size < 4 ? 0 : reader.u32();
  if (magic !== MAGIC) throw new WeightsError(`${path}: expected a GGUF file, which begins with "GGUF"`);
  const version = reader.u32();
  if (version !== 2 && version !== 3) {
    const big = version === 0x02000000 || version === 0x03000000 ? ' (the file is big endian)' : '';
    throw new WeightsError(`${path}: expected GGUF version 2 or 3, found ${version}${big}; convert it again`);
  }
  // A tensor takes at least 24 bytes of header, an entry of metadata 13.
  const [tensorCount, entryCount] = [reader.count('tensors', 24), reader.count('entries of metadata', 13)];
  const metadata = new Map<string, MetadataValue>();
  for (let i = 0; i < entryCount; i++) {
    const key = reader.text('a key of metadata');
    if (metadata.has(key)) throw new WeightsError(`${path}: the key ${show(key)} is there twice`);
    metadata.set(key, reader.value(reader.u32(), key, 0));
  }
  const given = metadata.get('general.alignment') ?? 32;
  if (typeof given !== 'number' || given < 1 || given > 1 << 20 || (given & (given - 1)) !== 0)
    throw new WeightsError(
      `${path}: general.alignment: expected a power of two, found ${show(String(given))}`,
    );
  const [part, parts] = [metadata.get('split.no'), metadata.get('split.count')].map(Number) as [
    number,
    number,
  ];
  if (parts > 1)
    throw new WeightsError(
      `${path}: is part ${part + 1} of ${parts} of a split model; join them first: llama-gguf-split --merge FIRST.gguf WHOLE.gguf`,
    );
  const infos = Array.from({ length: tensorCount }, () => readTensor(reader));
  const begin = Math.ceil(reader.position / given) * given;
  return { metadata, tensors: placed(path, infos, begin, given, reader.size) };
}

interface TensorInfo extends Omit<GgufTensor, 'begin' | 'end'> {
  readonly offset: number;
  readonly bytes: number;
}

function readTensor(reader: Reader): TensorInfo {
  const { path } = reader;
  const name = reader.text('the name of a tensor');
  const fail = (problem: string): never => {
    throw new WeightsError(`${path}: tensor ${show(name)}: ${problem}`);
  };
  const badName = tensorNameProblem(name);
  if (badName !== undefined) fail(badName);
  const extents = reader.u32();
  if (extents < 1 || extents > MAX_EXTENTS) fail(`expected 1 to ${MAX_EXTENTS} extents, found ${extents}`);
  const inner = Array.from({ length: extents }, () => reader.size64('an extent', name));
  const number = reader.u32();
  const type = blockType(number);
  if (type === undefined)
    return fail(
      `type ${number} of ggml is not read; expected one of ${blockTypeNames().join(', ')}: take another file of the model, such as its Q8_0 or Q4_K_M`,
    );
  if ((inner[0] as number) % type.values !== 0)
    fail(`a row of ${inner[0]} values is no whole number of blocks of ${type.values} (${type.name})`);
  const values = inner.reduce((product, extent) => product * extent, 1);
  if (!Number.isSafeInteger(values)) fail(`the size of ${show(inner)} overflows`);
  const offset = reader.size64('the offset', name);
  return { name, type, shape: inner.reverse(), offset, bytes: (values / type.values) * type.bytes };
}

/** The tensors with their places, which must lie in the file, aligned, and apart. */
function placed(path: string, infos: readonly TensorInfo[], begin: number, alignment: number, size: number) {
  const tensors = new Map<string, GgufTensor>();
  let end = begin;
  let before = '';
  for (const { offset, bytes, ...info } of [...infos].sort((a, b) => a.offset - b.offset)) {
    const fail = (problem: string): never => {
      throw new WeightsError(`${path}: tensor ${show(info.name)}: ${problem}`);
    };
    if (tensors.has(info.name)) fail('is there twice');
    if (offset % alignment !== 0) fail(`begins at ${offset}, which is no multiple of ${alignment}`);
    const at = begin + offset;
    if (at + bytes > size)
      fail(`ends at byte ${at + bytes} of a file of ${size}; the file is truncated, fetch it again`);
    if (at < end) fail(`overlaps ${show(before)}`);
    end = at + bytes;
    before = info.name;
    tensors.set(info.name, { ...info, begin: at, end });
  }
  return tensors;
}

/** Reads the header in order, a chunk at a time. */
class Reader {
  position = 0;
  private chunk = new Uint8Array(0);
  private chunkBegin = 0;

  constructor(
    readonly path: string,
    private readonly descriptor: number,
    readonly size: number,
  ) {}

  u32(): number {
    return this.view(4).getUint32(0, true);
  }

  /** Reads a count of things that each take at least `least` of the bytes that follow. */
  count(of: string, least: number): number {
    const count = this.view(8).getBigUint64(0, true);
    const left = this.size - this.position;
    if (count > BigInt(Math.floor(left / least)))
      throw new WeightsError(
        `${this.path}: ${count} ${of} do not fit into the ${left} bytes that follow; the file is damaged or truncated, fetch it again`,
      );
    return Number(count);
  }

  size64(what: string, name: string): number {
    const value = this.view(8).getBigUint64(0, true);
    if (value > BigInt(Number.MAX_SAFE_INTEGER))
      throw new WeightsError(`${this.path}: tensor ${show(name)}: ${what} of ${value} is too large`);
    return Number(value);
  }

  text(what: string): string {
    const bytes = this.bytes(this.count(`bytes of ${what}`, 1));
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      throw new WeightsError(`${this.path}: ${what} is not UTF-8; the file is damaged`);
    }
  }

  value(type: number, key: string, nesting: number): MetadataValue {
    const scalar = SCALARS[type];
    if (scalar) return scalar[1](this.view(scalar[0]), 0);
    if (type === STRING) return this.text(`the value of ${key}`);
    if (type !== LIST || nesting >= MAX_NESTING)
      throw new WeightsError(
        type === LIST
          ? `${this.path}: ${show(key)} is nested deeper than ${MAX_NESTING} lists`
          : `${this.path}: ${show(key)} has the type ${type}, which GGUF does not have`,
      );
    const inner = this.u32();
    const count = this.count(`values of ${key}`, SCALARS[inner]?.[0] ?? (inner === STRING ? 8 : 12));
    if (count > MAX_LIST)
      throw new WeightsError(`${this.path}: ${show(key)} lists ${count} values; no model does`);
    return Array.from({ length: count }, () => this.value(inner, key, nesting + 1));
  }

  private view(count: number): DataView {
    const bytes = this.bytes(count);
    return new DataView(bytes.buffer, bytes.byteOffset, count);
  }

  private bytes(count: number): Uint8Array {
    if (count > this.size - this.position)
      throw new WeightsError(
        `${this.path}: the header ends in the middle; the file is truncated, fetch it again`,
      );
    const inside = this.position - this.chunkBegin;
    if (inside + count > this.chunk.length) {
      this.chunk = new Uint8Array(Math.min(Math.max(CHUNK, count), this.size - this.position));
      this.chunkBegin = this.position;
      readFully(this.path, this.descriptor, this.chunk, this.position);
    }
    const from = this.position - this.chunkBegin;
    this.position += count;
    return this.chunk.subarray(from, from + count);
  }
}

/** A whole number, as a number where it is exact. */
function exact(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}
