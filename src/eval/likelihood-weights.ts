// How much verdict words and likelihood count: weights fitted on steps whose labels are known, and the verdicts by them.

import type { LikelihoodWeights } from '../scoring/settings.js';
import type { JudgedVerdict } from '../scoring/verdict/judged.js';
import {
  likelihoodOf,
  logOdds,
  oddsOf,
  type StepLikelihoods,
  withLikelihood,
} from '../scoring/verdict/likelihood.js';
import { BOOTSTRAP, bootstrapIntervals } from './bootstrap.js';
import { logisticRegression } from './logistic.js';

/** A step and its label, and what the words say, as far as it matters. */
export type LabelledStep = Pick<
  JudgedVerdict,
  'solution' | 'step' | 'label' | 'logPositive' | 'logNegative'
> & {
  readonly unreadable?: true;
};

/**
 * Weights by logistic regression on labelled steps; undefined where they are all of one class.
 *
 * @param alone leaves the verdict words out, whose weight is then 0
 */
export function fitLikelihood(
  judged: readonly LabelledStep[],
  likelihoods: StepLikelihoods,
  { alone = false }: { readonly alone?: boolean } = {},
): LikelihoodWeights | undefined {
  const rows = judged.flatMap((verdict) => {
    const likelihood = likelihoodOf(verdict, likelihoods);
    return likelihood && !verdict.unreadable ? [{ verdict, likelihood }] : [];
  });
  const labels = rows.map(({ verdict }) => verdict.label);
  if (new Set(labels).size < 2) return undefined;
  const features = rows.map(({ verdict, likelihood: { least, before } }) =>
    alone ? [1, least, before] : [1, least, before, oddsOf(verdict)],
  );
  const [constant = 0, least = 0, before = 0, verdict = 0] = logisticRegression(features, labels);
  return { constant, verdict, least, before };
}

/** The words' verdicts on a part, and the likelihoods of its steps. */
export interface JudgedPart<Step = JudgedVerdict> {
  readonly judged: readonly Step[];
  readonly likelihoods: StepLikelihoods;
}

/**
 * With fewer validation steps the words get no weight, since four weights of so few are chance, and the likelihood is also fitted
 * on training steps, of which the base has learned nothing.
 */
export const LIKELIHOOD_NEEDS = 100;

/** The same steps in the same order by other judges than the words. */
export interface LikelihoodVerdicts {
  readonly weights: LikelihoodWeights;
  readonly both: readonly JudgedVerdict[];
  /** By the likelihood alone, with weights of its own; absent where there are no validation steps of both classes to fit them. */
  readonly alone?: readonly JudgedVerdict[];
  /** Set where not even the steps that the weights were fitted on are told apart: nobody should judge by them. */
  readonly isChance?: true;
}

export interface LikelihoodJudging {
  readonly threshold: 'greedy' | number;
  /** Default: fitted on the validation part. */
  readonly weights?: LikelihoodWeights | undefined;
  readonly of?: 'calculations' | undefined;
  /** Whether the words have learned nothing, so that they get no weight. Default false. */
  readonly wordless?: boolean | undefined;
}

/**
 * The test part by words and likelihood, and by the likelihood. Where the words learned nothing, or validation has few steps and
 * there is a training part, `both` is the likelihood alone. Undefined where there are not both classes to fit weights to.
 */
export function likelihoodVerdicts(
  {
    validation,
    test,
    train,
  }: Readonly<Record<'validation' | 'test', JudgedPart>> & {
    /** Beside few validation steps, for the likelihood alone. */
    readonly train?: JudgedPart<LabelledStep> | undefined;
  },
  { threshold, weights, of, wordless = false }: LikelihoodJudging,
): LikelihoodVerdicts | undefined {
  const fitted = (part: JudgedPart<LabelledStep>, alone: boolean) => {
    const found = fitLikelihood(part.judged, part.likelihoods, { alone });
    return found && { ...(of ? { of } : {}), ...found };
  };
  const by = (chosen: LikelihoodWeights) => withLikelihood(test.judged, test.likelihoods, chosen, threshold);
  const more = withMore(validation, train);
  // Weights without the words are those of the likelihood alone.
  const ofBase = weights?.verdict === 0 ? weights : fitted(more, true);
  const isAlone = wordless || (train !== undefined && validation.judged.length < LIKELIHOOD_NEEDS);
  const together = weights ?? (isAlone ? ofBase : fitted(validation, false));
  if (!together) return undefined;
  const isChance = weights === undefined && !tellsApart(isAlone ? more : validation, together);
  return {
    ...{ weights: together, both: by(together) },
    ...(ofBase ? { alone: by(ofBase) } : {}),
    ...(isChance ? { isChance } : {}),
  };
}

/** Whether the interval of the AUC on the steps that the weights were fitted on leaves one half out. */
function tellsApart({ judged, likelihoods }: JudgedPart<LabelledStep>, weights: LikelihoodWeights): boolean {
  const steps = judged.flatMap((step) => {
    const likelihood = likelihoodOf(step, likelihoods);
    if (step.unreadable || !likelihood) return [];
    const probability = 1 / (1 + Math.exp(-logOdds(step, likelihood, weights)));
    return [{ problem: String(step.solution), label: step.label, verdict: undefined, probability }];
  });
  const intervals = bootstrapIntervals(steps, { ...BOOTSTRAP, resamples: 200, invalidAsWrong: true });
  return (intervals?.metrics.auc?.[0] ?? 0) > 0.5;
}

function withMore(
  validation: JudgedPart,
  train: JudgedPart<LabelledStep> | undefined,
): JudgedPart<LabelledStep> {
  if (!train) return validation;
  const first = validation.likelihoods.length;
  return {
    judged: [
      ...validation.judged,
      ...train.judged.map((step) => ({ ...step, solution: step.solution + first })),
    ],
    likelihoods: [...validation.likelihoods, ...train.likelihoods],
  };
}
