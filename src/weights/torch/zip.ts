/**
 * The archive of torch.save: a zip with uncompressed entries, so that an entry is a range of bytes of the file.
 * Positions and sizes in the archive are checked against the file before anything is allocated for them.
 */
import { WeightsError } from '../error.js';
import { readFully } from '../file-bytes.js';

/** Bytes `begin` (inclusive) to `end` (exclusive) of the file. */
export interface ZipEntry {
  readonly begin: number;
  readonly end: number;
}

const END = 0x06054b50;
const END_BYTES = 22;
const END_64 = 0x06064b50;
const END_64_BYTES = 56;
const LOCATOR_64 = 0x07064b50;
const LOCATOR_64_BYTES = 20;
const ENTRY = 0x02014b50;
const ENTRY_BYTES = 46;
const LOCAL = 0x04034b50;
const LOCAL_BYTES = 30;
/** A comment may follow the end of the directory. */
const MAX_COMMENT_BYTES = 0xffff;
const MAX_DIRECTORY_BYTES = 100_000_000;
/** Value of a field of 32 bits whose number is in the zip64 field instead. */
const ELSEWHERE = 0xffffffff;

/**
 * The entries of an archive by name.
 *
 * @throws WeightsError that names the file and its error
 */
export function readZip(path: string, descriptor: number, fileBytes: number): ReadonlyMap<string, ZipEntry> {
  return new Archive(path, descriptor, fileBytes).entries();
}

class Archive {
  constructor(
    private readonly path: string,
    private readonly descriptor: number,
    private readonly bytes: number,
  ) {}

  entries(): ReadonlyMap<string, ZipEntry> {
    const directory = this.#directory();
    const entries = new Map<string, ZipEntry>();
    for (let at = 0; at < directory.byteLength; ) {
      if (at + ENTRY_BYTES > directory.byteLength || directory.getUint32(at, true) !== ENTRY)
        this.#fail(`expected an entry at byte ${at} of the archive's directory`);
      const [nameBytes, extraBytes, commentBytes] = [28, 30, 32].map((field) =>
        directory.getUint16(at + field, true),
      ) as [number, number, number];
      const next = at + ENTRY_BYTES + nameBytes + extraBytes + commentBytes;
      if (next > directory.byteLength) this.#fail('the directory of the archive is cut');
      const begin = directory.byteOffset + at + ENTRY_BYTES;
      const name = Buffer.from(directory.buffer as ArrayBuffer, begin, nameBytes).toString('utf8');
      if (entries.has(name)) this.#fail(`the entry ${JSON.stringify(name)} occurs twice in the archive`);
      entries.set(name, this.#entry(name, directory, at, nameBytes, extraBytes));
      at = next;
    }
    return entries;
  }

  #entry(name: string, directory: DataView, at: number, nameBytes: number, extraBytes: number): ZipEntry {
    const what = `the entry ${JSON.stringify(name)}`;
    const method = directory.getUint16(at + 10, true);
    if ((directory.getUint16(at + 8, true) & 1) !== 0) this.#fail(`${what} is encrypted`);
    if (method !== 0)
      this.#fail(`${what} is compressed (method ${method}); torch.save stores entries as they are`);
    const [stored, size, local] = this.#places(directory, at, at + ENTRY_BYTES + nameBytes, extraBytes, what);
    if (stored !== size) this.#fail(`${what} has ${size} bytes and stores ${stored}`);
    const header = this.#read(local, LOCAL_BYTES, `the header of ${what}`);
    if (header.getUint32(0, true) !== LOCAL) this.#fail(`${what}: expected its header at byte ${local}`);
    const begin = local + LOCAL_BYTES + header.getUint16(26, true) + header.getUint16(28, true);
    if (begin + size > this.bytes)
      this.#fail(`${what} ends at byte ${begin + size} of ${this.bytes}; the file is truncated`);
    return { begin, end: begin + size };
  }

  /** Stored size, size and position of the header, each of 32 bits or, where that is full, of 64 in the extra field. */
  #places(
    directory: DataView,
    at: number,
    extra: number,
    extraBytes: number,
    what: string,
  ): [number, number, number] {
    const size = directory.getUint32(at + 24, true);
    const stored = directory.getUint32(at + 20, true);
    const local = directory.getUint32(at + 42, true);
    if (size !== ELSEWHERE && stored !== ELSEWHERE && local !== ELSEWHERE) return [stored, size, local];
    for (let field = extra; field + 4 <= extra + extraBytes; ) {
      const [id, bytes] = [directory.getUint16(field, true), directory.getUint16(field + 2, true)];
      if (field + 4 + bytes > extra + extraBytes) break;
      if (id === 1) {
        let place = field + 4;
        const wide = (value: number) => {
          if (value !== ELSEWHERE) return value;
          if (place + 8 > field + 4 + bytes) return this.#fail(`${what}: its size is missing`);
          place += 8;
          return Number(directory.getBigUint64(place - 8, true));
        };
        const wideSize = wide(size);
        return [wide(stored), wideSize, wide(local)];
      }
      field += 4 + bytes;
    }
    return this.#fail(`${what}: its size is missing`);
  }

  #directory(): DataView {
    const tailBytes = Math.min(this.bytes, END_BYTES + MAX_COMMENT_BYTES);
    const tail = this.#read(this.bytes - tailBytes, tailBytes, 'the end');
    let at = tailBytes - END_BYTES;
    while (at >= 0 && tail.getUint32(at, true) !== END) at--;
    if (at < 0) this.#fail('found no directory of an archive at its end; the file is truncated');
    let [size, begin] = [tail.getUint32(at + 12, true), tail.getUint32(at + 16, true)];
    if (size === ELSEWHERE || begin === ELSEWHERE) [size, begin] = this.#directory64(tail, at);
    if (size > MAX_DIRECTORY_BYTES)
      this.#fail(`expected a directory of at most ${MAX_DIRECTORY_BYTES} bytes, found ${size}`);
    return this.#read(begin, size, 'the directory of the archive');
  }

  #directory64(tail: DataView, end: number): [number, number] {
    const at = end - LOCATOR_64_BYTES;
    if (at < 0 || tail.getUint32(at, true) !== LOCATOR_64)
      this.#fail('the place of its directory is missing');
    const begin = Number(tail.getBigUint64(at + 8, true));
    const record = this.#read(begin, END_64_BYTES, 'the end of the directory');
    if (record.getUint32(0, true) !== END_64) this.#fail('the place of its directory is wrong');
    return [Number(record.getBigUint64(40, true)), Number(record.getBigUint64(48, true))];
  }

  #read(begin: number, bytes: number, what: string): DataView {
    if (begin < 0 || begin + bytes > this.bytes)
      this.#fail(`${what} would end at byte ${begin + bytes} of ${this.bytes}; the file is truncated`);
    const read = new Uint8Array(bytes);
    readFully(this.path, this.descriptor, read, begin);
    return new DataView(read.buffer);
  }

  #fail(problem: string): never {
    throw new WeightsError(`${this.path}: ${problem}`);
  }
}
