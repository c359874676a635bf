/** A request to /v1/completions: prompts as texts or token ids. */
import { type GenerationRequest, generationRequest, MAX_ALTERNATIVES } from './generation-request.js';
import type { ServeLimits } from './limits.js';
import { isText, isWhole, type RequestFields } from './request-fields.js';

export interface CompletionRequest extends GenerationRequest {
  readonly prompts: readonly (string | readonly number[])[];
  /** 0: no new token, only the results for the prompt. Undefined: as many as there is room for, up to `DEFAULT_TOKENS`. */
  readonly maxTokens: number | undefined;
  /** Log-probabilities of each token with this many alternatives; undefined: none. */
  readonly logprobs: number | undefined;
  /** The text begins with the prompt. */
  readonly echo: boolean;
  /** Log-probabilities of the tokens of the prompt, in vLLM's format, with this many alternatives; undefined: none. */
  readonly promptLogprobs: number | undefined;
}

/** Default of OpenAI and vLLM. */
export const DEFAULT_TOKENS = 16;

export function completionRequest(
  fields: RequestFields,
  { samples }: Pick<ServeLimits, 'samples'>,
): CompletionRequest {
  const common = generationRequest(fields, samples);
  const prompts = givenPrompts(fields);
  if (prompts.length * common.n > samples)
    fields.fail('prompt', `at most ${samples} samples (prompts × n)`, `${prompts.length * common.n}`);
  const echo = fields.flag('echo') ?? false;
  const logprobs = fields.integer('logprobs', 0, MAX_ALTERNATIVES);
  const promptLogprobs = fields.integer('prompt_logprobs', 0, MAX_ALTERNATIVES);
  const maxTokens = fields.integer('max_tokens', 0);
  if (maxTokens === 0 && !echo && promptLogprobs === undefined)
    fields.fail('max_tokens', 'at least 1, or echo or prompt_logprobs beside 0');
  if (common.stream && (promptLogprobs !== undefined || (echo && logprobs !== undefined)))
    fields.fail('stream', 'false where log-probabilities of the prompt are asked for');
  fields.neutral('suffix', '');
  fields.neutral('add_special_tokens', true);
  fields.end();
  return { ...common, prompts, maxTokens, logprobs, echo, promptLogprobs };
}

function givenPrompts(fields: RequestFields): readonly (string | readonly number[])[] {
  const value = fields.value('prompt');
  if (isText(value)) return [value];
  if (Array.isArray(value) && value.length > 0) {
    if (value.every(isWhole)) return [value];
    if (
      value.every((item) => isText(item) || (Array.isArray(item) && item.length > 0 && item.every(isWhole)))
    )
      return value;
  }
  return fields.fail('prompt', 'a text, a list of token ids, or a list of either');
}
