import type { Metrics } from './stage.js';

/** What a program hears of a run while it goes. */
export interface StepEvent {
  /** `step`: a step is done. `validation`: the validation part was evaluated after `stageStep` steps. */
  readonly kind: 'step' | 'validation';
  /** Such as `sft` or `ppo`. */
  readonly stage: string;
  /** Steps of this stage done so far, counted from 1 (0: the validation before the first), of `stageSteps`. */
  readonly stageStep: number;
  readonly stageSteps: number;
  /** Steps of all stages. */
  readonly step: number;
  /** Tokens trained on so far, over all stages. */
  readonly tokens: number;
  /** As in metrics.jsonl: losses in nats, rates, shares; of a skipped step what could be measured. */
  readonly metrics: Metrics;
  /** What was not finite, so that the step changed nothing. */
  readonly nonFinite?: string | undefined;
}
