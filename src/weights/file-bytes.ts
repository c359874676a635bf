/** Bytes of a file of weights, read at places. */
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { systemReason } from '../files/error.js';
import { WeightsError } from './error.js';

/** readSync takes no more than 2 GiB. */
const READ_BYTES = 1 << 30;

/**
 * Opens a file and hands it to `use`; it is closed again where that throws.
 *
 * @param kind the expected kind, such as "a GGUF file"
 */
export function openWeights<T>(path: string, kind: string, use: (descriptor: number, bytes: number) => T): T {
  let descriptor: number;
  try {
    // Without O_NONBLOCK opening a named pipe would wait for a writer for ever.
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw new WeightsError(`cannot read ${path}: ${systemReason(error)}`, { cause: error });
  }
  try {
    const status = fstatSync(descriptor);
    if (!status.isFile()) throw new WeightsError(`${path}: expected ${kind}, found something else`);
    return use(descriptor, status.size);
  } catch (error) {
    closeSync(descriptor);
    throw error;
  }
}

/** Fills `bytes` from `position` on. */
export function readFully(path: string, descriptor: number, bytes: Uint8Array, position: number): void {
  let filled = 0;
  while (filled < bytes.length) {
    let count: number;
    try {
      const length = Math.min(bytes.length - filled, READ_BYTES);
      count = readSync(descriptor, bytes, filled, length, position + filled);
    } catch (error) {
      throw new WeightsError(`cannot read ${path}: ${systemReason(error)}`, { cause: error });
    }
    if (count === 0) {
      throw new WeightsError(
        `${path}: the file became shorter while it was read: expected data up to byte ${position + bytes.length}, found ${position + filled}`,
      );
    }
    filled += count;
  }
}
