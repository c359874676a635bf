// Judgements of samples other than of their answers: scores by a reward model, and verdicts on steps.
import type { Problem } from '../../data/benchmarks/problem.js';
import { type CorrectionReading, readStanding } from '../../data/corrections/standing.js';
import { badOption } from '../../files/data-error.js';
import { plural } from '../../native/shown.js';
import { type Segmentation, stepsBy } from '../../records/segment.js';
import { numbersOf, type Scorer, type Solution, sampled, verdictsOf } from '../../scoring/scorer.js';
import { AGGREGATIONS, type Aggregation, aggregated, untilWrong } from './aggregation.js';
import { learnedAggregation } from './learned-aggregation.js';
import type { GradedSample } from './sample.js';

export interface JudgingOptions {
  /** Scorer for the best of k and weighted votes. */
  readonly scorer?: Scorer | undefined;
  /** Aggregation of the scores of steps. Default `min`. */
  readonly aggregation?: Aggregation | undefined;
  /** Aggregate only the scores up to the first below one half. Default false. */
  readonly untilWrong?: boolean | undefined;
  /** Aggregate in every way, for a curve of the best of k for each. Default false. */
  readonly curves?: boolean | undefined;
  /** Judges the steps of right solutions, by its verdicts. */
  readonly judge?: Scorer | undefined;
  /** The model corrects itself: a step that it takes back is no error. Neither judge nor scorer sees it. */
  readonly corrections?: CorrectionReading | undefined;
}

export const AGGREGATION: Aggregation = 'min';

/** Solutions scored at a time, between reports of progress and checks of the signal. */
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
    ask: (part: readonly Solution[]) => Promise<readonly T[] | undefined>,
    by: Scorer | undefined,
  ): Promise<T[]> => {
    const found: T[] = [];
    for (let at = 0; at < of.length; at += BATCH) {
      signal?.throwIfAborted();
      const part = of
        .slice(at, at + BATCH)
        .map((sample) => solutionOf(problems, sample, { corrections, rule: by?.segmentation }));
      const answers = await ask(part);
      signal?.throwIfAborted();
      if (answers?.length !== part.length)
        throw badOption(`${answers?.length ?? 0} ${phase} came for ${plural(part.length, 'solution')}`);
      found.push(...answers);
      onProgress(found.length, phase, of.length);
    }
    return found;
  };
  const verdictsFor = judge && verdictsOf(judge);
  const found =
    scorer && (await inBatches('scores', samples, (part) => scorer.score(part, { signal }), scorer));
  const scores = found?.map((own) => numbersOf(scorer as Scorer, own));
  const wrong = scores?.flat().find((score) => !Number.isFinite(score));
  if (wrong !== undefined)
    throw badOption(`${scorer?.name} gave ${wrong} as a score; expected finite numbers`);
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
  const steps =
    verdictsFor && (await inBatches('verdicts', right, (part) => verdictsFor(part, signal), judge));
  const verdicts = new Map(
    right.map((sample, i) => [
      sample,
      inPlace(sample.text, steps?.[i], { corrections, rule: judge?.segmentation }),
    ]),
  );
  return samples.map((sample, i) => {
    const own = verdicts.get(sample);
    return {
      ...sample,
      ...(scores ? scoresOf(i) : {}),
      ...(own ? { steps: own } : {}),
    };
  });
}

/** The way in which a text becomes the steps that stand. */
interface Reading {
  readonly corrections: CorrectionReading | undefined;
  readonly rule: Segmentation | undefined;
}

function solutionOf(
  problems: readonly Problem[],
  sample: GradedSample,
  { corrections, rule }: Reading,
): Solution {
  const steps = readStanding(stepsBy(sample.text, rule), corrections).map((step) => step.text);
  return sampled(problems[sample.problem] as Problem, sample, steps);
}

/** Verdicts by step of the text; null for steps that do not stand. */
function inPlace(
  text: string,
  verdicts: readonly (0 | 1 | null)[] | undefined,
  { corrections, rule }: Reading,
): readonly (0 | 1 | null)[] | undefined {
  if (!verdicts || !corrections) return verdicts;
  const all = stepsBy(text, rule);
  const found = new Array<0 | 1 | null>(all.length).fill(null);
  readStanding(all, corrections).forEach(({ at }, i) => {
    found[at] = verdicts[i] ?? null;
  });
  return found;
}
