import type { RunConfig } from '../config/schema.js';
import type { RunDirectory } from '../run/directory.js';
import type { Device } from '../runtime/device.js';
import type { EngineOptions } from './engine.js';

/** What a method gets to run with. */
export interface RunContext<Config extends RunConfig> {
  readonly config: Config;
  readonly device: Device;
  readonly run: RunDirectory;
  readonly signal: AbortSignal;
  /** Whether run.max_minutes is what `signal` was aborted by. */
  readonly outOfTime: () => boolean;
  readonly engine: EngineOptions;
  /** What cut the batches before the run was stopped; empty for a new run. */
  readonly savedPlan: Readonly<Record<string, number>>;
}
