/** When importance sampling corrects for a sampler whose log-probs differ, and which of its keys contradict each other. */
import { type Conflict, conflict } from '../../config/schema.js';
import type { ImportanceSettings } from '../../train/policy/importance.js';

type Keys = Omit<ImportanceSettings, 'importance_sampling_correction'> & {
  readonly importance_sampling_correction: 'auto' | boolean;
  readonly old_logprobs: 'rescore' | 'sampler';
};

/** Whether the difference is corrected for: the ratio to the sampler's own log-probs does so already. */
export function correctsSampler({
  ppo: { importance_sampling_correction: asked, old_logprobs },
  rollout,
}: {
  readonly ppo: Keys;
  readonly rollout: { readonly server?: unknown };
}): boolean {
  return asked === 'auto' ? rollout.server !== undefined && old_logprobs === 'rescore' : asked;
}

export function* importanceConflicts({
  old_logprobs,
  importance_sampling_correction: corrected,
  importance_sampling_mode: mode,
  importance_sampling_clip_max: most,
  importance_sampling_clip_min: least,
}: Keys): Generator<Conflict> {
  if (corrected === true && old_logprobs === 'sampler')
    yield conflict(
      'ppo.importance_sampling_correction',
      'ppo.old_logprobs "sampler" takes the ratio to the sampler’s own log-probs, so ppo.importance_sampling_correction would count their ' +
        'difference twice; set ppo.old_logprobs to "rescore", or ppo.importance_sampling_correction to false',
    );
  if (most > 0 && least >= most)
    yield conflict(
      'ppo.importance_sampling_clip_min',
      `ppo.importance_sampling_clip_min must be below ppo.importance_sampling_clip_max, found ${least} and ${most}`,
    );
  if (corrected !== false && mode.endsWith('truncate') && most === 0 && least === 0)
    yield conflict(
      'ppo.importance_sampling_mode',
      `ppo.importance_sampling_mode "${mode}" needs a bound: set ppo.importance_sampling_clip_max or _clip_min above 0`,
    );
}
