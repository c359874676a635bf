/**
 * A run is a list of stages; the engine takes them step by step. A stage either trains (optimizer steps: warm-up, reward
 * network, policy) or makes (rows of an artefact: labels, samples, scores). Both can be stopped and resumed between any
 * two steps.
 */
import type { TrainableParameters } from '../autograd/parameters.js';
import type { AdamW } from './adamw.js';

/** Named numbers that were measured; all finite. */
export type Metrics = Readonly<Record<string, number>>;

interface StepOutcome {
  /** For metrics.jsonl. */
  readonly metrics: Metrics;
  /** For the progress line. */
  readonly shown: Metrics;
  /** Tokens that were computed; in training those that passed forward and backward. */
  readonly tokens: number;
}

/** What one optimizer step did. */
export interface TrainingOutcome extends StepOutcome {
  /** What was not finite; the step then changed nothing. */
  readonly nonFinite?: string;
}

/** What one step of making gave. */
export interface MakingOutcome extends StepOutcome {
  /** Appended to the artefact, a line each. */
  readonly rows: readonly Readonly<Record<string, unknown>>[];
}

/** A stage at work. */
interface OpenStage<Outcome> {
  /** Prepares roles from what earlier stages left; repeated when a run is resumed before the first step. */
  begin(): Promise<void>;
  /** One step, or undefined where the signal stopped it before anything changed. */
  step(index: number, signal: AbortSignal): Promise<Outcome | undefined>;
  /** What else decides the next step, as JSON. */
  state?(): unknown;
  restore?(state: unknown): void;
  dispose(): void;
}

export interface OpenTraining extends OpenStage<TrainingOutcome> {
  /** By the name under which a checkpoint holds its moments. */
  readonly optimizers: Readonly<Record<string, AdamW>>;
  /** Whose best state `validation.best` keeps. */
  readonly trains: TrainableParameters;
  /** Held-out metrics; undefined where the signal stopped it. */
  readonly validate?: ((signal: AbortSignal) => Promise<Metrics | undefined>) | undefined;
}

export type OpenMaking = OpenStage<MakingOutcome>;

/** When to save, in steps of the stage. */
export interface SaveSettings {
  readonly save_steps: number;
  readonly save_total_limit: number;
}

/** When to evaluate and to save, in steps of the stage. */
export interface TrainingSettings extends SaveSettings {
  readonly eval_steps: number;
  /** The metric of `validate` by which the best parameters are kept and, at the end, restored. */
  readonly best?: string | undefined;
}

interface ClosedStage {
  /** Also the `phase` of its lines in metrics.jsonl. */
  readonly name: string;
  readonly steps: number;
  /** What cuts the data into batches; a resumed run must have the same. */
  readonly batching: Readonly<Record<string, number>>;
}

/** Optimizer steps; only the stage at work holds optimizer state. */
export interface TrainingStage extends ClosedStage {
  readonly settings: TrainingSettings;
  open(): OpenTraining;
}

/** Rows for later stages, or for other runs, in artefacts/`artefact`.jsonl. */
export interface MakingStage extends ClosedStage {
  readonly settings: SaveSettings;
  readonly artefact: string;
  open(): OpenMaking;
}

export type Stage = TrainingStage | MakingStage;

/** A stage whose steps depend on what earlier stages make: known once its turn comes. */
export interface LaterStage {
  readonly name: string;
  prepare(): Promise<Stage>;
}

export type StageEntry = Stage | LaterStage;
