/** `method: step_kto`: Kahneman-Tversky optimisation of answers by their outcome and of steps by their judgement. */
import { z } from 'zod';
import { choice, flag, nonNegative, positiveNumber } from '../../config/fields.js';
import type { Dataset } from '../../data/dataset.js';
import { type JudgedAnswer, type StepReduction, stepKto as stepKtoLoss } from '../../objectives/step-kto.js';
import type { OfflineItem } from '../../scoring/implicit/items.js';
import { type ScoredAnswer, spanBounds } from '../../scoring/implicit/sums.js';
import { judgedAnswers } from './answers/kinds.js';
import type { MismatchedSums, OfflineObjective } from './answers/objective.js';
import { beta, classWeight } from './fields.js';
import { labelOf, referencePoint } from './kto.js';
import { offlineMethod } from './method.js';

/** Keys without a level are those of answers, with TRL's names. */
interface StepKtoSettings {
  readonly beta: number;
  readonly beta_step: number | 'same';
  readonly outcome_weight: number;
  readonly step_weight: number;
  readonly reduction: StepReduction;
  readonly desirable_weight: number;
  readonly undesirable_weight: number;
  readonly desirable_weight_step: number;
  readonly undesirable_weight_step: number;
  readonly auto_balance: boolean;
  readonly z0: 'batch_kl' | 'zero';
  readonly z0_step: 'step_kl' | 'share' | 'zero' | 'outcome';
}

/** The objective of Step-KTO (arXiv 2501.10799). `train`: the items whose classes are balanced, with `auto_balance`. */
function stepKtoObjective(settings: StepKtoSettings, train: Dataset<OfflineItem>): OfflineObjective {
  const { beta, reduction, outcome_weight, step_weight } = settings;
  const weights = levelWeights(settings, train);
  const options = {
    reduction,
    outcome: { beta, weight: outcome_weight, ...weights.outcome },
    step: {
      beta: settings.beta_step === 'same' ? beta : settings.beta_step,
      weight: step_weight,
      ...weights.step,
    },
  };
  const needsMismatched = settings.z0 === 'batch_kl' || settings.z0_step === 'step_kl';
  return {
    needsReference: true,
    needsMismatched,
    begin(batch, mismatched, means) {
      const stepCounts = batch.flatMap(({ answers }) =>
        answers.map(({ steps }) => steps.filter(({ label }) => label !== null).length),
      );
      const points = referencePoints(settings, mismatched, batch);
      for (const [name, point] of Object.entries(points)) {
        means.mean(name, point, 1);
        means.mean(`${name}_clamped`, point < 0 ? 1 : 0, 1);
      }
      const total = {
        answers: batch.length,
        labelledSteps: stepCounts.reduce((sum, count) => sum + count, 0),
      };
      means.mean('labelled_steps', total.labelledSteps, 1);
      return {
        terms(scored) {
          const { device } = scored.logprobs;
          const { loss, statistics } = stepKtoLoss(
            {
              logprobs: scored.logprobs,
              refLogprobs: device.tensor(Float32Array.from(referenceSums(scored.answers))),
              summed: true,
              answers: scored.answers.map(judged),
              z0: points.z0,
              stepZ0: points.z0_step,
              batch: total,
            },
            options,
          );
          return [
            {
              loss,
              statistics,
              measure(found, means) {
                for (const level of ['outcome', 'step'] as const) {
                  const of = (name: string) => found[`${level}_${name}`] ?? 0;
                  means.add(`${level}_loss`, of('loss'));
                  means.add(`${level}_gradient`, of('gradient'));
                  const suffix = level === 'step' ? '_step' : '';
                  means.mean(`rewards_chosen${suffix}`, of('desirable_reward'), of('desirable'));
                  means.mean(`rewards_rejected${suffix}`, of('undesirable_reward'), of('undesirable'));
                }
              },
            },
          ];
        },
        end(means) {
          // Under `mean` the outcome pulls harder by about the number of steps, and the method is nearly KTO.
          const pull = means.value('outcome_gradient') ?? 0;
          if (pull > 0) means.mean('step_to_outcome_gradient', (means.value('step_gradient') ?? 0) / pull, 1);
        },
      };
    },
  };
}

function judged(answer: ScoredAnswer): JudgedAnswer {
  return {
    span: spanBounds({ answer }),
    label: labelOf(answer.tokens),
    steps: answer.tokens.steps.map(({ label }, step) => ({ span: spanBounds({ answer, step }), label })),
  };
}

/** All answers, then their labelled steps. */
function referenceSums(answers: readonly ScoredAnswer[]): number[] {
  const whole = answers.map(({ reference }) => reference?.[0] ?? 0);
  const steps = answers.flatMap(({ tokens, reference }) =>
    tokens.steps.flatMap(({ label }, step) => (label === null ? [] : [reference?.[step + 1] ?? 0])),
  );
  return [...whole, ...steps];
}

/** Reference points before they are clamped at 0. */
function referencePoints(
  { z0: kind, z0_step: stepKind }: StepKtoSettings,
  mismatched: MismatchedSums | undefined,
  batch: readonly OfflineItem[],
): { readonly z0: number; readonly z0_step: number } {
  const z0 = kind === 'zero' || !mismatched ? 0 : referencePoint(mismatched);
  const steps = batch.flatMap(({ answers }) => answers.map(({ steps }) => Math.max(1, steps.length)));
  switch (stepKind) {
    case 'zero':
      return { z0, z0_step: 0 };
    case 'outcome':
      return { z0, z0_step: z0 };
    case 'share':
      return { z0, z0_step: (z0 * steps.length) / steps.reduce((sum, count) => sum + count, 0) };
    case 'step_kl':
      return { z0, z0_step: mismatched ? stepReferencePoint(mismatched) : 0 };
  }
}

/** The mean log-ratio of the steps of mismatched answers. */
function stepReferencePoint({ policy, reference }: MismatchedSums): number {
  const ratios = policy.flatMap((sums, i) =>
    sums.slice(1).map((own, step) => own - (reference[i]?.[step + 1] ?? 0)),
  );
  return ratios.length === 0 ? 0 : ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length;
}

interface ClassWeights {
  readonly lambdaD: number;
  readonly lambdaU: number;
}

function levelWeights(
  settings: StepKtoSettings,
  train: Dataset<OfflineItem>,
): { readonly outcome: ClassWeights; readonly step: ClassWeights } {
  const outcome = { lambdaD: settings.desirable_weight, lambdaU: settings.undesirable_weight };
  const step = { lambdaD: settings.desirable_weight_step, lambdaU: settings.undesirable_weight_step };
  if (!settings.auto_balance) return { outcome, step };
  const counts = { outcome: [0, 0] as [number, number], step: [0, 0] as [number, number] };
  for (const { answers } of train) {
    for (const { label, steps } of answers) {
      if (label !== null) counts.outcome[label]++;
      for (const { label } of steps) if (label !== null) counts.step[label]++;
    }
  }
  return { outcome: balanced(outcome, counts.outcome), step: balanced(step, counts.step) };
}

/** The upper end of the range of KTO's equation 8. */
const MOST = 4 / 3;

/**
 * Weights with lambda_D·n_D / (lambda_U·n_U) from 1 to 4/3 (arXiv 2402.01306, equation 8): the class that weighs too little is
 * raised. Without one of the classes nothing can be balanced.
 */
export function balanced(
  { lambdaD, lambdaU }: ClassWeights,
  [undesirable, desirable]: readonly [number, number],
): ClassWeights {
  const ratio = (lambdaD * desirable) / (lambdaU * undesirable);
  if (!Number.isFinite(ratio) || ratio === 0) return { lambdaD, lambdaU };
  if (ratio < 1) return { lambdaD: lambdaD / ratio, lambdaU };
  if (ratio > MOST) return { lambdaD, lambdaU: (lambdaU * ratio) / MOST };
  return { lambdaD, lambdaU };
}

export const stepKto = offlineMethod({
  name: 'step_kto',
  about: 'Step-KTO: answers by their outcome, steps by their judgement',
  defaults: { learning_rate: 1e-5, batch_size: 64, iterations: 3 },
  keys: {
    beta: beta(),
    beta_step: z
      .union([z.literal('same'), positiveNumber()])
      .default('same')
      .meta({ expects: '"same" or a positive number' })
      .describe(
        'The same for steps. Their log-ratios are smaller by about the number of steps; `beta` times that number makes up for it.',
      ),
    outcome_weight: nonNegative(1).describe('Weight of the loss of answers.'),
    step_weight: nonNegative(1).describe(
      'Weight of the loss of steps. 0 is KTO; under `mean`, about the number of steps makes both pull alike.',
    ),
    reduction: choice('mean', 'sum', 'global').describe(
      'Losses of the steps of an answer: their mean, their sum, or equal weights for all steps of the batch.',
    ),
    desirable_weight: classWeight('right answers'),
    undesirable_weight: classWeight('wrong answers'),
    desirable_weight_step: classWeight('right steps'),
    undesirable_weight_step: classWeight('wrong steps'),
    auto_balance: flag(false).describe(
      'Raise the weight of the class that weighs too little, by the labels of the training data and for answers and steps ' +
        'apart, until right ones weigh 1 to 4/3 times as much as wrong ones (equation 8 of KTO).',
    ),
    z0: choice('batch_kl', 'zero').describe(
      'Reference point of answers: the mean log-ratio of answers to other problems, or 0.',
    ),
    z0_step: choice('step_kl', 'share', 'zero', 'outcome').describe(
      'Reference point of steps: the mean log-ratio of the steps of answers to other problems, that of answers divided by ' +
        'their steps, 0, or that of answers itself (nearly always too large).',
    ),
    after_first_error: choice('keep', 'mask', 'negative').describe(
      'Steps after the first wrong one: as they are labelled, without a label, or wrong.',
    ),
    answer_step: choice('keep', 'exclude').describe(
      'Whether the last step, which gives the answer, counts as a step.',
    ),
  },
  kind: judgedAnswers,
  objective: stepKtoObjective,
  comparesProblems: ({ z0, z0_step }) => z0 === 'batch_kl' || z0_step === 'step_kl',
});
