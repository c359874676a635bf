import type { ModelConfig } from '../config/schema.js';
import { DataError } from '../files/data-error.js';
import { baseDirectory, tokenizerDirectory } from '../models/base.js';
import { byteTokenizer } from '../tokenizer/byte.js';
import { loadTokenizer } from '../tokenizer/load.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';

/** The configured tokenizer; `base` is the one in the base model's directory. */
export async function configuredTokenizer(
  model: Pick<ModelConfig, 'base' | 'tokenizer'>,
): Promise<Tokenizer> {
  if (model.tokenizer === 'bytes') return byteTokenizer();
  if (model.tokenizer !== 'base') return loadTokenizer(tokenizerDirectory(model.tokenizer));
  if (typeof model.base !== 'string')
    throw new DataError('tokenizer', 'a freshly initialised model has no tokenizer');
  return model.base === 'embedded' ? byteTokenizer() : loadTokenizer(baseDirectory(model.base));
}
