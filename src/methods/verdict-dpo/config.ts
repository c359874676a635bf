// `method: verdict_dpo`: how it is configured.
import { z } from 'zod';
import { data, prompt } from '../../config/data.js';
import { evaluation, verdictEvaluation } from '../../config/eval-sections.js';
import { nonNegative, positiveNumber, section } from '../../config/fields.js';
import { lora, model } from '../../config/model.js';
import { run } from '../../config/run.js';
import { conflict, type MethodSchema } from '../../config/schema.js';
import { optimization } from '../../config/training.js';
import { verdictSettings } from '../../scoring/settings.js';

const verdictDpo = section({
  ...optimization({ learning_rate: 5e-6 }),
  beta: positiveNumber(0.1).describe(
    'Strength of the regularisation towards the model that the run began with.',
  ),
  label_smoothing: nonNegative()
    .lt(0.5)
    .default(0)
    .describe('Share of labels assumed to be wrong, below 0.5.'),
}).describe('DPO on the right and the wrong verdict after each step (`method: verdict_dpo`).');

const schema = z.strictObject({
  method: z.literal('verdict_dpo').describe('The training method.'),
  model,
  lora,
  data,
  prompt,
  verdict_dpo: verdictDpo,
  run,
  eval: evaluation,
  eval_verdicts: verdictEvaluation,
});

export type VerdictDpoRunConfig = z.output<typeof schema>;

export const verdictDpoConfig: MethodSchema<VerdictDpoRunConfig, z.input<typeof schema>> = {
  schema,
  sections: ({ verdict_dpo }) => ({ verdict_dpo }),
  *conflicts({ model, prompt }) {
    if (typeof model.base !== 'string')
      yield conflict(
        'model.base',
        'method "verdict_dpo" stays near the model that it begins with, which must be a trained one: name a base',
      );
    if (prompt.response_format === 'rationale_then_verdict')
      yield conflict(
        'prompt.response_format',
        'method "verdict_dpo" compares the two words alone; set prompt.response_format: verdict',
      );
  },
  judge: verdictSettings,
};
