// Methods of single answers beside `kto`: how they are configured.
import { z } from 'zod';
import { frame, offlineSchema, offlineSection } from './config.js';
import { beta } from './fields.js';

const solutionSft = offlineSection({ learning_rate: 1e-4, batch_size: 32 }, {}).describe(
  'Supervised fine-tuning on whole answers; the prompt is not learned (`method: solution_sft`).',
);

const rft = offlineSection({ learning_rate: 1e-4, batch_size: 32 }, {}).describe(
  'The same on right answers alone, as a model’s own samples are filtered: rejection-sampling fine-tuning (`method: rft`).',
);

const implicitPrm = offlineSection({ learning_rate: 1e-5, batch_size: 64 }, { beta: beta(0.05) }).describe(
  'PRIME’s implicit process reward model: from outcomes alone, log-ratios that are rewards of every token (`method: implicit_prm`).',
);

const schemas = {
  solution_sft: z.strictObject({
    method: z.literal('solution_sft').describe('The training method.'),
    ...frame,
    solution_sft: solutionSft,
  }),
  rft: z.strictObject({ method: z.literal('rft').describe('The training method.'), ...frame, rft }),
  implicit_prm: z.strictObject({
    method: z.literal('implicit_prm').describe('The training method.'),
    ...frame,
    implicit_prm: implicitPrm,
  }),
};

export type SolutionSftRunConfig = z.output<typeof schemas.solution_sft>;
export type RftRunConfig = z.output<typeof schemas.rft>;
export type ImplicitPrmRunConfig = z.output<typeof schemas.implicit_prm>;

export const solutionSftConfig = offlineSchema(schemas.solution_sft, (config) => ({
  name: 'solution_sft',
  settings: config.solution_sft,
}));
export const rftConfig = offlineSchema(schemas.rft, ({ rft }) => ({
  name: 'rft',
  settings: rft,
}));
export const implicitPrmConfig = offlineSchema(schemas.implicit_prm, (config) => ({
  name: 'implicit_prm',
  settings: config.implicit_prm,
}));
