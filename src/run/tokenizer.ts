import type { ModelConfig } from '../config/schema.js';
import { badTokenizer } from '../files/data-error.js';
import { baseDirectory, tokenizerDirectory } from '../models/base.js';
import { byteTokenizer } from '../tokenizer/byte.js';
import { loadTokenizer } from '../tokenizer/load.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';

/** The configured tokenizer; `base` is the one in the base model's directory. */
export async function configuredTokenizer(
  model: Pick<ModelConfig, 'base' | 'tokenizer'>,
): Promise<Tokenizer> {
  if (model.tokenizer !== 'base') return namedTokenizer(tokenizerDirectory(model.tokenizer));
  if (typeof model.base !== 'string') throw badTokenizer('a freshly initialised model has no tokenizer');
  return loadTokenizer(baseDirectory(model.base));
}

/** @param name `bytes`, or a directory */
export async function namedTokenizer(name: string): Promise<Tokenizer> {
  return name === 'bytes' ? byteTokenizer() : loadTokenizer(name);
}
