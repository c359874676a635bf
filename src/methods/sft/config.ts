// `method: sft`: how it is configured.
import { z } from 'zod';
import { data, prompt } from '../../config/data.js';
import { evaluation, verdictEvaluation } from '../../config/eval-sections.js';
import { nonNegative, section } from '../../config/fields.js';
import { lora, model } from '../../config/model.js';
import { run } from '../../config/run.js';
import { conflict, type MethodSchema } from '../../config/schema.js';
import { optimization } from '../../config/training.js';
import { CLASS_WEIGHTS } from '../../data/rare-class.js';
import { verdictSettings } from '../../scoring/settings.js';

export const sft = section({
  ...optimization({ learning_rate: 1e-4 }),
  num_train_epochs: nonNegative(3).describe(
    'Passes over the training rows. 0 for none: the run begins with a judge, that of `model.adapter`, and with method `sft` judges by it alone.',
  ),
  class_weight: z
    .enum(CLASS_WEIGHTS)
    .default('auto')
    .describe(
      '`balanced` weights both verdicts as if they were equally frequent: the recall of wrong steps rises, and the ' +
        'predicted probabilities no longer follow the data. `auto` does so where one class is below a quarter of the training steps.',
    ),
  label_smoothing: nonNegative()
    .lt(0.5)
    .default(0)
    .describe(
      'Share of each label that goes to the other word, so that no verdict becomes certain; below 0.5.',
    ),
}).describe('Supervised fine-tuning on the verdict after each step (`method: sft`).');

const schema = z.strictObject({
  method: z.literal('sft').describe('The training method.'),
  model,
  lora,
  data,
  prompt,
  sft,
  run,
  eval: evaluation,
  eval_verdicts: verdictEvaluation,
});

export type SftRunConfig = z.output<typeof schema>;

export const sftConfig: MethodSchema<SftRunConfig, z.input<typeof schema>> = {
  schema,
  sections: ({ sft }) => ({ sft }),
  *conflicts({ sft, model }) {
    if (sft.num_train_epochs === 0 && model.adapter === undefined)
      yield conflict(
        'sft.num_train_epochs',
        'sft.num_train_epochs 0 trains nothing with method "sft"; give a number above 0, or name the judge to measure as model.adapter',
      );
  },
  judge: verdictSettings,
};
