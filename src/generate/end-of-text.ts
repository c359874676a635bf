/** The tokens that end what a model writes. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { ModelConfig } from '../architectures/config.js';
import { Fields } from '../weights/fields.js';
import { readJsonObject } from '../weights/json.js';

/**
 * Those of config.json and of generation_config.json, where a chat model often has more of them.
 *
 * @throws WeightsError for a generation_config.json that is none
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
