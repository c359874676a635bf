/** The end-of-text tokens of a model. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Fields } from '../weights/fields.js';
import { readJsonObject } from '../weights/json.js';
import type { ModelConfig } from './config.js';

/**
 * Reads them from config.json and generation_config.json; chat models often have more of them in the latter.
 *
 * @throws WeightsError for an invalid generation_config.json
 */
export function endOfTextTokens(
  directory: string,
  { eosTokenIds }: Pick<ModelConfig, 'eosTokenIds'>,
): readonly number[] {
  const path = join(directory, 'generation_config.json');
  if (!existsSync(path)) return eosTokenIds;
  const more = new Fields(readJsonObject(path), path).integers('eos_token_id') ?? [];
  return [...new Set([...eosTokenIds, ...more])];
}
