/**
 * Importance sampling where the sampler's log-probs differ from the trainer's: a server rounds otherwise, or drew from an older policy.
 * Truncated or masked, by token or by sequence, as in TRL's GRPOTrainer (`vllm_importance_sampling_correction`).
 */
import { exp } from '../../native/elementary.js';
import type { Metrics } from '../stage.js';
import { mean } from './metrics.js';
import type { Advantage, Answer, CreditedGroup, Group } from './records.js';

export const IMPORTANCE_MODES = [
  'sequence_mask',
  'sequence_truncate',
  'token_mask',
  'token_truncate',
] as const;

export interface ImportanceSettings {
  readonly importance_sampling_correction: boolean;
  readonly importance_sampling_mode: (typeof IMPORTANCE_MODES)[number];
  /** Bounds of the ratio; 0: none. */
  readonly importance_sampling_clip_min: number;
  readonly importance_sampling_clip_max: number;
}

/** The advantage with {@link withImportance}, where `importance_sampling_correction` is on. */
export function corrected<G extends Group>(
  advantage: Advantage<G>,
  settings: ImportanceSettings,
): Advantage<G> {
  if (!settings.importance_sampling_correction) return advantage;
  return {
    async credit(groups, rewards) {
      return withImportance(await advantage.credit(groups, rewards), settings);
    },
  };
}

/**
 * The groups with `importance`: exp(old − sampler) for each token, or exp(Σ (old − sampler)) of each answer for all of
 * its tokens. Outside the bounds the ratio is the bound (`…_truncate`) or 0 (`…_mask`).
 */
export function withImportance<G extends Group>(
  groups: readonly CreditedGroup<G>[],
  settings: ImportanceSettings,
): CreditedGroup<G>[] {
  return groups.map((group) => ({
    ...group,
    answers: group.answers.map((answer) => ({
      ...answer,
      importance: rawRatios(answer, settings).map((ratio) => bounded(ratio, settings)),
    })),
  }));
}

function rawRatios(
  { oldLogprobs, samplerLogprobs }: Pick<Answer, 'oldLogprobs' | 'samplerLogprobs'>,
  { importance_sampling_mode: mode }: ImportanceSettings,
): number[] {
  const changes = samplerLogprobs.map((logprob, t) => (oldLogprobs[t] as number) - logprob);
  if (mode.startsWith('token')) return changes.map(exp);
  const whole = exp(changes.reduce((sum, change) => sum + change, 0));
  return changes.map(() => whole);
}

function isOutside(
  ratio: number,
  { importance_sampling_clip_min: least, importance_sampling_clip_max: most }: ImportanceSettings,
): boolean {
  return ratio < least || (most > 0 && ratio > most);
}

function bounded(ratio: number, settings: ImportanceSettings): number {
  const { importance_sampling_mode: mode, importance_sampling_clip_min: least } = settings;
  if (!isOutside(ratio, settings)) return ratio;
  if (mode.endsWith('mask')) return 0;
  return ratio < least ? least : settings.importance_sampling_clip_max;
}

/**
 * The ratios within their bounds, the share that was outside, and the largest difference of log-probs; by token or by
 * answer.
 */
export function importanceMetrics(
  groups: readonly CreditedGroup<Group>[],
  settings: ImportanceSettings,
): Metrics {
  if (!settings.importance_sampling_correction) return {};
  const answers = groups.flatMap(({ answers }) => answers).filter(({ share }) => share > 0);
  const once = settings.importance_sampling_mode.startsWith('sequence') ? 1 : undefined;
  const used = answers.flatMap(({ importance = [] }) => importance.slice(0, once));
  if (used.length === 0) return {};
  const raw = answers.flatMap((answer) => rawRatios(answer, settings).slice(0, once));
  const differences = answers.flatMap(({ oldLogprobs, samplerLogprobs }) =>
    samplerLogprobs.map((logprob, t) => Math.abs(logprob - (oldLogprobs[t] as number))),
  );
  return {
    importance_ratio_min: least(used),
    importance_ratio_mean: mean(used),
    importance_ratio_max: -least(used.map((ratio) => -ratio)),
    importance_ratio_outside: mean(raw.map((ratio) => Number(isOutside(ratio, settings)))),
    sampler_difference_max: -least(differences.map((difference) => -difference)),
  };
}

/** The smallest number, without the limit that a call has on its arguments. */
function least(values: readonly number[]): number {
  return values.reduce((low, value) => Math.min(low, value), Number.POSITIVE_INFINITY);
}
