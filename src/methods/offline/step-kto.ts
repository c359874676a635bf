// `method: step_kto`: how it is configured.
import { z } from 'zod';
import { positiveNumber } from '../../config/fields.js';
import { frame, loneBatch, offlineSchema, offlineSection } from './config.js';
import { beta, classWeight } from './fields.js';

const stepKto = offlineSection(
  { learning_rate: 1e-5, batch_size: 64, iterations: 3 },
  {
    beta: beta(),
    beta_step: z
      .union([z.literal('same'), positiveNumber()])
      .default('same')
      .meta({ expects: '"same" or a positive number' })
      .describe(
        'The same for steps. Their log-ratios are smaller by about the number of steps; `beta` times that number makes up for it.',
      ),
    outcome_weight: z.number().min(0).default(1).describe('Weight of the loss of answers.'),
    step_weight: z
      .number()
      .min(0)
      .default(1)
      .describe(
        'Weight of the loss of steps. 0 is KTO; under `mean`, about the number of steps makes both pull alike.',
      ),
    reduction: z
      .enum(['mean', 'sum', 'global'])
      .default('mean')
      .describe(
        'Losses of the steps of an answer: their mean, their sum, or equal weights for all steps of the batch.',
      ),
    desirable_weight: classWeight('right answers'),
    undesirable_weight: classWeight('wrong answers'),
    desirable_weight_step: classWeight('right steps'),
    undesirable_weight_step: classWeight('wrong steps'),
    auto_balance: z
      .boolean()
      .default(false)
      .describe(
        'Raise the weight of the class that weighs too little, by the labels of the training data and for answers and steps ' +
          'apart, until right ones weigh 1 to 4/3 times as much as wrong ones (equation 8 of KTO).',
      ),
    z0: z
      .enum(['batch_kl', 'zero'])
      .default('batch_kl')
      .describe('Reference point of answers: the mean log-ratio of answers to other problems, or 0.'),
    z0_step: z
      .enum(['step_kl', 'share', 'zero', 'outcome'])
      .default('step_kl')
      .describe(
        'Reference point of steps: the mean log-ratio of the steps of answers to other problems, that of answers divided by ' +
          'their steps, 0, or that of answers itself (nearly always too large).',
      ),
    after_first_error: z
      .enum(['keep', 'mask', 'negative'])
      .default('keep')
      .describe('Steps after the first wrong one: as they are labelled, without a label, or wrong.'),
    answer_step: z
      .enum(['keep', 'exclude'])
      .default('keep')
      .describe('Whether the last step, which gives the answer, counts as a step.'),
  },
).describe('Step-KTO: answers by their outcome, steps by their judgement (`method: step_kto`).');

const schema = z.strictObject({
  method: z.literal('step_kto').describe('The training method.'),
  ...frame,
  step_kto: stepKto,
});

export type StepKtoRunConfig = z.output<typeof schema>;

export const stepKtoConfig = offlineSchema(
  schema,
  ({ step_kto }) => ({ name: 'step_kto', settings: step_kto }),
  ({ step_kto }) =>
    step_kto.z0 === 'batch_kl' || step_kto.z0_step === 'step_kl' ? loneBatch('step_kto', step_kto) : [],
);
