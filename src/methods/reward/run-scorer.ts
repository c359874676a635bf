/** The reward model of a finished run as a scorer. */
import type { StepScorer } from '../../eval/step-scorer.js';
import type { Decoder } from '../../models/decoder.js';
import { type RewardRunConfig, rewardPrompt } from './config.js';
import { type RewardModelScorerOptions, rewardModelScorer } from './scorer.js';

export interface RunScorerOptions
  extends Pick<RewardModelScorerOptions, 'tokenizer' | 'role' | 'skipUnreadable' | 'output' | 'maxLength'> {
  /** The run's model, or its base with the run's adapter as `role`. */
  readonly decoder: Decoder;
}

/** What a run's configuration says of its reward model. */
export function scorerOfRun(
  config: RewardRunConfig,
  { decoder, maxLength = config.data.max_length, ...options }: RunScorerOptions,
): StepScorer {
  return rewardModelScorer(decoder, {
    ...options,
    prompt: rewardPrompt(config),
    settings: config.reward,
    maxLength: Math.min(maxLength, decoder.config.maxPositions),
  });
}
