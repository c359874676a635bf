import type { EvalReport } from '../eval/report.js';
import type { SolvedReport } from '../eval/solving/run-report.js';

/** How a run ended. */
export interface RunResult {
  /** `interrupted` if the abort signal stopped the run before its last step; a checkpoint of `step` is on disk. */
  readonly status: 'finished' | 'interrupted';
  /** run.max_minutes interrupted the run; the trained parameters are saved beside the checkpoint. */
  readonly outOfTime?: boolean;
  /** Optimizer steps done, over all sessions of the run. */
  readonly step: number;
  /** The final evaluation, if the method has one and the run reached it. */
  readonly evaluation?: EvalReport;
  /** The same of a method that solves problems. */
  readonly solved?: SolvedReport;
}
