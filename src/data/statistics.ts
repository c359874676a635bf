import type { StepLabel } from '../records/record.js';
import { DistinctNumbers } from './distinct.js';

/** A solution as input of the statistics. */
export interface CountedSolution {
  /** Identifies the problem; see `problemKey`. */
  readonly problem: number;
  readonly labels: readonly StepLabel[];
  /** See {@link StepRecord.context_steps}. */
  readonly context_steps?: number | undefined;
  /** Tokens of the problem and the steps up to the last labelled one; absent if nothing is tokenised. */
  readonly tokens?: number | undefined;
  /** Labelled steps that lie beyond the longest sequence. */
  readonly stepsCut?: number | undefined;
}

/** Metrics about a set of solutions. */
export interface DataStatistics {
  readonly solutions: number;
  /** Distinct problems by normalised text. */
  readonly problems: number;
  /** Labelled steps, each one verdict sample. */
  readonly samples: number;
  readonly positive: number;
  readonly negative: number;
  /** Steps without a label, not counting `context_steps`. */
  readonly unlabelled: number;
  /** Steps per solution; records that share a solution (`context_steps`) count once. */
  readonly stepsPerSolution: { readonly min: number; readonly mean: number; readonly max: number };
  /** Absent if nothing is tokenised. */
  readonly lengths?: LengthStatistics;
}

/** Tokens of whole solutions, before truncation. */
export interface LengthStatistics {
  readonly tokens: number;
  readonly median: number;
  readonly p95: number;
  readonly max: number;
  /** Labelled steps beyond the longest sequence, and the solutions that lose some. */
  readonly stepsCut: number;
  readonly solutionsCut: number;
}

/** Computes {@link DataStatistics} from a stream; memory grows with the distinct problems and lengths. */
export class StatisticsCounter {
  private readonly problems = new DistinctNumbers();
  private readonly lengths = new Map<number, number>();
  private readonly counts = { solutions: 0, positive: 0, negative: 0, unlabelled: 0 };
  private readonly cut = { stepsCut: 0, solutionsCut: 0 };
  private wholeSolutions = 0;
  private steps = 0;
  private min = Number.POSITIVE_INFINITY;
  private max = 0;

  add({ problem, labels, context_steps: context = 0, tokens, stepsCut = 0 }: CountedSolution): void {
    this.counts.solutions++;
    this.problems.add(problem);
    for (let step = context; step < labels.length; step++) {
      const label = labels[step];
      this.counts[label === 1 ? 'positive' : label === 0 ? 'negative' : 'unlabelled']++;
    }
    if (tokens !== undefined) this.lengths.set(tokens, (this.lengths.get(tokens) ?? 0) + 1);
    this.cut.stepsCut += stepsCut;
    if (stepsCut > 0) this.cut.solutionsCut++;
    if (context > 0) return;
    this.wholeSolutions++;
    this.steps += labels.length;
    this.min = Math.min(this.min, labels.length);
    this.max = Math.max(this.max, labels.length);
  }

  result(): DataStatistics {
    const whole = this.wholeSolutions;
    return {
      ...this.counts,
      problems: this.problems.count(),
      samples: this.counts.positive + this.counts.negative,
      stepsPerSolution: {
        min: whole === 0 ? 0 : this.min,
        mean: whole === 0 ? 0 : this.steps / whole,
        max: this.max,
      },
      ...(this.lengths.size === 0 ? {} : { lengths: this.lengthStatistics() }),
    };
  }

  private lengthStatistics(): LengthStatistics {
    const sorted = [...this.lengths].sort((a, b) => a[0] - b[0]);
    const quantile = (share: number): number => {
      let left = Math.ceil(share * this.counts.solutions);
      for (const [length, count] of sorted) {
        left -= count;
        if (left <= 0) return length;
      }
      return 0;
    };
    return {
      tokens: sorted.reduce((sum, [length, count]) => sum + length * count, 0),
      median: quantile(0.5),
      p95: quantile(0.95),
      max: sorted.at(-1)?.[0] ?? 0,
      ...this.cut,
    };
  }
}
