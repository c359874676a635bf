// `method: dpo`: how it is configured.
import { z } from 'zod';
import { frame, offlineSchema, offlineSection } from './config.js';
import { beta, labelSmoothing } from './fields.js';

const dpo = offlineSection(
  { learning_rate: 1e-5, batch_size: 32 },
  {
    beta: beta(),
    loss_type: z
      .enum(['sigmoid', 'ipo', 'hinge'])
      .default('sigmoid')
      .describe(
        'The loss of a pair’s margin: −log σ; the squared distance from 1/(2 beta), of means per token; or a hinge at 1.',
      ),
    label_smoothing: labelSmoothing(),
  },
).describe('Direct preference optimisation of pairs of answers (`method: dpo`).');

const schema = z.strictObject({
  method: z.literal('dpo').describe('The training method.'),
  ...frame,
  dpo,
});

export type DpoRunConfig = z.output<typeof schema>;

export const dpoConfig = offlineSchema(schema, ({ dpo }) => ({ name: 'dpo', settings: dpo }));
