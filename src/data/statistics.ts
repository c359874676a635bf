import { normalizeProblem, type StepRecord } from './record.js';

/** Figures about a set of records. */
export interface DataStatistics {
  readonly records: number;
  /** Distinct problems by normalised text. */
  readonly problems: number;
  /** Labelled steps, each one verdict sample. */
  readonly samples: number;
  readonly positive: number;
  readonly negative: number;
  /** Steps without a label, those that only lead up to another step left out. */
  readonly unlabelled: number;
  /** Steps per solution; solutions cut out of another one (`context_steps`) are not counted again. */
  readonly stepsPerSolution: { readonly min: number; readonly mean: number; readonly max: number };
}

/** Gathers {@link DataStatistics} while records pass through. */
export class StatisticsCounter {
  private readonly problems = new Set<string>();
  private records = 0;
  private positive = 0;
  private negative = 0;
  private unlabelled = 0;
  private solutions = 0;
  private steps = 0;
  private min = Number.POSITIVE_INFINITY;
  private max = 0;

  add(record: StepRecord): void {
    this.records++;
    this.problems.add(normalizeProblem(record.problem));
    const context = record.context_steps ?? 0;
    for (const step of record.steps.slice(context)) {
      if (step.label === 1) this.positive++;
      else if (step.label === 0) this.negative++;
      else this.unlabelled++;
    }
    if (context > 0) return;
    this.solutions++;
    this.steps += record.steps.length;
    this.min = Math.min(this.min, record.steps.length);
    this.max = Math.max(this.max, record.steps.length);
  }

  result(): DataStatistics {
    return {
      records: this.records,
      problems: this.problems.size,
      samples: this.positive + this.negative,
      positive: this.positive,
      negative: this.negative,
      unlabelled: this.unlabelled,
      stepsPerSolution: {
        min: this.solutions === 0 ? 0 : this.min,
        mean: this.solutions === 0 ? 0 : this.steps / this.solutions,
        max: this.max,
      },
    };
  }
}
