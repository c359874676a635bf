/** Writes weights into a model directory that servers read again: new files first, which then replace the old ones. */
import { randomBytes } from 'node:crypto';
import { readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { systemReason } from '../files/error.js';
import type { Decoder } from '../models/decoder.js';
import { saveDecoder } from '../models/save.js';
import { RemoteError } from './errors.js';

const isWeights = (name: string) => /\.safetensors(\.index\.json)?$/.test(name);

/**
 * Replaces the weights of a directory; its configuration and tokenizer stay. Weights are in the dtype that the decoder
 * computes in.
 *
 * @throws RemoteError where the directory does not exist or cannot be written
 */
export async function writeOver(directory: string, decoder: Decoder): Promise<void> {
  const made = join(directory, `.steptrain-${randomBytes(6).toString('hex')}`);
  try {
    const before = (await readdir(directory)).filter(isWeights);
    try {
      await saveDecoder(decoder, made, { dtype: decoder.dtype === 'bf16' ? 'bf16' : 'f32' });
      const files = (await readdir(made)).filter(isWeights);
      for (const name of before) if (!files.includes(name)) await rm(join(directory, name));
      for (const name of files) await rename(join(made, name), join(directory, name));
    } finally {
      await rm(made, { recursive: true, force: true });
    }
  } catch (error) {
    throw new RemoteError(
      `cannot write the weights that the server reads, ${directory}: ${systemReason(error)}`,
      {
        cause: error,
      },
    );
  }
}
