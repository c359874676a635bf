/** The model of a run by its config.json, before a weight is loaded. */
import type { ModelConfig } from '../architectures/config.js';
import { newModelConfig, readModelConfig } from '../architectures/table.js';
import { ConfigError } from '../config/error.js';
import type { FrameConfig } from '../config/schema.js';
import { baseDirectory } from '../models/base.js';
import { configuredTokenizer } from '../run/tokenizer.js';

/** Of the base that is there, or that `model.base.init` describes. */
export async function modelShape({ model }: Pick<FrameConfig, 'model'>): Promise<ModelConfig> {
  if (typeof model.base === 'string') return readModelConfig(baseDirectory(model.base));
  return newModelConfig(model.base.init, await configuredTokenizer(model));
}

/** @throws ConfigError where `data.max_length` lets sequences through that the model cannot read */
export function checkLength(
  { data, model }: Pick<FrameConfig, 'data' | 'model'>,
  { maxPositions }: Pick<ModelConfig, 'maxPositions'>,
): void {
  if (data.max_length <= maxPositions) return;
  const base = typeof model.base === 'string' ? `model.base ${model.base}` : 'model.base.init';
  throw new ConfigError(
    `data.max_length is ${data.max_length}, and ${base} reads at most ${maxPositions} tokens; set data.max_length to ` +
      `${maxPositions} or less`,
  );
}
