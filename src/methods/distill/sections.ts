// Config sections of `method: distill`: the teacher, and how the student follows it.
import { z } from 'zod';
import {
  count,
  countOrUnlimited,
  nonNegative,
  optionalText,
  positiveNumber,
  section,
  share,
  text,
} from '../../config/fields.js';
import { updates } from '../../config/training.js';
import { QUANTIZE } from '../../models/quantize.js';

export const teacher = section({
  model: optionalText().describe(
    'The teacher in this process, by name: a run, an adapter, a directory, a hub id or a model of the package, with the student’s vocabulary. ' +
      'It compares all tokens at each place, in the dtype of `model.dtype`.',
  ),
  quantize: z
    .enum(QUANTIZE)
    .default('keep')
    .describe('Weights of `teacher.model` in 4 or 8 bits, as `model.quantize`.'),
  url: optionalText().describe(
    'In place of `teacher.model`: a steptrain serve or vLLM, without /v1, with the same tokenizer. It gives the log-prob of each sampled ' +
      'token, and all other tokens count as one. `STEPTRAIN_API_KEY` in the environment is its key.',
  ),
  served_model: text('base').describe('The teacher’s name at that server.'),
}).describe('The teacher, from which the student learns (`method: distill`).');

export const distill = section({
  ...updates({
    learning_rate: 1e-5,
    micro_batch_tokens: 1024,
    warmup_ratio: 0,
    lr_scheduler_type: 'linear',
  }),
  learning_rate: z
    .union([z.literal('auto'), positiveNumber()])
    .default('auto')
    .describe(
      'Peak learning rate of AdamW; `auto` is 1e-5 for LoRA and 1e-6 where every parameter is trained.',
    ),
  beta: share(1).describe(
    'The divergence: 1 is KL(student ‖ teacher), 0 is KL(teacher ‖ student), and between them the generalised Jensen–Shannon divergence. ' +
      'A server needs 1.',
  ),
  lmbda: share(1).describe(
    'Share of the batches that are solutions of the student; the others are the worked solutions of the data.',
  ),
  judge: optionalText().describe(
    'A scorer of steps by name, such as `oracle`, a run or `word-problems-judge`, whose p(right) weighs the tokens of each step of the student.',
  ),
  right_weight: nonNegative(1).describe(
    'With `judge`: the weight of a right step before which none is wrong.',
  ),
  wrong_weight: nonNegative(1).describe('The weight of the first wrong step.'),
  after_error_weight: nonNegative(0).describe(
    'The weight of what follows it, where teachers are unreliable.',
  ),
  num_train_epochs: positiveNumber(1).describe('Passes over the training problems.'),
  max_iterations: countOrUnlimited().describe('Max batches, whatever the epochs; -1 for no limit.'),
  batch_problems: count(32).describe('Problems of an optimizer step.'),
}).describe('On-policy distillation (`method: distill`).');
