// The settings that a sample depends on, apart from its problem and its number.
import { createHash } from 'node:crypto';
import type { Model, SequenceScore } from '../../api/model.js';
import { badOption } from '../../files/data-error.js';
import type { SamplingOptions } from '../../generate/options.js';
import type { SolvingPrompt, SolvingPromptOptions } from '../../generate/solving-prompt.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { JsonObject } from '../../weights/json.js';

const MAX_NEW_TOKENS = 1024;

/** Number of samples, and how they are drawn. */
export interface SolvingSamplingOptions
  extends Pick<
    SamplingOptions,
    'maxNewTokens' | 'temperature' | 'topK' | 'topP' | 'minP' | 'seed' | 'stop' | 'eosTokenIds'
  > {
  /** Samples of each problem. Default 1. */
  readonly n?: number | undefined;
}

export type Sampling = {
  readonly [K in Exclude<keyof SolvingSamplingOptions, 'n'>]-?: NonNullable<SolvingSamplingOptions[K]>;
};

/** The sampling, complete: at most 1,024 tokens; greedy for one sample, temperature 1 for more. */
export function samplingOf(
  options: SolvingSamplingOptions,
  { model, tokenizer, prompt }: { model: Model; tokenizer: Tokenizer; prompt: SolvingPrompt },
): Sampling {
  const { n = 1, temperature = n === 1 ? 0 : 1 } = options;
  if (temperature === 0 && n > 1)
    throw badOption(`at temperature 0 all ${n} samples of a problem are the same; ask for one, or warmer`);
  return {
    maxNewTokens: options.maxNewTokens ?? MAX_NEW_TOKENS,
    temperature,
    topK: options.topK ?? 0,
    topP: options.topP ?? 1,
    minP: options.minP ?? 0,
    seed: options.seed ?? 0,
    stop: options.stop ?? prompt.stop,
    eosTokenIds: options.eosTokenIds ?? model.endTokens(tokenizer),
  };
}

export function promptSettings(
  { template, chat }: SolvingPrompt,
  { system, examples = [] }: SolvingPromptOptions,
): JsonObject {
  return { template, chat, system: system ?? null, examples: examples.length };
}

/** Max tokens that a fingerprint reads. */
const FINGERPRINT_TOKENS = 256;

/**
 * A fingerprint of a model: the log-probabilities of the first prompt. They change with the weights, the adapter, the
 * dtype, and the instruction set or GPU.
 */
export async function fingerprint(model: Model, prompt: readonly number[]): Promise<string> {
  const { maxPositions } = model.decoder.config;
  const [score] = await model.score([prompt.slice(0, Math.min(FINGERPRINT_TOKENS, maxPositions))]);
  const { logprobs, entropy } = score as SequenceScore;
  const bytes = ({ buffer, byteOffset, byteLength }: Float32Array) =>
    new Uint8Array(buffer, byteOffset, byteLength);
  return sha256(bytes(logprobs), bytes(entropy));
}

/** A fingerprint of a model, whatever it is to read. */
export const modelFingerprint = (model: Model, tokenizer: Tokenizer): Promise<string> =>
  fingerprint(model, tokenizer.encode('1 + 1 = 2\n12 apples'));

export function sha256(...parts: readonly (Uint8Array | string)[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest('hex').slice(0, 16);
}
