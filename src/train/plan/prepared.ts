/** A run's model and tokenizer before a weight is loaded, resolved once: whatever follows takes them from here. */
import type { ModelConfig } from '../../architectures/config.js';
import { modelWeights, newModelConfig, readModelConfig } from '../../architectures/table.js';
import { ConfigError } from '../../config/error.js';
import type { BaseHead, FrameConfig } from '../../config/schema.js';
import { baseDirectory } from '../../models/base.js';
import { configuredTokenizer } from '../../run/tokenizer.js';
import { toLog } from '../../terminal/log.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';

export interface Prepared<Config> {
  /** `data.max_length` is at most what the base reads. */
  readonly config: Config;
  /** The shape of an existing base, or of the one that `model.base.init` describes. */
  readonly shape: ModelConfig;
  /** Reads the tokenizer at the first call. @throws DataError where there is none */
  tokenizer(): Promise<Tokenizer>;
}

/**
 * Resolves the model of a configuration, whose paths are absolute. Standard error says where its base shortens
 * `data.max_length`.
 *
 * @param method refuses bases whose head it would lose
 * @throws ConfigError for such a base, or for a loss of experts where it has none; DataError for a new model without a tokenizer
 */
export async function prepare<Config extends Pick<FrameConfig, 'data' | 'model'>>(
  config: Config,
  { otherHead }: { otherHead?(config: Config, head: BaseHead): string | undefined } = {},
): Promise<Prepared<Config>> {
  const { data, model } = config;
  let found: Promise<Tokenizer> | undefined;
  const tokenizer = () => {
    found ??= configuredTokenizer(model);
    return found;
  };
  const shape =
    typeof model.base === 'string'
      ? readModelConfig(baseDirectory(model.base))
      : newModelConfig(model.base.init, await tokenizer());
  if (model.router_aux_loss_coef > 0 && !modelWeights(shape).some(({ expert }) => expert))
    throw new ConfigError(
      `model.router_aux_loss_coef is ${model.router_aux_loss_coef}, and ${nameOf(model)} has no experts to balance; leave it out`,
    );
  const lost = typeof model.base === 'string' ? otherHead?.(config, shape.head) : undefined;
  if (lost !== undefined) throw new ConfigError(`${nameOf(model)} ${lost}`);
  const { maxPositions } = shape;
  if (data.max_length <= maxPositions) return { config, shape, tokenizer };
  toLog(
    `data.max_length is ${data.max_length}, and ${nameOf(model)} reads at most ${maxPositions} tokens: it is ${maxPositions} in this run`,
  );
  return { config: { ...config, data: { ...data, max_length: maxPositions } }, shape, tokenizer };
}

const nameOf = ({ base }: FrameConfig['model']) =>
  typeof base === 'string' ? `model.base ${base}` : 'model.base.init';
