/** Whether a stage takes enough optimizer steps to teach anything. */
import type { TrainingStage } from '../stage.js';

/** Below the first a stage teaches little; the second is a number to aim at. */
const [FEW, ENOUGH] = [20, 50];

/**
 * Advice for a stage of few steps, as a sentence; undefined where there are enough, or where the number does not follow
 * from rows, epochs and batch alone.
 */
export function fewSteps({
  name,
  section = name.replace(/-\d+$/, ''),
  steps,
  batching,
  settings,
}: Pick<TrainingStage, 'name' | 'section' | 'steps' | 'batching'> & {
  readonly settings?: Pick<TrainingStage['settings'], 'max_steps'>;
}): string | undefined {
  if (steps === 0 || steps >= FEW) return undefined;
  const [key, size] =
    Object.entries(batching).find(([each]) => /\.(?:tokens_per_step|batch_size)$/.test(each)) ?? [];
  if (key === undefined) return undefined;
  const times = Math.ceil(ENOUGH / steps);
  const taken =
    steps === 1 ? '1 optimizer step, which teaches little' : `${steps} optimizer steps, which teach little`;
  if (settings?.max_steps === steps)
    return `${name} takes ${taken}, as ${section}.max_steps asks: enough to try it`;
  // Below the longest sequence a batch of tokens is refused.
  const least = key.endsWith('tokens_per_step') ? ', at least data.max_length' : '';
  return (
    `${name} takes ${taken}: give more rows, ` +
    `about ${times} times the epochs (${section}.num_train_epochs), or a smaller batch (${key.replace(name, section)}, now ${size}${least})`
  );
}
