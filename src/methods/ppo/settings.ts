/** Resolves settings that are `auto`. */
import type { LossType } from '../../train/policy/objective.js';
import { algorithmOf, hasCritic } from './algorithms.js';
import type { PpoRunConfig, PpoSection } from './config.js';
import { correctsSampler } from './importance.js';

export interface PpoSettings
  extends Omit<
    PpoSection,
    | 'learning_rate'
    | 'cliprange'
    | 'cliprange_high'
    | 'loss_type'
    | 'kl_in'
    | 'kl_estimator'
    | 'resample_equal'
    | 'importance_sampling_correction'
  > {
  readonly learning_rate: number;
  readonly cliprange: number;
  readonly cliprange_high: number;
  readonly loss_type: LossType;
  readonly kl_in: 'reward' | 'loss';
  readonly kl_estimator: 'k1' | 'k2' | 'k3';
  readonly resample_equal: number;
  readonly importance_sampling_correction: boolean;
}

export function settled({ ppo, lora, rollout }: Pick<PpoRunConfig, 'ppo' | 'lora' | 'rollout'>): PpoSettings {
  const or = <T>(value: T | 'auto', otherwise: T): T => (value === 'auto' ? otherwise : value);
  const { clip = [0.2, 0.2], klIn, advantage, resample = 0, lossType = 'dapo' } = algorithmOf(ppo);
  const [low, high] = ppo.cliprange === 'auto' ? clip : [ppo.cliprange, ppo.cliprange];
  // REINFORCE++-baseline has its penalty in the loss, as in the paper and in OpenRLHF's own runs of it.
  const hasBaseline = advantage === 'returns' && ppo.group_baseline;
  const kl_in = or(ppo.kl_in, hasBaseline ? 'loss' : klIn);
  return {
    ...ppo,
    learning_rate: or(ppo.learning_rate, lora === 'none' ? 1e-6 : 1e-5),
    cliprange: low,
    cliprange_high: or(ppo.cliprange_high, high),
    loss_type: or(ppo.loss_type, lossType),
    kl_in,
    resample_equal: or(ppo.resample_equal, resample),
    importance_sampling_correction: correctsSampler({ ppo, rollout }),
    kl_estimator: or(ppo.kl_estimator, kl_in === 'reward' ? 'k1' : 'k2'),
  };
}

/**
 * Whether the log-probs before the update may be taken from its forward: where each rollout batch has one step, the policy
 * of that forward is the one that sampled, and the same forward before it would give the same numbers. Critics, and a KL
 * penalty that advantages or its own coefficient depend on, need them earlier, and so does importance sampling.
 */
export function scoresInUpdate(settings: PpoSettings): boolean {
  const { num_ppo_epochs, num_mini_batches, kl_in, kl_coef, kl_target, old_logprobs } = settings;
  return (
    num_ppo_epochs === 1 &&
    num_mini_batches === 1 &&
    old_logprobs === 'rescore' &&
    (kl_in === 'loss' || kl_coef === 0) &&
    kl_target === 0 &&
    !settings.importance_sampling_correction &&
    !hasCritic(settings)
  );
}

/** Sentences about settings that are allowed and rarely meant. */
export function settingWarnings({
  rollout,
  ppo,
  lora,
}: Pick<PpoRunConfig, 'rollout' | 'ppo' | 'lora'>): string[] {
  const filters = (['top_p', 'top_k', 'min_p'] as const).filter((key) =>
    key === 'top_p' ? rollout.top_p < 1 : rollout[key] > 0,
  );
  const { kl_in, kl_estimator, kl_coef } = settled({ ppo, lora, rollout });
  return [
    ...(filters.length > 0
      ? [
          `rollout.${filters.join(', rollout.')} leaves out tokens that the policy's log-probs count, so that what is learned is not what was ` +
            'sampled; switch it off to train',
        ]
      : []),
    ...(rollout.temperature === 1
      ? []
      : [
          `rollout.temperature ${rollout.temperature}: the policy is trained as it is at that temperature, and solves problems at 1 or greedily`,
        ]),
    ...(kl_in === 'loss' && kl_estimator === 'k1' && kl_coef > 0
      ? [
          'ppo.kl_estimator k1 in the loss has no gradient in expectation, so it does not hold the policy near the reference; use k2 or k3',
        ]
      : []),
  ];
}
