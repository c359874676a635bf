/** `steptrain.json`, the card of a trained model or adapter: what one needs to know to use it. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { writeJson } from '../files/json-file.js';
import { Fields } from '../weights/fields.js';
import { isJsonObject, type JsonObject, readJsonObject } from '../weights/json.js';
import { isQuantize, QUANTIZE, type Quantize } from './quantize.js';

export const CARD = 'steptrain.json';

export interface ModelCard {
  /** The method that trained it. */
  readonly method: string;
  /** Base of an adapter: a directory, or the name of a model of the package. */
  readonly base?: string | undefined;
  /** Dtype of weights and activations in training. */
  readonly dtype: 'f32' | 'bf16';
  /** Storage of the base's linear weights in training, if not that of their files (`model.quantize`). */
  readonly quantize?: Quantize | undefined;
  /** Settings by which it judges steps; absent where it does not. `methods/judge-settings.ts` knows the keys. */
  readonly judge?: JsonObject | undefined;
}

/**
 * Reads the card of a directory.
 *
 * @returns undefined where there is none
 * @throws WeightsError for a damaged one
 */
export function readCard(directory: string): ModelCard | undefined {
  const path = join(directory, CARD);
  if (!existsSync(path)) return undefined;
  const json = readJsonObject(path);
  const fields = new Fields(json, path);
  const dtype = fields.string('dtype') ?? 'f32';
  if (dtype !== 'f32' && dtype !== 'bf16') fields.fail('dtype', "'f32' or 'bf16'");
  const quantize = fields.string('quantize');
  if (quantize !== undefined && !isQuantize(quantize)) fields.fail('quantize', QUANTIZE.join(', '));
  const judge = json.judge;
  if (judge !== undefined && !isJsonObject(judge)) fields.fail('judge', 'an object');
  return {
    method: fields.string('method') ?? fields.fail('method', 'the name of a method'),
    base: fields.string('base'),
    dtype: dtype as ModelCard['dtype'],
    ...(quantize === undefined ? {} : { quantize: quantize as Quantize }),
    judge: judge as JsonObject | undefined,
  };
}

export function writeCard(directory: string, card: ModelCard): Promise<void> {
  return writeJson(join(directory, CARD), card);
}
