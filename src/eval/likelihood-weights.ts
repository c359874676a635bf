// Weights of verdict words and likelihood, fitted on steps with known labels, and the verdicts that they give.

import { exp } from '../native/elementary.js';
import type { LikelihoodWeights } from '../scoring/settings.js';
import { type JudgedVerdict, probability } from '../scoring/verdict/judged.js';
import {
  likelihoodOf,
  logOdds,
  oddsOf,
  type StepLikelihoods,
  withLikelihood,
} from '../scoring/verdict/likelihood.js';
import { BOOTSTRAP, bootstrapIntervals } from './statistics/bootstrap.js';
import { logisticRegression } from './statistics/logistic.js';

/** Bound on log-odds, beyond which every probability is 0 or 1. */
const MAX_CONSTANT = 30;

/** A step and its label, with the words' probabilities as far as they matter. */
export type LabelledStep = Pick<
  JudgedVerdict,
  'solution' | 'step' | 'label' | 'logPositive' | 'logNegative'
> & {
  readonly unreadable?: true;
};

/**
 * Fits weights by logistic regression on labelled steps; undefined where these are all of one class.
 * Weights are never negative: evidence against a step, or against one before it, must not raise the odds that the step
 * is right, as chance on few rows might, and neither must a verdict "wrong". A step whose evidence is not finite is
 * left out. With calculations as evidence, a step that writes out none has a constant of its own; where no such step
 * was seen, that constant gives the mean share of right steps, because an unchecked step must not look like a checked
 * one.
 *
 * @param alone leaves out the verdict words, whose weight is then 0
 */
export function fitLikelihood(
  judged: readonly LabelledStep[],
  likelihoods: StepLikelihoods,
  { alone = false, of }: { readonly alone?: boolean; readonly of?: LikelihoodWeights['of'] } = {},
): LikelihoodWeights | undefined {
  const rows = judged.flatMap((verdict) => {
    const likelihood = likelihoodOf(verdict, likelihoods);
    return likelihood && !verdict.unreadable ? [{ verdict, likelihood }] : [];
  });
  // The least of calculations is of the step alone, that of the base is at most what stood before.
  const isOwn = of === 'calculations';
  const usable = rows
    .map(({ verdict, likelihood: { least, before, checked } }) => ({
      label: verdict.label,
      constants: isOwn ? [1, checked ? 0 : 1] : [1],
      evidence: [
        ...(alone ? [] : [oddsOf(verdict)]),
        ...(isOwn ? [least, before] : [least - before, before]),
      ],
    }))
    .filter(({ evidence }) => evidence.every(Number.isFinite));
  const labels = usable.map(({ label }) => label);
  if (new Set(labels).size < 2) return undefined;
  const free = isOwn ? 2 : 1;
  const [constant = 0, ...rest] = nonNegative(
    usable.map(({ constants, evidence }) => [...constants, ...evidence]),
    labels,
    free,
  );
  const weights = rest.slice(free - 1);
  const [verdict, own, carried] = [...(alone ? [0] : []), ...weights] as [number, number, number];
  return {
    ...(of ? { of } : {}),
    constant,
    verdict,
    least: own,
    before: isOwn ? carried : carried - own,
    ...(isOwn ? { unchecked: uncheckedConstant(usable, weights) - constant } : {}),
  };
}

/**
 * The constant that gives steps without a calculation their observed share of right ones, smoothed by one more step
 * with the share of all steps. The ridge of the regression would pull a handful of such steps towards the checked ones.
 */
function uncheckedConstant(
  steps: readonly {
    readonly label: number;
    readonly constants: readonly number[];
    readonly evidence: readonly number[];
  }[],
  weights: readonly number[],
): number {
  const own = steps.filter(({ constants }) => constants[1] === 1);
  const odds = own.map(({ evidence }) => evidence.reduce((sum, value, i) => sum + value * weights[i]!, 0));
  const all = steps.reduce((sum, { label }) => sum + label, 0) / steps.length;
  const right = own.reduce((sum, { label }) => sum + label, all);
  const expected = (constant: number) =>
    [0, ...odds].reduce((sum, each) => sum + probability(constant + each), 0);
  let [low, high] = [-MAX_CONSTANT, MAX_CONSTANT];
  while (high - low > 1e-9) {
    const middle = (low + high) / 2;
    if (expected(middle) < right) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/**
 * Logistic regression without the features that would have negative weights, the most negative first. The first `free` may have any.
 */
function nonNegative(
  features: readonly (readonly number[])[],
  labels: readonly number[],
  free: number,
): number[] {
  const out = new Set<number>();
  for (;;) {
    const used = features.map((row) => row.map((value, i) => (out.has(i) ? 0 : value)));
    const weights = logisticRegression(used, labels);
    const least = Math.min(...weights.slice(free));
    if (least >= 0) return weights;
    out.add(weights.indexOf(least, free));
  }
}

/** The words' verdicts on a part, and the likelihoods of its steps. */
export interface JudgedPart<Step = JudgedVerdict> {
  readonly judged: readonly Step[];
  readonly likelihoods: StepLikelihoods;
}

/**
 * Fewest validation steps with which the words get a weight, since four weights fitted on fewer are chance. Below it,
 * the likelihood is fitted on training steps too, from which the base has learned nothing.
 */
export const LIKELIHOOD_NEEDS = 100;

/** The same steps in the same order by other judges than the words. */
export interface LikelihoodVerdicts {
  readonly weights: LikelihoodWeights;
  /** Verdicts of the words alone, including steps that the model did not read and has no verdict on. */
  readonly words: readonly JudgedVerdict[];
  readonly both: readonly JudgedVerdict[];
  /** The validation steps by the same. */
  readonly validation: readonly JudgedVerdict[];
  /**
   * Verdicts of the likelihood alone, with weights of its own. Absent where `both` already is that, and where the
   * validation steps lack one of the classes.
   */
  readonly alone?: readonly JudgedVerdict[];
  /** Set where the verdicts do not separate even the steps that the weights were fitted on: do not judge by them. */
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
    /** Training steps, added where validation steps are few, for the likelihood alone. */
    readonly train?: JudgedPart<LabelledStep> | undefined;
  },
  { threshold, weights, of, wordless = false }: LikelihoodJudging,
): LikelihoodVerdicts | undefined {
  const fitted = (part: JudgedPart<LabelledStep>, alone: boolean) =>
    fitLikelihood(part.judged, part.likelihoods, { alone, of });
  const by = ({ judged, likelihoods }: JudgedPart, chosen: LikelihoodWeights) =>
    withLikelihood(judged, likelihoods, chosen, threshold);
  const more = withMore(validation, train);
  // Weights without the words are those of the likelihood alone.
  const ofBase = weights?.verdict === 0 ? weights : fitted(more, true);
  const isAlone = wordless || (train !== undefined && validation.judged.length < LIKELIHOOD_NEEDS);
  const together = weights ?? (isAlone ? ofBase : fitted(validation, false));
  if (!together) return undefined;
  const isChance = weights === undefined && !tellsApart(isAlone ? more : validation, together);
  return {
    ...{
      weights: together,
      words: test.judged,
      both: by(test, together),
      validation: by(validation, together),
    },
    ...(ofBase && together.verdict !== 0 ? { alone: by(test, ofBase) } : {}),
    ...(isChance ? { isChance } : {}),
  };
}

/** The kept judge's verdicts on the test part: those of the words, unless they are weighed with other evidence. */
export const keptVerdicts = (
  words: readonly JudgedVerdict[],
  likelihood: LikelihoodVerdicts | undefined,
): readonly JudgedVerdict[] => (likelihood && !likelihood.isChance ? likelihood.both : words);

/** Whether the interval of the AUC on the steps that the weights were fitted on leaves one half out. */
function tellsApart({ judged, likelihoods }: JudgedPart<LabelledStep>, weights: LikelihoodWeights): boolean {
  const steps = judged.flatMap((step) => {
    const likelihood = likelihoodOf(step, likelihoods);
    if (step.unreadable || !likelihood) return [];
    const probability = 1 / (1 + exp(-logOdds(step, likelihood, weights)));
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
