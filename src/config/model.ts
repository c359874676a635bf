// Config sections `model` and `lora`: the trained model.
import { z } from 'zod';
import type { NewModel, NewModelSchema } from '../architectures/architecture.js';
import { ARCHITECTURES } from '../architectures/table.js';
import { QUANTIZE } from '../models/quantize.js';
import {
  choice,
  count,
  flag,
  fraction,
  nonNegative,
  optionalText,
  patterned,
  positiveNumber,
  section,
  text,
} from './fields.js';

/** Shape of a newly initialised model, with the keys of Hugging Face's config.json, which differ by architecture. */
const init: z.ZodType<NewModel, Readonly<Record<string, unknown>>> = z
  .discriminatedUnion(
    'model_type',
    ARCHITECTURES.map((row) => row.init) as [NewModelSchema, ...NewModelSchema[]],
    // The first architecture has a default for model_type.
    { unionFallback: true },
  )
  .describe('Start from random weights of this shape.');

export const model = section({
  base: z
    .union([text(), z.strictObject({ init }).describe('Start from random weights.')])
    .default('embedded')
    .meta({ expects: '"embedded", a model directory, a hub id, or init: with a shape' })
    .describe(
      'The model to start from: `embedded` (the small arithmetic model of the package), a Hugging Face model ' +
        'directory, a run that trained every weight, a model of the hub as `owner/name` or `owner/name@revision`, or `init:` ' +
        'with the shape of a newly initialised model.',
    ),
  adapter: optionalText().describe(
    'A LoRA adapter on this base to go on from: a PEFT directory, or a finished run with an adapter. Every network of the run begins with it, ' +
      'the reference among them.',
  ),
  adapter_mode: z
    .enum(['continue', 'stack'])
    .optional()
    .describe(
      '`continue` (the default): train `adapter` further; its rank, alpha and modules take the place of the defaults of `lora`, of which only ' +
        '`lora_dropout` may differ. `stack`: merge it into the weights in memory, train a new adapter of `lora` on top, and save both as one ' +
        'adapter on the base. Only with `adapter`.',
    ),
  tokenizer: text('base').describe(
    'The tokenizer: `base` (the one beside the base model), `bytes` (one token per byte; for `init`), a directory ' +
      'with tokenizer.json, searched for in the current directory and then beside `data.train` and upwards, or that ' +
      'of a model of the hub.',
  ),
  dtype: choice('f32', 'bf16').describe(
    'Dtype of the frozen weights and activations. bf16 halves the memory and is faster if the processor has bf16 ' +
      'instructions; trained parameters are always f32.',
  ),
  quantize: z
    .enum(QUANTIZE)
    .default('keep')
    .describe(
      'Which weights of the frozen base stay in 4 or 8 bits under an adapter: `keep` those that are stored so ' +
        '(NF4 of bitsandbytes, fp8 and int8 with scales, Q4_0, Q4_1, Q4_K, Q6_K and Q8_0 of GGUF), embedding and head too; `nf4` makes ' +
        'all linear ones NF4 with double quantisation, as QLoRA does, `int8` int8 by output, `nf4_head` and `int8_head` also ' +
        'embedding and head int8, for faster samples of small models; `none` keeps none. Norms stay as they ' +
        'are. With `lora: none` every weight is trained and none is quantised.',
    ),
  router_aux_loss_coef: nonNegative(0).describe(
    'Weight of the loss that spreads tokens over the experts of a model (`qwen3_moe`), in every update that trains through it. ' +
      'It is the `router_aux_loss_coef` of transformers, whose default is 0.001. 0: none.',
  ),
}).describe('The model that is trained.');

const adapter = z.strictObject({
  r: count(16).describe('Rank of the adapters; a higher rank can learn more and costs memory and time.'),
  lora_alpha: positiveNumber(32).describe(
    'The adapters are scaled by lora_alpha / r (by lora_alpha / √r with use_rslora).',
  ),
  lora_dropout: fraction(0.05).describe(
    'Dropout on the input of the adapters, but where log-probs are compared, as in TRL; 0 is faster.',
  ),
  target_modules: z
    .union([z.literal('all-linear'), z.array(text()).min(1).meta({ expects: 'a list of module names' })])
    .default('all-linear')
    .describe(
      'Linear layers that get an adapter: `all-linear` (all except the head) or a list such as [q_proj, v_proj].',
    ),
  use_rslora: flag(false).describe('Scale by 1 / √r, which keeps high ranks trainable.'),
  rank_pattern: patterned(count()).describe(
    'Rank by the end of a module’s name, or a regular expression of it, if different from `r`; one that fits no module is refused.',
  ),
  alpha_pattern: patterned(positiveNumber()).describe('Alpha by the same, if different from `lora_alpha`.'),
  modules_to_save: z
    .array(text())
    .default([])
    .describe('Modules trained in full and saved with the adapter, for example [lm_head].'),
});

export const lora = z
  .union([z.literal('none'), adapter])
  .default('none')
  .meta({ expects: '"none" or a section of LoRA settings' })
  .describe(
    'LoRA adapters on a frozen base, with PEFT’s names and semantics. `none` trains every parameter, which needs memory ' +
      'for gradients and optimizer state of the whole model and a learning rate about ten times lower.',
  );
