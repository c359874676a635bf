/** The common fields of /v1/completions and /v1/chat/completions: sampling and output. */
import type { SamplingOptions } from '../generate/options.js';
import { defined } from '../native/defined.js';
import { isText, isWhole, type RequestFields } from './request-fields.js';

/** Texts and tokens that may end a sample. */
const MAX_STOPS = 64;

/** Tokens with a bias. */
const MAX_BIASES = 1024;

const UNCONSTRAINED =
  'this server gives the samples and log-probabilities of models in training and evaluation, and holds no answer to a format; leave it out and check the text, or ask a server for applications, such as vLLM';

/** Max alternatives of a token. */
export const MAX_ALTERNATIVES = 20;

export interface GenerationRequest {
  /** Undefined: the server's own. */
  readonly model: string | undefined;
  readonly n: number;
  readonly sampling: SamplingOptions;
  readonly stream: boolean;
  /** Add a last event with the token counts to a stream. */
  readonly includeUsage: boolean;
  /** Give every event of a stream the token counts of its choice so far, as vLLM does. */
  readonly continuousUsage: boolean;
  /** Whether token ids are returned with the text. */
  readonly tokenIds: boolean;
  /** Tokens in log-probabilities are written `token_id:17`. */
  readonly tokensAsIds: boolean;
}

export function generationRequest(fields: RequestFields, maxSamples: number): GenerationRequest {
  const stream = fields.flag('stream') ?? false;
  const options = fields.section('stream_options');
  if (options && !stream) fields.fail('stream_options', 'it only beside stream: true');
  const includeUsage = options?.flag('include_usage') ?? false;
  // vLLM ignores it without `include_usage`.
  const continuousUsage = (options?.flag('continuous_usage_stats') ?? false) && includeUsage;
  options?.neutral('include_obfuscation', false);
  options?.end();
  const n = fields.integer('n', 1, maxSamples) ?? 1;
  refuseOthers(fields, n);
  return {
    model: fields.text('model'),
    n,
    sampling: requestedSampling(fields),
    stream,
    includeUsage,
    continuousUsage,
    tokenIds: fields.flag('return_token_ids') ?? false,
    tokensAsIds: fields.flag('return_tokens_as_token_ids') ?? false,
  };
}

function requestedSampling(fields: RequestFields): SamplingOptions {
  const topK = fields.integer('top_k', -1);
  const given = isText(fields.value('stop'))
    ? [fields.requiredText('stop')]
    : (fields.list('stop', isText, 'texts', MAX_STOPS) ?? []);
  // Clients write "" for none.
  const texts = given.filter((text) => text !== '');
  const tokens = fields.list('stop_token_ids', isWhole, 'token ids', MAX_STOPS) ?? [];
  return defined({
    minTokens: fields.integer('min_tokens', 0),
    temperature: fields.number('temperature', 0, 1e6),
    topK: topK === -1 ? 0 : topK,
    topP: fields.number('top_p', 0, 1),
    minP: fields.number('min_p', 0, 1),
    presencePenalty: fields.number('presence_penalty', -2, 2),
    frequencyPenalty: fields.number('frequency_penalty', -2, 2),
    repetitionPenalty: fields.number('repetition_penalty', 0, Number.MAX_VALUE),
    logitBias: logitBias(fields),
    stop: [...texts, ...tokens],
    ignoreEos: fields.flag('ignore_eos'),
    seed: requestedSeed(fields) ?? Math.floor(Math.random() * 2 ** 32),
    iteration: fields.integer('iteration', 0, 2 ** 32 - 1),
    promptIds: fields.list('prompt_ids', isWhole, 'whole numbers', Number.MAX_SAFE_INTEGER),
  });
}

/** Any whole number, as OpenAI has it; −1 asks for none, as in vLLM. */
function requestedSeed(fields: RequestFields): number | undefined {
  const value = fields.value('seed');
  if (value === undefined || value === -1) return undefined;
  if (typeof value !== 'bigint' && !Number.isInteger(value)) fields.fail('seed', 'a whole number');
  // Seeds here are from 0 to 2^53 − 1; a negative one counts from the end.
  return Number(BigInt.asUintN(53, BigInt(value as number | bigint)));
}

function logitBias(fields: RequestFields): Readonly<Record<number, number>> | undefined {
  const value = fields.value('logit_bias');
  if (value === undefined) return undefined;
  const entries =
    typeof value === 'object' && !Array.isArray(value) ? Object.entries(value as object) : undefined;
  const valid = entries?.every(
    ([id, bias]) => /^\d{1,9}$/.test(id) && typeof bias === 'number' && Math.abs(bias) <= 100,
  );
  if (!valid) fields.fail('logit_bias', 'numbers from -100 to 100 by token id');
  // Biases are added at every token of every sample, so their number is limited.
  if ((entries?.length ?? 0) > MAX_BIASES) fields.fail('logit_bias', `at most ${MAX_BIASES} tokens`);
  return Object.fromEntries(entries ?? []);
}

/** Refuses fields of OpenAI and vLLM that are not implemented; accepts those that do not change the response. */
function refuseOthers(fields: RequestFields, n: number): void {
  fields.neutral('length_penalty', 1);
  fields.neutral('use_beam_search', false);
  fields.neutral('best_of', 1, n);
  fields.neutral('include_stop_str_in_output', false);
  fields.neutral('skip_special_tokens', true);
  fields.neutral('truncate_prompt_tokens');
  const isFree = fields.section('response_format')?.text('type') === 'text';
  for (const name of isFree ? ['structured_outputs'] : ['response_format', 'structured_outputs'])
    if (fields.has(name)) fields.refuse(name, UNCONSTRAINED);
  fields.ignore('user', 'metadata', 'store', 'service_tier', 'safety_identifier', 'prompt_cache_key');
  fields.ignore('spaces_between_special_tokens');
}
