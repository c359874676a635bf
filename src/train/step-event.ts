import type { Metrics } from './stage.js';

/** An event of a run under way, for the program that started it. */
export interface StepEvent {
  /** `step`: a step is done. `validation`: the validation part was evaluated after `stageStep` steps. */
  readonly kind: 'step' | 'validation';
  /** Name, such as `sft` or `ppo`. */
  readonly stage: string;
  /** Steps of this stage done so far, counted from 1 (0: the validation before the first), of `stageSteps`. */
  readonly stageStep: number;
  readonly stageSteps: number;
  /** Steps of all stages. */
  readonly step: number;
  /** Tokens trained on so far, over all stages. */
  readonly tokens: number;
  /** Metrics as in metrics.jsonl: losses in nats, rates, shares; for a skipped step those that could be measured. */
  readonly metrics: Metrics;
  /** The value that was not finite, so that the step changed nothing. */
  readonly nonFinite?: string | undefined;
}
