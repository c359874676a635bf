import { byteTokenizer, isByteTokenizer } from './byte.js';
import { HuggingFaceTokenizer } from './huggingface.js';
import type { Tokenizer } from './tokenizer.js';
import { readTokenizerFiles } from './tokenizer-files.js';

/**
 * Loads the tokenizer of a model directory: `tokenizer.json` (or `tokenizer.json.gz`), and beside it, where they exist,
 * `tokenizer_config.json`, `special_tokens_map.json`, `chat_template.jinja` and `additional_chat_templates/`.
 *
 * @throws DataError for a missing or damaged file, in one sentence that names it
 */
export async function loadTokenizer(directory: string): Promise<Tokenizer> {
  const files = await readTokenizerFiles(directory);
  if (isByteTokenizer(files.tokenizer)) return byteTokenizer();
  return new HuggingFaceTokenizer(files);
}
