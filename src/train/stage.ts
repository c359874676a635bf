/**
 * A run is a list of stages; the engine takes them step by step. A stage either trains (optimizer steps: warm-up, reward
 * network, policy) or produces rows of an artefact (labels, samples, scores). Both can be stopped and resumed between
 * any two steps.
 */
import type { TrainableParameters } from '../autograd/parameters.js';
import type { ProgressPart } from '../terminal/progress.js';
import type { AdamW } from './adamw.js';

/** Named measurements; all finite. */
export type Metrics = Readonly<Record<string, number>>;

/** Progress within a step: `done` of `total` samples that it draws now, and their tokens. */
export type StepPart = ProgressPart;

interface StepOutcome {
  /** Values for metrics.jsonl. */
  readonly metrics: Metrics;
  /** Values for the progress line. */
  readonly shown: Metrics;
  /** Tokens computed; in training, those that passed forward and backward. */
  readonly tokens: number;
}

/** Outcome of one optimizer step. */
export interface TrainingOutcome extends StepOutcome {
  /** The value that was not finite; the step then changed nothing. */
  readonly nonFinite?: string;
}

/** Outcome of one step that produces rows. */
export interface MakingOutcome extends StepOutcome {
  /** Appended to the artefact, one per line. */
  readonly rows: readonly Readonly<Record<string, unknown>>[];
}

/** An open stage. */
interface OpenStage<Outcome> {
  /** Prepares roles from the results of earlier stages; repeated if a run is resumed before the first step. */
  begin(): Promise<void>;
  /**
   * One step, or undefined if the signal stopped it before anything changed.
   *
   * @param report how far a long step is
   */
  step(index: number, signal: AbortSignal, report?: (part: StepPart) => void): Promise<Outcome | undefined>;
  /** Further state that determines the next step: JSON, with large lists of numbers as Float64Array. */
  state?(): unknown;
  restore?(state: unknown): void;
  dispose(): void;
}

export interface OpenTraining extends OpenStage<TrainingOutcome> {
  /** Warns after `begin` of doubts about the stage. It may take seconds, and changes nothing. */
  readonly warn?: (() => Promise<void>) | undefined;
  /** Optimizers by their name in the checkpoint. */
  readonly optimizers: Readonly<Record<string, AdamW>>;
  /** The parameters whose best state is kept. */
  readonly trains: TrainableParameters;
  /** Called after the last step, once the parameters are those that the stage keeps. */
  end?(): Promise<void>;
  /** Held-out metrics after `step` steps, which the engine says; undefined if the signal stopped it. */
  readonly validate?: ((signal: AbortSignal, step?: number) => Promise<Metrics | undefined>) | undefined;
}

export type OpenMaking = OpenStage<MakingOutcome>;

/** When to save, in steps of the run. */
export interface SaveSettings {
  readonly save_steps: number;
  readonly save_total_limit: number;
}

/** When to save, in steps of the run, and to evaluate, in steps of the stage. */
export interface TrainingSettings extends SaveSettings {
  /** Below 1: a share of the steps of the stage, rounded up as transformers does. */
  readonly eval_steps: number;
  /**
   * The metric of `validate` by which one evaluation is better than another: more is better. Between evaluations of
   * the same value the higher `auc` decides, else the lower `loss`, else the earlier.
   */
  readonly best?: string | undefined;
  /**
   * Whether the parameters of the best evaluation are kept and, at the end, restored. Those at the beginning of the
   * stage count too, so that no stage ends worse on the validation part than it began. Default true.
   */
  readonly load_best_model_at_end?: boolean;
  /** Max optimizer steps; absent or not positive: no limit. */
  readonly max_steps?: number;
  /** Share of the steps over which the learning rate rises from 0. */
  readonly warmup_ratio?: number;
  /** Stop after this many evaluations in a row without a better one; 0 or absent: never. */
  readonly patience?: number;
}

/** Whether the stage keeps the parameters of its best evaluation. */
export function keepsBest({
  best,
  load_best_model_at_end: keeps = true,
}: Pick<TrainingSettings, 'best' | 'load_best_model_at_end'>): boolean {
  return keeps && best !== undefined;
}

/** Steps between evaluations; undefined where there is none between. */
export function evaluationInterval({
  steps,
  settings: { eval_steps: every },
}: {
  readonly steps: number;
  readonly settings: Pick<TrainingSettings, 'eval_steps'>;
}): number | undefined {
  if (every === 0) return undefined;
  return every < 1 ? Math.ceil(every * steps) : every;
}

interface ClosedStage {
  /** Also the `phase` of its lines in metrics.jsonl. */
  readonly name: string;
  /** The section of its settings. Default: its name, without the number of a round. */
  readonly section?: string | undefined;
  readonly steps: number;
  /** The settings that form the batches; a resumed run must have the same. */
  readonly batching: Readonly<Record<string, number>>;
}

/** Optimizer steps; only the open stage holds optimizer state. */
export interface TrainingStage extends ClosedStage {
  readonly settings: TrainingSettings;
  /** Tokens that pass forward and backward in all steps; absent where the run writes them itself. */
  expectedTokens?(): number;
  open(): OpenTraining;
}

/** Rows for later stages, or for other runs, in artefacts/`artefact`.jsonl. */
export interface MakingStage extends ClosedStage {
  readonly settings: SaveSettings;
  readonly artefact: string;
  /** Rows of the artefact, where they are known before they are made. */
  readonly rows?: number;
  /** A sentence on its rows for the user, printed after its last step. */
  readonly note?: string | undefined;
  open(): OpenMaking;
}

export type Stage = TrainingStage | MakingStage;

/**
 * A stage whose steps depend on what earlier stages made. It is prepared when its turn comes, and again when the run resumes
 * in the middle of it: from artefacts and data alone, since by then parameters have moved.
 */
export interface LaterStage {
  readonly name: string;
  /** Its steps, where the data alone determine them. */
  expectedSteps?(): number;
  /** Its tokens, if the data alone determine them; 0 for a stage that makes rows. */
  expectedTokens?(): number;
  prepare(signal: AbortSignal): Promise<Stage>;
}

export type StageEntry = Stage | LaterStage;
