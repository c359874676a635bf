/** What `config.json` says of the blocks that share a scale: of some sizes the scales have the shape of those of another. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { show, WeightsError } from '../error.js';
import { isJsonObject, type JsonValue, readJsonObject } from '../json.js';
import { SQUARE } from './format.js';

/** @throws WeightsError for blocks that are no squares of 128; those of outputs and whole weights are told by their scales */
export function refuseOtherBlocks(directory: string): void {
  const path = join(directory, 'config.json');
  const quantization = existsSync(path) ? readJsonObject(path).quantization_config : undefined;
  if (!isJsonObject(quantization)) return;
  for (const [key, size] of blockSizes(quantization)) {
    if (Array.isArray(size) && size.length === 2 && size.every((extent) => extent === SQUARE)) continue;
    throw new WeightsError(
      `${path}: quantization_config: ${key}: expected [${SQUARE},${SQUARE}], or nothing where scales are by output or of a whole ` +
        `weight, found ${show(size)}; use the unquantised model`,
    );
  }
}

/** Those of fine-grained fp8, and of the groups of compressed-tensors. */
function blockSizes({ weight_block_size, config_groups }: Readonly<Record<string, JsonValue>>) {
  const groups = isJsonObject(config_groups) ? Object.entries(config_groups) : [];
  const sizes = groups.map(([name, group]): [string, JsonValue | undefined] => {
    const weights = isJsonObject(group) && isJsonObject(group.weights) ? group.weights : {};
    return [`config_groups: ${name}: weights: block_structure`, weights.block_structure];
  });
  return [['weight_block_size', weight_block_size] as const, ...sizes].filter(
    (entry): entry is [string, JsonValue] => entry[1] !== undefined && entry[1] !== null,
  );
}
