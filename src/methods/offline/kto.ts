// `method: kto`: how it is configured.
import { z } from 'zod';
import { frame, loneBatch, offlineSchema, offlineSection } from './config.js';
import { beta, classWeight } from './fields.js';

const kto = offlineSection(
  { learning_rate: 1e-5, batch_size: 64 },
  {
    beta: beta(),
    desirable_weight: classWeight('desirable answers'),
    undesirable_weight: classWeight('undesirable answers'),
    loss_type: z
      .enum(['kto', 'apo_zero_unpaired'])
      .default('kto')
      .describe(
        '`apo_zero_unpaired` takes 0 as the reference point, in place of mismatched prompts and answers.',
      ),
  },
).describe('Kahneman-Tversky optimisation of answers labelled desirable or not (`method: kto`).');

const schema = z.strictObject({
  method: z.literal('kto').describe('The training method.'),
  ...frame,
  kto,
});

export type KtoRunConfig = z.output<typeof schema>;

export const ktoConfig = offlineSchema(
  schema,
  ({ kto }) => ({ name: 'kto', settings: kto }),
  ({ kto }) => (kto.loss_type === 'kto' ? loneBatch('kto', kto) : []),
);
