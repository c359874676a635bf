/** A running request as JSON. It does not contain keys and values, which are computed again. */
import { invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import type { SamplingOptions } from './options.js';
import type { SavedSample } from './rows/sample-row.js';

/** Options that are data: with the prompts and the weights they determine every token. */
export type SavedOptions = Omit<SamplingOptions, 'tokenizer' | 'logitBias'> & {
  /** Biases by token; null means −Infinity, which JSON does not have. */
  readonly logitBias?: Readonly<Record<number, number | null>>;
};

export interface GenerationSnapshot {
  readonly prompts: readonly (readonly number[])[];
  readonly options: SavedOptions;
  /** Samples by prompt and number. */
  readonly samples: readonly (readonly SavedSample[])[];
}

export function savedOptions({ tokenizer: _, logitBias, ...given }: SamplingOptions): SavedOptions {
  // The caller may change its lists while the request runs.
  const data = structuredClone(given);
  if (!logitBias) return data;
  const biases = Object.entries(logitBias).map(([token, bias]) => [
    token,
    bias === Number.NEGATIVE_INFINITY ? null : bias,
  ]);
  return { ...data, logitBias: Object.fromEntries(biases) };
}

export function restoredOptions({ logitBias, ...data }: SavedOptions): SamplingOptions {
  if (!logitBias) return data;
  const biases = Object.entries(logitBias).map(([token, bias]) => [token, bias ?? Number.NEGATIVE_INFINITY]);
  return { ...data, logitBias: Object.fromEntries(biases) };
}

/**
 * The samples of a snapshot, checked, since it may come from a file.
 *
 * @throws StepTrainError that names the place of an invalid value
 */
export function checkSnapshot(snapshot: GenerationSnapshot, vocabSize: number): void {
  if (typeof snapshot !== 'object' || snapshot === null) fail('snapshot', 'an object', snapshot);
  const { prompts, options, samples } = snapshot;
  if (!Array.isArray(prompts)) fail('prompts', 'a list', prompts);
  if (typeof options !== 'object' || options === null) fail('options', 'an object', options);
  const n = options.n ?? 1;
  if (!Array.isArray(samples) || samples.length !== prompts.length)
    fail('samples', `a list for each of the ${prompts.length} prompts`, samples);
  samples.forEach((list, prompt) => {
    const at = `samples[${prompt}]`;
    if (!Array.isArray(list) || list.length !== n) fail(at, `${n} samples, as options.n says`, list);
    (list as readonly SavedSample[]).forEach((sample, i) => {
      checkSample(sample, `${at}[${i}]`, vocabSize, prompts[prompt]?.length ?? 0);
    });
  });
}

const REASONS: readonly unknown[] = [undefined, 'stop', 'length', 'error'];

function checkSample(sample: SavedSample, at: string, vocabSize: number, promptLength: number): void {
  if (typeof sample !== 'object' || sample === null) fail(at, 'an object', sample);
  const { tokens, promptLogprobs, promptTopLogprobs, topLogprobs, finishReason } = sample;
  const isToken = (id: unknown) => Number.isInteger(id) && (id as number) >= 0 && (id as number) < vocabSize;
  if (!Array.isArray(tokens) || !tokens.every(isToken))
    fail(`${at}.tokens`, `token ids from 0 to ${vocabSize - 1}`, tokens);
  const numbers = (key: string, list: unknown, length: number) => {
    if (Array.isArray(list) && list.length === length && list.every((value) => typeof value === 'number'))
      return;
    fail(`${at}.${key}`, `${length} numbers`, list);
  };
  for (const key of ['logprobs', 'temperedLogprobs', 'samplingLogprobs'] as const)
    numbers(key, sample[key], tokens.length);
  if (promptLogprobs !== undefined) numbers('promptLogprobs', promptLogprobs, promptLength - 1);
  const lists = promptTopLogprobs;
  if (lists !== undefined && !(Array.isArray(lists) && lists.length === promptLength - 1))
    fail(`${at}.promptTopLogprobs`, `a list for each of ${promptLength - 1} tokens`, lists);
  if (topLogprobs !== undefined && !(Array.isArray(topLogprobs) && topLogprobs.length === tokens.length))
    fail(`${at}.topLogprobs`, `a list for each of the ${tokens.length} tokens`, topLogprobs);
  if (!REASONS.includes(finishReason)) fail(`${at}.finishReason`, 'stop, length or error', finishReason);
}

function fail(what: string, expected: string, found: unknown): never {
  throw invalid(`resume: ${what}: expected ${expected}, found ${shown(found)}`);
}
