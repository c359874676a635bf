import type { QuantizedFormat, QuantizedWeight } from './quantized/format.js';
import type { TensorEntry } from './weights-file.js';

/** Access to stored weights. A method that takes a name throws {@link WeightsError} for an unknown one. */
export interface CheckpointReader {
  readonly directory: string;
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /** As {@link WeightsFile.read} */
  read(name: string): Uint8Array<ArrayBuffer>;
  /** In which a weight is stored; undefined of one that is not quantised. `tensors` and `read` have its values in f32. */
  format?(name: string): QuantizedFormat | undefined;
  /** The weight as it is stored; undefined likewise. */
  quantized?(name: string): QuantizedWeight | undefined;
  close(): void;
}
