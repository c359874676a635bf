// What else may be said of samples than whether their answers are right: scores by a reward model, and verdicts on steps.
import type { Problem } from '../../data/benchmarks/problem.js';
import { type CorrectionReading, readStanding } from '../../data/corrections/standing.js';
import { DataError } from '../../files/data-error.js';
import { stepsOf } from '../../records/steps.js';
import { AGGREGATIONS, type Aggregation, aggregated, untilWrong } from './aggregation.js';
import { learnedAggregation } from './learned-aggregation.js';
import type { GradedSample, SamplePlace } from './sample.js';

/** A sample as reward models and judges read it. */
export interface Solution extends SamplePlace {
  /** The number of its problem, as everywhere, and the problem itself. */
  readonly of: Problem;
  readonly text: string;
  /** The paragraphs of the text, or its lines where it has no blank one; of a solution that corrects itself those that stand. */
  readonly steps: readonly string[];
}

/** A reward model, of outcomes or of steps. */
export interface SolutionScorer {
  /** For the report. */
  readonly name: string;
  /**
   * By solution one score, or one for each step; the higher the better. None where it cannot read a solution.
   *
   * @returns as many lists as solutions, finite numbers
   */
  score(solutions: readonly Solution[], signal?: AbortSignal): Promise<readonly (readonly number[])[]>;
}

/** Says of steps whether they are right. */
export interface StepJudge {
  readonly name: string;
  /** @returns by solution and step 1 right, 0 wrong, null where it does not say */
  judge(
    solutions: readonly Solution[],
    signal?: AbortSignal,
  ): Promise<readonly (readonly (0 | 1 | null)[])[]>;
}

export interface JudgingOptions {
  /** A reward model, for the best of k and weighted votes. */
  readonly scorer?: SolutionScorer | undefined;
  /** How its scores of steps become one. Default `min`. */
  readonly aggregation?: Aggregation;
  /** Aggregate only the scores up to the first below one half. Default false. */
  readonly untilWrong?: boolean;
  /** Aggregate in every way, for a curve of the best of k for each. Default false. */
  readonly curves?: boolean;
  /** Judges the steps of right solutions. */
  readonly judge?: StepJudge | undefined;
  /** The model corrects itself: a step that it takes back is no error. Neither judge nor scorer sees it. */
  readonly corrections?: CorrectionReading | undefined;
}

export const AGGREGATION: Aggregation = 'min';

/** So many solutions at a time, for the progress and the signal. */
const BATCH = 64;

/**
 * The samples with their scores, and the right ones with verdicts on their steps.
 *
 * @throws DataError where a scorer or judge does not keep to its interface
 */
export async function judgedSamples(
  problems: readonly Problem[],
  samples: readonly GradedSample[],
  {
    scorer,
    judge,
    aggregation = AGGREGATION,
    untilWrong: cut = false,
    curves = false,
    corrections,
    signal,
    onProgress,
  }: JudgingOptions & {
    readonly signal?: AbortSignal | undefined;
    readonly onProgress: (done: number, phase: 'scores' | 'verdicts', total: number) => void;
  },
): Promise<GradedSample[]> {
  const inBatches = async <T>(
    phase: 'scores' | 'verdicts',
    of: readonly GradedSample[],
    ask: (part: readonly Solution[]) => Promise<readonly T[]>,
  ): Promise<T[]> => {
    const found: T[] = [];
    for (let at = 0; at < of.length; at += BATCH) {
      signal?.throwIfAborted();
      const part = of.slice(at, at + BATCH).map((sample) => solutionOf(problems, sample, corrections));
      const answers = await ask(part);
      signal?.throwIfAborted();
      if (answers.length !== part.length)
        throw new DataError('option', `${answers.length} ${phase} came for ${part.length} solutions`);
      found.push(...answers);
      onProgress(found.length, phase, of.length);
    }
    return found;
  };
  const scores = scorer && (await inBatches('scores', samples, (part) => scorer.score(part, signal)));
  const wrong = scores?.flat().find((score) => !Number.isFinite(score));
  if (wrong !== undefined)
    throw new DataError('option', `${scorer?.name} gave ${wrong} as a score; expected finite numbers`);
  const read = scores?.map((all) => (cut ? untilWrong(all) : all)) ?? [];
  const learned = curves ? learnedAggregation(samples, read) : [];
  const scoresOf = (i: number) => {
    const of = read[i] as readonly number[];
    const every = () => ({
      ...Object.fromEntries(AGGREGATIONS.map((how) => [how, aggregated(of, how)])),
      learned: learned[i] ?? null,
    });
    return { score: aggregated(of, aggregation), ...(curves ? { scores: every() } : {}) };
  };
  const right = samples.filter((sample) => sample.right);
  const steps = judge && (await inBatches('verdicts', right, (part) => judge.judge(part, signal)));
  const verdicts = new Map(right.map((sample, i) => [sample, inPlace(sample.text, steps?.[i], corrections)]));
  return samples.map((sample, i) => {
    const own = verdicts.get(sample);
    return {
      ...sample,
      ...(scores ? scoresOf(i) : {}),
      ...(own ? { steps: own } : {}),
    };
  });
}

function solutionOf(
  problems: readonly Problem[],
  { problem, sample, text }: GradedSample,
  corrections: CorrectionReading | undefined,
): Solution {
  const steps = readStanding(stepsOf(text), corrections).map((step) => step.text);
  return { problem, sample, text, of: problems[problem] as Problem, steps };
}

/** By step of the text its verdict; null of steps that do not stand. */
function inPlace(
  text: string,
  verdicts: readonly (0 | 1 | null)[] | undefined,
  corrections: CorrectionReading | undefined,
): readonly (0 | 1 | null)[] | undefined {
  if (!verdicts || !corrections) return verdicts;
  const all = stepsOf(text);
  const found = new Array<0 | 1 | null>(all.length).fill(null);
  readStanding(all, corrections).forEach(({ at }, i) => {
    found[at] = verdicts[i] ?? null;
  });
  return found;
}
