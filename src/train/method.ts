/** The interface of a method to a run (`recipe.ts`); each row of `src/methods/table.ts` loads one. */
import type { FrameConfig } from '../config/schema.js';
import type { LoadReport } from '../data/load.js';
import type { Part } from '../data/split.js';
import type { TrainingDataSummary } from '../data/summary.js';
import type { EvalReport } from '../eval/reports/eval-report.js';
import type { SolvedReport } from '../eval/solving/run-report.js';
import type { Decoder } from '../models/decoder.js';
import type { StepRecord } from '../records/record.js';
import type { RunDirectory } from '../run/directory.js';
import type { Device } from '../runtime/device.js';
import type { TokenizedSequence } from '../tokenizer/segments.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import type { RoleParameters } from './checkpoint.js';
import type { EngineResult } from './engine.js';
import type { PlannedRole } from './plan/memory-plan.js';
import type { PlannedSampling } from './plan/sampling-plan.js';
import type { HeldMemory } from './roles/held-memory.js';
import type { SharedStage } from './shared-stages.js';
import type { Metrics, StageEntry } from './stage.js';

/** The data of a run, the part that all methods share. */
export interface RunData {
  readonly summary: TrainingDataSummary;
  readonly reports: readonly LoadReport[];
  close(): void;
}

/** The models of a run, the part that all methods share. */
export interface RunRoles {
  readonly decoder: Decoder;
  /** Contents of a checkpoint, by role. */
  readonly parameters: RoleParameters;
  readonly held: HeldMemory;
  dispose(): void;
}

/** Everything a method needs to create its roles. */
export interface RunContext<Config extends FrameConfig> {
  readonly config: Config;
  readonly device: Device;
  readonly tokenizer: Tokenizer;
  readonly run: RunDirectory;
}

/** Everything a method needs to train, evaluate and save. */
export interface OpenRun<Config extends FrameConfig, Data extends RunData, Roles extends RunRoles>
  extends RunContext<Config> {
  readonly data: Data;
  readonly roles: Roles;
  /** Micro-batch in tokens for the stages of a section; throws if it does not fit in memory. */
  microBatchTokens(section: string): number;
  /** Bytes for keys and values, for a method that samples. */
  readonly cacheBytes: number | undefined;
}

/** The final evaluation. */
export interface Evaluation {
  /** A line of metrics.jsonl. */
  readonly metrics: Metrics;
  /** eval.json and the table at the end of the run. */
  readonly report?: EvalReport;
  /** eval.json and the table of a method that solves problems. */
  readonly solved?: SolvedReport;
  /** One printed line, for a method without a table. */
  readonly summary?: string;
}

/** A sample as the model will see it. */
export interface PreviewSample {
  readonly title: string;
  readonly sequence: TokenizedSequence;
  /** Labels of the tokens as text, undefined where there is none, for a method that learns no next tokens. */
  readonly labels?: readonly (string | undefined)[];
}

export interface Method<
  Config extends FrameConfig,
  Data extends RunData = RunData,
  Roles extends RunRoles = RunRoles,
> {
  /** Reads, splits and tokenises the configured data; undefined if the signal stopped it. */
  data(config: Config, tokenizer: Tokenizer, signal: AbortSignal): Promise<Data | undefined>;
  /** The samples of a record, for `data preview`. */
  preview(config: Config, tokenizer: Tokenizer): (record: StepRecord, part: Part) => Iterable<PreviewSample>;
  /** The roles for the memory plan. @param device what holds them */
  memory(config: Config, device: Pick<Device, 'info'>): readonly PlannedRole[];
  /** The samples of the method, for the memory plan; absent or undefined: none. */
  sampling?(config: Config, tokenizer: Tokenizer): PlannedSampling | undefined;
  roles(context: RunContext<Config>): Promise<Roles>;
  stages(run: OpenRun<Config, Data, Roles>): readonly StageEntry[];
  /** The stages that runs with other settings for later ones may share, in order; absent: none. */
  shared?(config: Config): readonly SharedStage[];
  /** Writes the trained parameters; `stages` are those that have begun. */
  save(run: OpenRun<Config, Data, Roles>, stages: readonly string[]): Promise<void>;
  /**
   * The work of `evaluate`, for its time: as much as `validate` of the stages (`judges`, the default), more (`solves`),
   * or reading files alone (`reads`).
   */
  evaluates?(config: Config): 'judges' | 'solves' | 'reads';
  /** Undefined if the signal stopped it. */
  evaluate(
    run: OpenRun<Config, Data, Roles>,
    trained: Pick<EngineResult, 'tokens' | 'unchanged'>,
    signal: AbortSignal,
  ): Promise<Evaluation | undefined>;
}
