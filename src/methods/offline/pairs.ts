// Methods of pairs beside `dpo`: how they are configured.
import { z } from 'zod';
import { positiveNumber } from '../../config/fields.js';
import { frame, offlineSchema, offlineSection } from './config.js';
import { beta, labelSmoothing } from './fields.js';

const stepDpo = offlineSection({ learning_rate: 1e-5, batch_size: 32 }, { beta: beta(0.4) }).describe(
  'DPO of single steps: a right and a wrong one after the same beginning (`method: step_dpo`).',
);

const fullStepDpo = offlineSection(
  { learning_rate: 1e-5, batch_size: 32 },
  {
    beta: beta(),
    temperature: positiveNumber()
      .default(1)
      .describe(
        'Divides the scores of steps before their softmax: larger makes the steps more equal, and the method DPO.',
      ),
  },
).describe(
  'DPO of whole answers whose steps are weighted by a reward model’s scores, those of the records (`method: full_step_dpo`).',
);

const simpo = offlineSection(
  { learning_rate: 1e-5, batch_size: 32 },
  {
    beta: positiveNumber().default(2).describe('Scale of the difference of mean log-probs.'),
    simpo_gamma: z
      .number()
      .min(0)
      .default(0.5)
      .describe('Margin by which the chosen answer has to lead, after `beta`.'),
    label_smoothing: labelSmoothing(),
  },
).describe('Preference optimisation of mean log-probs without a reference (`method: simpo`).');

const orpo = offlineSection(
  { learning_rate: 1e-5, batch_size: 32 },
  {
    beta: positiveNumber()
      .default(0.1)
      .describe('Weight of the odds ratio beside the likelihood of the chosen answer.'),
  },
).describe('Likelihood of chosen answers and odds of both, without a reference (`method: orpo`).');

const schemas = {
  step_dpo: z.strictObject({
    method: z.literal('step_dpo').describe('The training method.'),
    ...frame,
    step_dpo: stepDpo,
  }),
  full_step_dpo: z.strictObject({
    method: z.literal('full_step_dpo').describe('The training method.'),
    ...frame,
    full_step_dpo: fullStepDpo,
  }),
  simpo: z.strictObject({ method: z.literal('simpo').describe('The training method.'), ...frame, simpo }),
  orpo: z.strictObject({ method: z.literal('orpo').describe('The training method.'), ...frame, orpo }),
};

export type StepDpoRunConfig = z.output<typeof schemas.step_dpo>;
export type FullStepDpoRunConfig = z.output<typeof schemas.full_step_dpo>;
export type SimpoRunConfig = z.output<typeof schemas.simpo>;
export type OrpoRunConfig = z.output<typeof schemas.orpo>;

export const stepDpoConfig = offlineSchema(schemas.step_dpo, (config) => ({
  name: 'step_dpo',
  settings: config.step_dpo,
}));
export const fullStepDpoConfig = offlineSchema(schemas.full_step_dpo, (config) => ({
  name: 'full_step_dpo',
  settings: config.full_step_dpo,
}));
export const simpoConfig = offlineSchema(schemas.simpo, ({ simpo }) => ({
  name: 'simpo',
  settings: simpo,
}));
export const orpoConfig = offlineSchema(schemas.orpo, ({ orpo }) => ({
  name: 'orpo',
  settings: orpo,
}));
