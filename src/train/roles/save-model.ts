import { rm } from 'node:fs/promises';
import { replaceDirectory } from '../../files/directory.js';
import type { Decoder } from '../../models/decoder.js';
import { type SavedRole, saveDecoder } from '../../models/save.js';
import { saveReplyEnd } from '../../models/save-reply-end.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';

/** Writes a model with its tokenizer in place of what an earlier end of the run left there; a resumed run saves again. */
export async function saveModel(
  decoder: Decoder,
  tokenizer: Tokenizer,
  directory: string,
  saved: SavedRole = {},
): Promise<void> {
  const written = `${directory}.partial`;
  await rm(written, { recursive: true, force: true });
  await saveDecoder(decoder, written, saved);
  await tokenizer.save(written);
  await saveReplyEnd(written);
  await replaceDirectory(written, directory);
}
