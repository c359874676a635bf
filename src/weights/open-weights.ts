/** The common base of open weight files of every format. */
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

  /** Position of a tensor's bytes in the file; undefined where they are not stored as they are read. */
  protected abstract placeOf(name: string): number | undefined;

  /** Fills `into` with the bytes of a tensor that has no such place. */
  protected gather(_name: string, _into: Uint8Array): void {}

  read(name: string): Uint8Array<ArrayBuffer> {
    const entry = this.tensors.get(name);
    if (entry === undefined) throw new WeightsError(`${this.path}: there is no tensor ${show(name)}`);
    const bytes = new Uint8Array(entry.end - entry.begin);
    const place = this.placeOf(name);
    if (place === undefined) this.gather(name, bytes);
    else this.fill(bytes, place);
    return bytes;
  }

  part(name: string, from: number, to: number): Uint8Array {
    const place = this.placeOf(name);
    if (place === undefined) return this.read(name).subarray(from, to);
    const bytes = new Uint8Array(to - from);
    this.fill(bytes, place + from);
    return bytes;
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
}
