/** A file of weights, whatever its format. */
import type { Dtype } from './dtype.js';

/** Place of one tensor: bytes `begin` (inclusive) to `end` (exclusive), counted from the start of the file. */
export interface TensorEntry {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

/** An open file of weights. Every method that takes a name throws {@link WeightsError} for an unknown one. */
export interface WeightsFile {
  readonly path: string;
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /** The little-endian bytes of one tensor in an array of its own (aligned for every element type). */
  read(name: string): Uint8Array<ArrayBuffer>;
  /** Bytes `from` (inclusive) to `to` (exclusive) of what {@link read} gives, without the others where they are stored like that. */
  part?(name: string, from: number, to: number): Uint8Array;
  close(): void;
}
