// `method: pretrain`: how it is configured.
import { z } from 'zod';
import { data } from '../../config/data.js';
import { evaluation } from '../../config/eval-sections.js';
import { choice, flag, section } from '../../config/fields.js';
import { model } from '../../config/model.js';
import { run } from '../../config/run.js';
import { conflict, type MethodSchema } from '../../config/schema.js';
import { optimization } from '../../config/training.js';

const pretrain = section({
  ...optimization({ learning_rate: 1e-3, micro_batch_tokens: 8192, warmup_ratio: 0.02 }),
  loss_on: choice('answers', 'all').describe(
    'Tokens to learn: what follows the last `=` of each step (`answers`), or the whole step (`all`).',
  ),
  shuffle: flag(true).describe(
    'Off: every epoch takes the samples in the order of the data, as a curriculum needs it.',
  ),
}).describe(
  'Language modelling of whole solutions, from random weights or from a base (`method: pretrain`).',
);

const schema = z.strictObject({
  method: z.literal('pretrain').describe('The training method.'),
  model,
  data,
  pretrain,
  run,
  eval: evaluation,
});

export type PretrainRunConfig = z.output<typeof schema>;

export const pretrainConfig: MethodSchema<PretrainRunConfig, z.input<typeof schema>> = {
  schema,
  sections: ({ pretrain }) => ({ pretrain }),
  *conflicts({ data, pretrain }) {
    if (data.balance !== 'none')
      yield conflict(
        'data.balance',
        `data.balance ${JSON.stringify(data.balance)} balances verdicts, and method pretrain has none; remove it`,
      );
    if (pretrain.loss_on === 'answers' && data.source !== 'arithmetic')
      yield conflict(
        'pretrain.loss_on',
        `pretrain.loss_on "answers" needs data.source "arithmetic", whose steps end with their result; found ${JSON.stringify(data.source)}; set loss_on to all`,
      );
  },
};
