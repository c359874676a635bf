/** What a method adds to the frame of a run (`recipe.ts`): a row of `src/methods/table.ts` loads one of these. */
import type { FrameConfig } from '../config/schema.js';
import type { LoadReport } from '../data/load.js';
import type { TrainingDataSummary } from '../data/summary.js';
import type { EvalReport } from '../eval/report.js';
import type { Decoder } from '../models/decoder.js';
import type { StepRecord } from '../records/record.js';
import type { RunDirectory } from '../run/directory.js';
import type { Device } from '../runtime/device.js';
import type { TokenizedSequence } from '../tokenizer/segments.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import type { RoleParameters } from './checkpoint.js';
import type { EngineResult } from './engine.js';
import type { HeldMemory } from './held-memory.js';
import type { PlannedRole } from './memory-plan.js';
import type { Metrics, StageEntry } from './stage.js';

/** The data of a run, as every method has it. */
export interface RunData {
  readonly summary: TrainingDataSummary;
  readonly reports: readonly LoadReport[];
  close(): void;
}

/** The models of a run, as every method has them. */
export interface RunRoles {
  readonly decoder: Decoder;
  /** What a checkpoint holds, by role. */
  readonly parameters: RoleParameters;
  readonly held: HeldMemory;
  dispose(): void;
}

/** What a method makes its roles with. */
export interface RunContext<Config extends FrameConfig> {
  readonly config: Config;
  readonly device: Device;
  readonly tokenizer: Tokenizer;
  readonly run: RunDirectory;
}

/** Everything that a method's stages, evaluation and saving work with. */
export interface OpenRun<Config extends FrameConfig, Data extends RunData, Roles extends RunRoles>
  extends RunContext<Config> {
  readonly data: Data;
  readonly roles: Roles;
  /** Tokens in memory at once for the stages of a section; refused where they do not fit. */
  microBatchTokens(section: string): number;
}

/** The final evaluation. */
export interface Evaluation {
  /** A line of metrics.jsonl. */
  readonly metrics: Metrics;
  /** eval.json and the table at the end of the run. */
  readonly report?: EvalReport;
  /** For a person, where there is no table. */
  readonly summary?: string;
}

/** A sample as the model will see it. */
export interface PreviewSample {
  readonly title: string;
  readonly sequence: TokenizedSequence;
}

export interface Method<
  Config extends FrameConfig,
  Data extends RunData = RunData,
  Roles extends RunRoles = RunRoles,
> {
  /** Reads, divides and tokenises what the configuration names; undefined where the signal stopped it. */
  data(config: Config, tokenizer: Tokenizer, signal: AbortSignal): Promise<Data | undefined>;
  /** How a record becomes samples, for `data preview`. */
  preview(config: Config, tokenizer: Tokenizer): (record: StepRecord) => Iterable<PreviewSample>;
  /** The roles as the memory plan counts them. */
  memory(config: Config): readonly PlannedRole[];
  roles(context: RunContext<Config>): Promise<Roles>;
  stages(run: OpenRun<Config, Data, Roles>): readonly StageEntry[];
  /** Writes what was trained; `stages` are those that have begun. */
  save(run: OpenRun<Config, Data, Roles>, stages: readonly string[]): Promise<void>;
  /** Undefined where the signal stopped it. */
  evaluate(
    run: OpenRun<Config, Data, Roles>,
    trained: EngineResult,
    signal: AbortSignal,
  ): Promise<Evaluation | undefined>;
}
