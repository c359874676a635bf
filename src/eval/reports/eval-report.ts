// The results of an evaluation: the object written to eval.json.

import type { GroupsMetrics } from '../groups.js';
import type { Intervals } from '../statistics/bootstrap.js';
import type { Calibration } from '../statistics/calibration.js';
import type { Baselines, VerdictMetrics } from '../statistics/metrics.js';
import type { Differences } from '../statistics/paired.js';
import type { ProcessBenchReport } from '../statistics/solutions.js';
import type { ThresholdSweep } from '../statistics/thresholds.js';
import type { StepErrors } from '../step-errors.js';
import type { SureReport } from '../sure.js';
import type { LikelihoodReport } from './likelihood-report.js';

/** The content of eval.json: the kept judge's verdicts on held-out steps. */
export interface EvalReport extends VerdictReport {
  /** The weights of verdict words and likelihood, or of verdict words and calculations. */
  readonly likelihood?: LikelihoodReport;
  /**
   * The report of the verdict words alone, compared with the models that answer with words too, where the kept judge
   * weighs more.
   */
  readonly words?: VerdictReport;
}

/** The report of one judge. Every metric is a fraction in [0, 1]. */
export interface VerdictReport {
  /** The training method, as in the configuration. */
  readonly method: string;
  /** Origin of the judged steps: source, files, counts. */
  readonly data: Readonly<Record<string, unknown>>;
  readonly metrics: VerdictMetrics;
  /** The judged unit. Default steps. */
  readonly unit?: 'steps' | 'solutions';
  /**
   * Constant and random verdicts, and models by name (`sft`, `before`) judged on the same steps; where the judge goes by more than
   * words, `words` and the other evidence alone.
   */
  readonly baselines: Baselines & Readonly<Record<string, VerdictMetrics>>;
  /** Metrics of the trained model on the validation steps, by which a sweep may select. */
  readonly metrics_validation?: VerdictMetrics;
  /** The same metrics over the steps that occur word for word in the training data, and over all others. */
  readonly metrics_seen?: VerdictMetrics;
  readonly metrics_unseen?: VerdictMetrics;
  /** `baselines` and `intervals` over the unseen steps. */
  readonly baselines_unseen?: EvalReport['baselines'];
  readonly intervals_unseen?: Intervals;
  /** F1 macro of the model less that of the others, on the unseen steps where there are any. */
  readonly differences?: Differences;
  /** The reward network as a judge: the verdict that it scores higher. Also `reward_network` among the baselines. */
  readonly reward_network?: Readonly<Record<'validation' | 'test', NetworkReport>>;
  /** Outcomes, for a reward model that scores solutions as well as their steps. */
  readonly outcomes?: OutcomeReport;
  /** Bootstrap intervals of the metrics over problems. */
  readonly intervals?: Intervals;
  /** Calibration of the probability of "right"; absent if no step was judged. */
  readonly calibration?: Calibration;
  /** Metrics at other thresholds on the probability. */
  readonly threshold_sweep?: ThresholdSweep;
  /** Probability from which a step counts as right, where the validation steps chose it. */
  readonly threshold?: number;
  /** The metrics over the steps of which the judge is sure, where its card or an option says when it is. */
  readonly sure?: SureReport;
  /** Localisation of the first wrong step; absent if no solution has the labels for it. */
  readonly processbench?: ProcessBenchReport;
  /** The metrics of each value of `data.group_by`. */
  readonly groups?: GroupsMetrics;
  /** Metrics on right steps and on each kind of wrong ones; absent where the data do not give the kinds. */
  readonly errors?: StepErrors;
  /** Sentences about suspicious findings. */
  readonly warnings?: readonly string[];
}

/** Accuracy of the reward network on a held-out part. */
export interface NetworkReport {
  readonly metrics: VerdictMetrics;
  /** Share of the pairs, as in its training, whose right side has the higher score. */
  readonly pair_accuracy: number;
  /**
   * The score from which a step is right, chosen on validation steps, for a network that scores steps (`reward_network.pair_mode:
   * step`).
   */
  readonly threshold?: number;
  /**
   * Calibration of σ(score of "right" − score of "wrong") as the probability of "right"; absent without steps, and with
   * a threshold.
   */
  readonly calibration?: Calibration;
}

/** Whole solutions judged right or wrong. */
export interface OutcomeReport {
  readonly metrics: VerdictMetrics;
  /** A logistic regression on length and termination alone. */
  readonly length: VerdictMetrics;
  /** Absent without solutions. */
  readonly calibration?: Calibration;
}
