import { savedModel } from '../models/saved.js';
import { loadTokenizer as tokenizerIn } from '../tokenizer/load.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';

/**
 * The tokenizer of a model, named as for `loadModel`: a model directory, an adapter or run directory, a GGUF file, or a model of
 * the package.
 *
 * @throws DataError for a missing or damaged file, StepTrainError for an adapter whose base is not here
 */
export async function loadTokenizer(model: string): Promise<Tokenizer> {
  return tokenizerIn(savedModel(model).tokenizer);
}
