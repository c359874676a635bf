/** Whether a run computes its blocks again in the backward pass, where `run.gradient_checkpointing: auto` leaves it to the plan. */
import type { BatchSection, FrameConfig } from '../../config/schema.js';
import type { MemoryPlan } from './memory-plan.js';

export interface CheckpointingContext<Config> {
  readonly sections: Readonly<Record<string, BatchSection>>;
  /** The plan of the run with a configuration. */
  planOf(config: Config): MemoryPlan;
  /** Bytes that this plan may use. */
  availableTo(plan: MemoryPlan): number;
}

/**
 * The configuration with `run.gradient_checkpointing` true or false: `auto` is true where the base is held by several
 * processes, and where the longest sequence, or a micro-batch that is set, fits with it alone.
 */
export function settleCheckpointing<Config extends Pick<FrameConfig, 'data' | 'run'>>(
  config: Config,
  holders: number,
  { sections, planOf, availableTo }: CheckpointingContext<Config>,
): Config {
  const { run, data } = config;
  if (run.gradient_checkpointing !== 'auto') return config;
  const settled = (gradient_checkpointing: boolean): Config => ({
    ...config,
    run: { ...run, gradient_checkpointing },
  });
  if (run.shard_base && holders > 1) return settled(true);
  const plan = planOf(settled(false));
  const tokens = Object.values(sections).map(({ micro_batch_tokens }) =>
    micro_batch_tokens === 'auto' ? data.max_length : micro_batch_tokens,
  );
  const needed = plan.fixedBytes + Math.max(0, ...tokens) * plan.bytesPerToken;
  return settled(needed > availableTo(plan));
}
