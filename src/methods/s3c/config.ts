// `method: s3c`: how it is configured.
import { z } from 'zod';
import { corrections, servedTemperatures, unreadCorrections } from '../../config/corrections.js';
import { data } from '../../config/data.js';
import { evaluation } from '../../config/eval-sections.js';
import {
  choice,
  count,
  countOrOff,
  flag,
  nonNegative,
  optionalText,
  samplingTemperature,
  section,
  share,
  text,
} from '../../config/fields.js';
import { lora, model } from '../../config/model.js';
import { run } from '../../config/run.js';
import { conflict, type MethodSchema, withoutEffect } from '../../config/schema.js';
import { optimization } from '../../config/training.js';
import { wholeSolutions } from '../../config/whole-solutions.js';
import { correctionWriter, DEFAULT_FORMAT } from '../../data/corrections/layout.js';
import type { CorrectionReading } from '../../data/corrections/standing.js';
import { VARIANTS } from '../../data/corrections/variants.js';
import { reasonOf } from '../../files/data-error.js';
import { RunError } from '../../run/error.js';

const format = section({
  template: optionalText().describe(
    'The text around a problem, with the placeholder {problem}, as in `steptrain eval solve`. Default: with a chat template the ' +
      'problem and the wish for steps and a boxed answer, else `Question: {problem}`, a new line and `Answer:`.',
  ),
  chat: z
    .union([z.literal('auto'), z.boolean()])
    .default('auto')
    .describe('Ask as the user of a chat; `auto` does where the tokenizer has a chat template.'),
  separator: text(DEFAULT_FORMAT.separator).describe('Ends every step.'),
  reflection: text(DEFAULT_FORMAT.reflection).describe(
    'How a reflection is written, with the placeholder {text}; its words mark a correction.',
  ),
  improvement: text(DEFAULT_FORMAT.improvement).describe(
    'How the step that replaces a wrong one stands in the text, with the placeholder {text}.',
  ),
}).describe('The text of problems and solutions.');

const s3c = section({
  ...optimization({
    learning_rate: 2e-5,
    num_train_epochs: 3,
    tokens_per_step: 32768,
    micro_batch_tokens: 4096,
  }),
  variant: z
    .enum(VARIANTS)
    .default('step')
    .describe(
      'The use of a sample: all of it (`step`), nothing (`clean`), the right solution that it holds (`oversample`), one without its reflection ' +
        '(`no_reflection`), one whose wrong step is the right one (`sham`), or, for all samples at one step of one solution, the ' +
        'wrong step of the first (`low_diversity`). All but `step` are controls.',
    ),
  mask: z
    .enum(['none', 'wrong_step', 'wrong_step_and_prompt'])
    .default('wrong_step')
    .describe(
      'The parts of a sample, beside the problem, that are not learned: none, wrong steps, or also the right steps before the first wrong one.',
    ),
  wrong_step_weight: share(0).describe(
    'Weight of a masked wrong step in the loss: 0 masks it, 1 is `mask: none`.',
  ),
  mask_separator: flag(true).describe('Whether the separator that ends a wrong step is masked with it.'),
  header: optionalText().describe(
    'Regular expression for what announces a step, such as `Step \\d+: ?`; it is learned also before a wrong step.',
  ),
  normalise: choice('token', 'example').describe(
    'Mean of the loss over the learned tokens of a batch, or within each sample and then over samples.',
  ),
  clean_ratio: z
    .union([z.literal('as_is'), nonNegative()])
    .default('as_is')
    .describe(
      'Solutions without a wrong step for each sample with one: as many as the data has, or this many, chosen or repeated.',
    ),
}).describe('Masked supervised fine-tuning on solutions that correct themselves (`method: s3c`).');

const evaluationSampling = section({
  num_samples: countOrOff(0).describe(
    'Samples of each held-out problem for votes, beside the greedy solution; 0 for none.',
  ),
  temperature: samplingTemperature(0.7).describe('Temperature of these samples.'),
  max_new_tokens: count(512).describe('Max tokens of a solution.'),
}).describe('Solutions of held-out problems for the evaluation.');

const schema = z.strictObject({
  method: z.literal('s3c').describe('The training method.'),
  model,
  lora,
  data,
  format,
  corrections,
  s3c,
  run,
  eval: evaluation,
  eval_sampling: evaluationSampling,
});

export type S3cRunConfig = z.output<typeof schema>;

/**
 * The same configuration, for what only this method does.
 *
 * @param what whose it is, such as `runs/a is a run`
 * @throws RunError for one of another method
 */
export function requireS3c(config: { readonly method: string }, what: string): S3cRunConfig {
  if (config.method === 's3c') return config as S3cRunConfig;
  throw new RunError(`${what} of method ${config.method}; name one of method s3c`);
}

/** The way to read a model's solutions: which steps stand, and which were taken back. */
export function correctionReading({
  format,
  corrections,
}: Pick<S3cRunConfig, 'format' | 'corrections'>): Required<CorrectionReading> {
  const isWhole = corrections !== 'none' && corrections.shape === 'instance';
  return { format, scope: isWhole ? 'solution' : 'step' };
}

export const s3cConfig: MethodSchema<S3cRunConfig, z.input<typeof schema>> = {
  schema,
  sections: ({ s3c }) => ({ s3c }),
  words: ({ format, corrections }) => ({
    template: format.template,
    ...(format.chat === 'auto' ? {} : { chat: format.chat }),
    corrections: correctionReading({ format, corrections }),
  }),
  *unread({ corrections, s3c: own, eval_sampling: sampled }) {
    if (corrections !== 'none') yield* unreadCorrections(corrections);
    if (own.mask === 'none')
      yield* withoutEffect('s3c', own, {
        keys: ['wrong_step_weight', 'mask_separator', 'header'],
        why: 's3c.mask is none, so that wrong steps are learned as they are',
        defaults: s3c.parse({}),
      });
    if (sampled.num_samples === 1)
      yield conflict(
        'eval_sampling.num_samples',
        'eval_sampling.num_samples has no effect: one sample beside the greedy solution gives no vote; set it to 0, or to 2 or more',
      );
    if (sampled.num_samples === 0)
      yield* withoutEffect('eval_sampling', sampled, {
        keys: ['temperature'],
        why: 'eval_sampling.num_samples is 0',
        defaults: evaluationSampling.parse({}),
      });
  },
  *conflicts({ model, data, format, corrections, s3c }) {
    yield* wholeSolutions('s3c', data);
    if (corrections !== 'none' && typeof model.base !== 'string')
      yield conflict(
        'corrections',
        'corrections samples wrong steps from the base, and model.base.init starts from random weights; name a trained base',
      );
    if (corrections !== 'none' && data.source === 'arithmetic')
      yield conflict(
        'corrections',
        'corrections needs solutions that end with an answer, and data.source "arithmetic" has none; use "word_problems"',
      );
    if (corrections !== 'none') yield* servedTemperatures(corrections);
    if (corrections !== 'none' && corrections.validate.by === 'reference')
      for (const [key, usual] of [
        ['shape', 'step'],
        ['sampler', 'steps'],
      ] as const)
        if (corrections[key] !== usual)
          yield conflict(
            `corrections.${key}`,
            `corrections.${key} "${corrections[key]}" needs continuations, and corrections.validate.by "reference" draws none; ` +
              `set it to ${usual}, or validate.by to continuations`,
          );
    if (s3c.variant === 'clean' && s3c.clean_ratio !== 'as_is')
      yield conflict(
        's3c.clean_ratio',
        `s3c.clean_ratio ${s3c.clean_ratio} counts solutions by the samples with a wrong step, of which s3c.variant "clean" trains none; set it to as_is`,
      );
    if (corrections !== 'none' && corrections.shape === 'post_hoc') {
      // The problem of such a sample contains the solution that it corrects, so none of its own steps is a wrong one.
      for (const [key, usual] of [
        ['variant', 'step'],
        ['clean_ratio', 'as_is'],
      ] as const)
        if (s3c[key] !== usual)
          yield conflict(
            `s3c.${key}`,
            `s3c.${key} tells samples by the wrong step in them, and corrections.shape "post_hoc" has none; set it to ${usual}`,
          );
    }
    try {
      correctionWriter(format);
    } catch (error) {
      yield conflict('format', reasonOf(error));
    }
  },
};
