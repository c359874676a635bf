import type { EvalReport } from '../eval/reports/eval-report.js';
import type { SolvedReport } from '../eval/solving/run-report.js';

/** The outcome of a run. */
export interface RunResult {
  /** `interrupted` if the abort signal stopped the run before its last step; a checkpoint of `step` is on disk. */
  readonly status: 'finished' | 'interrupted';
  /** Whether run.max_minutes interrupted the run; the trained parameters are saved in addition to the checkpoint. */
  readonly outOfTime?: boolean;
  /** Whether it had finished before, so that nothing was computed. */
  readonly wasFinished?: true;
  /** Optimizer steps done, over all sessions of the run. */
  readonly step: number;
  /** The final evaluation, if the method has one and the run reached it. */
  readonly evaluation?: EvalReport;
  /** The final evaluation of a method that solves problems. */
  readonly solved?: SolvedReport;
}

/** The result of a run that trained in this call. */
export interface EndedRun extends RunResult {
  /** The stage that it is in, from 0; the number of stages where all have ended. */
  readonly stage: number;
  /** Tokens trained on, over all stages and sessions. */
  readonly tokens: number;
  /** Stages that ended with the parameters that they began with, as no evaluation was better. */
  readonly unchanged: readonly string[];
}
