import { join } from 'node:path';
import { badTokenizer } from '../files/data-error.js';
import { byteTokenizer, isByteTokenizer } from './byte.js';
import { HuggingFaceTokenizer } from './huggingface.js';
import { reversedDigits } from './reversed-digits.js';
import type { Tokenizer } from './tokenizer.js';
import { readTokenizerFiles } from './tokenizer-files.js';

/**
 * Loads the tokenizer of a model directory: `tokenizer.json` (or `tokenizer.json.gz`) and, where they exist,
 * `tokenizer_config.json`, `special_tokens_map.json`, `chat_template.jinja` and `additional_chat_templates/`.
 *
 * `"digit_order": "reversed"` in tokenizer_config.json, a key of our own, means that tokens hold numbers last digit
 * first.
 *
 * @throws DataError for a missing or damaged file, in one sentence that names it
 */
export async function loadTokenizer(directory: string): Promise<Tokenizer> {
  const files = await readTokenizerFiles(directory);
  if (isByteTokenizer(files)) return byteTokenizer();
  const tokenizer = new HuggingFaceTokenizer(files);
  const { digit_order: order = 'plain' } = files.config;
  if (order === 'reversed') return reversedDigits(tokenizer);
  if (order === 'plain') return tokenizer;
  const found = JSON.stringify(order);
  throw badTokenizer(`'digit_order' is ${found}; expected "reversed" or "plain"`, {
    file: join(directory, 'tokenizer_config.json'),
  });
}
