import { exp, log1p } from '../../native/elementary.js';
/** One judged step: the label (1 = correct step) and the verdict read from the model, undefined if none could be read. */
export interface JudgedStep {
  readonly label: 0 | 1;
  readonly verdict: 0 | 1 | undefined;
}

/** A step of a solution, the log-probabilities of both verdict words after it, and the verdict read from them. */
export interface JudgedVerdict extends JudgedStep {
  /** Index of the solution among the sequences, and of the step within it. */
  readonly solution: number;
  readonly step: number;
  /** Log-probability of each whole word. */
  readonly logPositive: number;
  readonly logNegative: number;
  /** Probability of the positive word among the two. */
  readonly probability: number;
  /** The reason that the model wrote before its verdict, where it writes one and it ended. */
  readonly reason?: string;
  /** Set where no word can be read at any threshold, as after a reason that did not end. */
  readonly unreadable?: true;
  /** The model did not read the step, which lies beyond its longest sequence: the verdict is of its calculations alone. */
  readonly unread?: true;
}

/** σ. */
export function probability(logOdds: number): number {
  return 1 / (1 + exp(-logOdds));
}

/** The verdict of log-odds: right from a probability of `least` on. */
export function verdictOfOdds(logOdds: number, least = 0.5) {
  return {
    verdict: probability(logOdds) >= least ? 1 : 0,
    probability: probability(logOdds),
    logPositive: -log1p(exp(-logOdds)),
    logNegative: -log1p(exp(logOdds)),
  } as const;
}
