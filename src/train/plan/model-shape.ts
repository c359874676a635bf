/** The model of a run by its config.json, before a weight is loaded. */
import type { ModelConfig } from '../../architectures/config.js';
import { modelWeights, newModelConfig, readModelConfig } from '../../architectures/table.js';
import { ConfigError } from '../../config/error.js';
import type { FrameConfig } from '../../config/schema.js';
import { DataError } from '../../files/data-error.js';
import { baseDirectory } from '../../models/base.js';
import { configuredTokenizer } from '../../run/tokenizer.js';
import { toLog } from '../../terminal/log.js';

/**
 * The shape of an existing base, or of the one that `model.base.init` describes.
 *
 * @throws ConfigError for a loss of experts where it has none
 */
export async function modelShape({ model }: Pick<FrameConfig, 'model'>): Promise<ModelConfig> {
  const shape =
    typeof model.base === 'string'
      ? readModelConfig(baseDirectory(model.base))
      : newModelConfig(model.base.init, await configuredTokenizer(model));
  if (model.router_aux_loss_coef > 0 && !modelWeights(shape).some(({ expert }) => expert))
    throw new ConfigError(
      `model.router_aux_loss_coef is ${model.router_aux_loss_coef}, and ${nameOf(model)} has no experts to balance; leave it out`,
    );
  return shape;
}

/**
 * The configuration with `data.max_length` at most what the base reads; where that shortens it, standard error says so.
 * Unchanged where the shape of a new model is unknown for want of its tokenizer.
 */
export async function withReadableLength<Config extends Pick<FrameConfig, 'data' | 'model'>>(
  config: Config,
): Promise<Config> {
  const { data, model } = config;
  let maxPositions: number;
  try {
    ({ maxPositions } = await modelShape(config));
  } catch (error) {
    if (error instanceof DataError && error.kind === 'tokenizer') return config;
    throw error;
  }
  if (data.max_length <= maxPositions) return config;
  toLog(
    `data.max_length is ${data.max_length}, and ${nameOf(model)} reads at most ${maxPositions} tokens: it is ${maxPositions} in this run`,
  );
  return { ...config, data: { ...data, max_length: maxPositions } };
}

/** @throws ConfigError where `data.max_length` lets sequences through that the model cannot read */
export function checkLength(
  { data, model }: Pick<FrameConfig, 'data' | 'model'>,
  { maxPositions }: Pick<ModelConfig, 'maxPositions'>,
): void {
  if (data.max_length <= maxPositions) return;
  throw new ConfigError(
    `data.max_length is ${data.max_length}, and ${nameOf(model)} reads at most ${maxPositions} tokens; set data.max_length to ` +
      `${maxPositions} or less`,
  );
}

const nameOf = ({ base }: FrameConfig['model']) =>
  typeof base === 'string' ? `model.base ${base}` : 'model.base.init';
