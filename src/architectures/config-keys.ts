/** Checks the keys of `config.json` that the typed configuration does not contain. */
import { show, showNames, WeightsError } from '../weights/error.js';
import { type Fields, isOff } from '../weights/fields.js';
import { isJsonObject, type JsonValue } from '../weights/json.js';

/** Names of transformers' own bookkeeping begin so: `_name_or_path`, `_commit_hash`, `_model_name_or_path`, … */
const PRIVATE = /^_/;

/** Keys without influence on the model, whatever their value. */
const HARMLESS: ReadonlySet<string> = new Set([
  // Bookkeeping
  'attn_implementation',
  'finetuning_task',
  'label2id',
  'name_or_path',
  'problem_type',
  'task_specific_params',
  'tokenizer_class',
  'transformers.js_config',
  'transformers_version',
  'unsloth_fixed',
  'unsloth_version',
  // The result of a forward, and its cache
  'cache_implementation',
  'chunk_size_feed_forward',
  'keys_to_ignore_at_inference',
  'output_attentions',
  'output_hidden_states',
  'return_dict',
  'use_cache',
  // Initialisation of new weights
  'initializer_range',
  // Losses of routers to experts, with which transformers trains; here a run's `model.router_aux_loss_coef` says
  'output_router_logits',
  'router_aux_loss_coef',
  // Token ids that only preparation of data uses
  'decoder_start_token_id',
  'mask_token_id',
  'sep_token_id',
  'unk_token_id',
  // Defaults of generation that older configurations carry
  'bad_words_ids',
  'begin_suppress_tokens',
  'diversity_penalty',
  'do_sample',
  'early_stopping',
  'encoder_no_repeat_ngram_size',
  'exponential_decay_length_penalty',
  'forced_bos_token_id',
  'forced_eos_token_id',
  'length_penalty',
  'max_length',
  'max_new_tokens',
  'min_length',
  'no_repeat_ngram_size',
  'num_beam_groups',
  'num_beams',
  'num_return_sequences',
  'output_scores',
  'prefix',
  'remove_invalid_values',
  'repetition_penalty',
  'return_dict_in_generate',
  'suppress_tokens',
  'temperature',
  'top_k',
  'top_p',
  'typical_p',
]);

/** Keys that would change the model, each with the one value besides "off" that does not, and a phrase for it. */
export type FixedKeys = Readonly<Record<string, readonly [JsonValue, string]>>;

const FIXED: FixedKeys = {
  attention_dropout: [0, '0 (dropout inside attention is not supported)'],
  attention_multiplier: [null, 'nothing (a factor on attention scores is not supported)'],
  auto_map: [null, 'nothing (code that comes with a model is never run)'],
  embedding_multiplier: [1, '1 (a factor on embeddings is not supported)'],
  final_logit_softcapping: [null, 'nothing (soft-capped logits are not supported)'],
  attn_logit_softcapping: [null, 'nothing (soft-capped attention is not supported)'],
  logit_scale: [1, '1 (a factor on logits is not supported)'],
  logits_scaling: [1, '1 (a factor on logits is not supported)'],
  residual_multiplier: [1, '1 (a factor on residuals is not supported)'],
  is_decoder: [true, 'a decoder'],
};

/** `quant_method` of weights whose tensors say all that is needed of them (`weights/quantized/`). */
const METHODS = ['bitsandbytes', 'compressed-tensors', 'fbgemm_fp8', 'fp8'];

const isReadable = (value: JsonValue) =>
  isJsonObject(value) && typeof value.quant_method === 'string' && METHODS.includes(value.quant_method);

/**
 * Refuses every key that nothing has read and that may change the maths. A key passes when it is known to be harmless,
 * when its value is the one that the implemented maths has, or when its value switches nothing on (null, false, 0, "",
 * [] or {}).
 *
 * @param own keys of the architecture, in addition to the common ones
 * @throws WeightsError that names the keys with their values
 */
export function refuseUnknownKeys(config: Fields, own: FixedKeys = {}): void {
  const all = { ...FIXED, ...own };
  const unknown: string[] = [];
  for (const [key, value] of config.unread()) {
    if (key === 'quantization_config' && isReadable(value)) continue;
    if (PRIVATE.test(key) || HARMLESS.has(key) || isOff(value)) continue;
    const fixed = Object.hasOwn(all, key) ? all[key] : undefined;
    if (key === 'quantization_config')
      config.fail(key, `a method whose weights are read (${METHODS.join(', ')}); use the unquantised model`);
    else if (fixed === undefined) unknown.push(`${key}: ${show(value)}`);
    else if (fixed[0] !== value) config.fail(key, fixed[1]);
  }
  if (unknown.length === 0) return;
  throw new WeightsError(
    `${config.where}: expected only known keys, found ${showNames(unknown)}; an unknown key may change what the model computes, remove it if it does not`,
  );
}
