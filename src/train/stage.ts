/** A run is a sequence of stages (warm-up, reward network, policy); the engine takes them step by step. */
import type { TrainableParameters } from '../autograd/parameters.js';
import type { AdamW } from './adamw.js';

/** What one optimizer step did. */
export interface StepOutcome {
  /** For metrics.jsonl; every number is finite. */
  readonly figures: Readonly<Record<string, number>>;
  /** For the progress line. */
  readonly shown: Readonly<Record<string, number>>;
  /** Tokens that passed forward and backward. */
  readonly tokens: number;
  /** What was not finite; the step then changed nothing. */
  readonly nonFinite?: string;
}

/** When to evaluate and to save, in steps of the stage. */
export interface StageSchedule {
  readonly eval_steps: number;
  readonly save_steps: number;
  readonly save_total_limit: number;
  /** The figure of `validate` by which the best parameters are kept and, at the end, restored. */
  readonly best?: string | undefined;
}

export interface Stage {
  /** By the name under which a checkpoint holds its moments. */
  readonly optimizers: Readonly<Record<string, AdamW>>;
  /** Whose best state `schedule.best` keeps. */
  readonly trains: TrainableParameters;
  /** Prepares roles from what earlier stages left; repeated when a run is resumed before the first step. */
  begin(): Promise<void>;
  /** One optimizer step, or undefined where the signal stopped it before anything changed. */
  step(index: number, signal: AbortSignal): Promise<StepOutcome | undefined>;
  /** Held-out figures; undefined where the signal stopped it. */
  readonly validate?:
    | ((signal: AbortSignal) => Promise<Readonly<Record<string, number>> | undefined>)
    | undefined;
  /** What else decides the next step, as JSON. */
  state?(): unknown;
  restore?(state: unknown): void;
  dispose(): void;
}

/** A stage before it is opened; only the one at work holds optimizer state. */
export interface StagePlan {
  /** Also the `phase` of its lines in metrics.jsonl. */
  readonly name: string;
  readonly steps: number;
  readonly schedule: StageSchedule;
  /** What cuts the data into batches; a resumed run must have the same. */
  readonly plan: Readonly<Record<string, number>>;
  open(): Stage;
}
