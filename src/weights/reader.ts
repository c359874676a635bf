import type { QuantizedFormat, QuantizedWeight } from './quantized/format.js';
import type { WeightsFile } from './weights-file.js';

/** The weights of a directory, read as from one file. */
export interface CheckpointReader extends Omit<WeightsFile, 'path'> {
  readonly directory: string;
  /**
   * Format in which a weight is stored; undefined for one that is not quantised. `tensors` and `read` give its values
   * in f32.
   */
  format?(name: string): QuantizedFormat | undefined;
  /** The weight as it is stored; undefined likewise. */
  quantized?(name: string): QuantizedWeight | undefined;
}
