// The token that ends replies, in what other programs read of a saved model.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { readModelConfig } from '../architectures/table.js';
import { DataError } from '../files/data-error.js';
import { writeJson } from '../files/json-file.js';
import { loadTokenizer } from '../tokenizer/load.js';
import { replyEnd } from '../tokenizer/reply-end.js';
import { hasTokenizer } from '../tokenizer/tokenizer-files.js';
import { Fields } from '../weights/fields.js';
import { readJsonObject } from '../weights/json.js';

const GENERATION = 'generation_config.json';

/**
 * Lists the token with which training ends replies among those that end texts, in `generation_config.json`: transformers and vLLM stop
 * at these. A file that lists it already stays as it is, and so does a classifier, which writes none.
 *
 * @param directory of a whole model with its tokenizer
 */
export async function saveReplyEnd(directory: string): Promise<void> {
  if (!hasTokenizer(directory) || !isCausal(directory)) return;
  const { eosTokenIds, vocabSize } = readModelConfig(directory);
  const tokenizer = await loadTokenizer(directory).catch((error: unknown) => {
    // Merging needs no tokenizer: one that cannot be read here is copied.
    if (error instanceof DataError) return undefined;
    throw error;
  });
  const id = tokenizer && replyEnd(tokenizer).id;
  if (id === undefined || id >= vocabSize) return;
  const path = join(directory, GENERATION);
  const given = existsSync(path) ? readJsonObject(path) : {};
  // transformers takes the tokens of config.json where this file names none.
  const own = new Fields(given, path).integers('eos_token_id');
  if ((own ?? eosTokenIds).includes(id)) return;
  await writeJson(path, { ...given, eos_token_id: [...new Set([...eosTokenIds, id])] });
}

/** Whether the model writes text, by the class that its `config.json` names; transformers has no classifier of some decoders. */
function isCausal(directory: string): boolean {
  const { architectures } = readJsonObject(join(directory, 'config.json'));
  return Array.isArray(architectures) && architectures.some((name) => String(name).endsWith('ForCausalLM'));
}
