/** What open files of weights have in common, whatever their format. */
import { closeSync } from 'node:fs';
import { show, WeightsError } from './error.js';
import { readFully } from './file-bytes.js';
import type { TensorEntry, WeightsFile } from './weights-file.js';

export abstract class OpenWeights implements WeightsFile {
  abstract readonly tensors: ReadonlyMap<string, TensorEntry>;
  #descriptor: number | undefined;

  constructor(
    readonly path: string,
    descriptor: number,
  ) {
    this.#descriptor = descriptor;
  }

  /** Where the bytes of a tensor begin in the file; undefined where they do not lie there as they are read. */
  protected abstract placeOf(name: string): number | undefined;

  /** Fills `into` with the bytes of a tensor that has no such place. */
  protected gather(_name: string, _into: Uint8Array): void {}

  read(name: string): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(this.#size(name));
    this.readInto(name, bytes);
    return bytes;
  }

  readInto(name: string, buffer: Uint8Array, offset = 0): number {
    const size = this.#size(name);
    if (!Number.isInteger(offset) || offset < 0 || offset + size > buffer.length)
      throw new RangeError(
        `tensor '${name}' has ${size} bytes: expected room for them at ${offset} of ${buffer.length}`,
      );
    const into = buffer.subarray(offset, offset + size);
    const place = this.placeOf(name);
    if (place === undefined) this.gather(name, into);
    else this.fill(into, place);
    return size;
  }

  *readChunks(name: string, chunkBytes: number): Generator<Uint8Array<ArrayBuffer>> {
    if (!Number.isInteger(chunkBytes) || chunkBytes < 1)
      throw new RangeError(`expected chunkBytes to be a positive integer, found ${chunkBytes}`);
    const size = this.#size(name);
    const place = this.placeOf(name);
    const whole = place === undefined ? this.read(name) : undefined;
    const buffer = whole ?? new Uint8Array(Math.min(chunkBytes, size));
    for (let at = 0; at < size; at += chunkBytes) {
      const begin = whole ? at : 0;
      const chunk = buffer.subarray(begin, begin + Math.min(chunkBytes, size - at));
      if (place !== undefined) this.fill(chunk, place + at);
      yield chunk;
    }
  }

  close(): void {
    if (this.#descriptor === undefined) return;
    closeSync(this.#descriptor);
    this.#descriptor = undefined;
  }

  /** Fills `bytes` from a place in the file. */
  protected fill(bytes: Uint8Array, place: number): void {
    if (this.#descriptor === undefined) throw new WeightsError(`${this.path}: the file has been closed`);
    readFully(this.path, this.#descriptor, bytes, place);
  }

  #size(name: string): number {
    const entry = this.tensors.get(name);
    if (entry === undefined) throw new WeightsError(`${this.path}: there is no tensor ${show(name)}`);
    return entry.end - entry.begin;
  }
}
