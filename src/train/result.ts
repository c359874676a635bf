import type { EvalReport } from '../eval/report.js';

/** How a run ended. */
export interface RunResult {
  /** `interrupted` where the abort signal stopped it before its last step; a checkpoint of `step` is on the disk. */
  readonly status: 'finished' | 'interrupted';
  /** It was interrupted by run.max_minutes, and what it had trained is saved beside the checkpoint. */
  readonly outOfTime?: boolean;
  /** Optimizer steps done, over all sessions of the run. */
  readonly step: number;
  /** The final evaluation, where the method has one and the run got so far. */
  readonly evaluation?: EvalReport;
}
