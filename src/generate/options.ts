/** The options of a request and their checks. */
import { invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { choiceTrie } from './rows/choices.js';
import type { Penalties } from './rows/penalties.js';

/** Options of sampling. Requests with different options can run together. */
export interface SamplingOptions {
  /** Samples of each prompt. Default 1. */
  readonly n?: number | undefined;
  /** Max tokens of a sample, within the max length of the model. Default 256. */
  readonly maxNewTokens?: number | undefined;
  /** Min tokens before an end-of-text token, a token of `stop` or a stop text may end the sample. Default 0. */
  readonly minTokens?: number | undefined;
  /** Temperature of the softmax, at least 0.01; 0 takes the most likely token. Default 1. */
  readonly temperature?: number | undefined;
  /** Draws from this many of the most likely tokens; 0: from all. Default 0. */
  readonly topK?: number | undefined;
  /** Draws from the most likely tokens that together reach this probability. Default 1: all. */
  readonly topP?: number | undefined;
  /** Draws from tokens with at least this share of the largest probability. Default 0: all. */
  readonly minP?: number | undefined;
  /** Subtracted from the logits of tokens that were drawn before, from −2 to 2. Default 0. */
  readonly presencePenalty?: number | undefined;
  /** Subtracted from the logits of tokens for each time that they were drawn, from −2 to 2. Default 0. */
  readonly frequencyPenalty?: number | undefined;
  /** Divides positive logits of tokens in the prompt or drawn before, and multiplies negative ones. Default 1. */
  readonly repetitionPenalty?: number | undefined;
  /** Added to the logits of tokens, by id; −Infinity bans one. */
  readonly logitBias?: Readonly<Record<number, number>> | undefined;
  /** The allowed answers, in tokens; each sample is one of them. None is longer than `maxNewTokens`. */
  readonly choices?: readonly (readonly number[])[] | undefined;
  /** Whether only `choices` may be drawn; if false, a sample ends once it can no longer become one of them. Default true. */
  readonly choicesOnly?: boolean | undefined;
  /** Token ids, and texts where a `tokenizer` is given, that end a sample. */
  readonly stop?: readonly (number | string)[] | undefined;
  /** The tokens that end a text. Default: those of the model's configuration. */
  readonly eosTokenIds?: readonly number[] | undefined;
  /** Continue after end-of-text tokens; before `minTokens` none is drawn all the same. Default false. */
  readonly ignoreEos?: boolean | undefined;
  /** Number of most likely tokens whose log-probabilities are returned at each position. Default 0. */
  readonly topLogprobs?: number | undefined;
  /** Return log-probabilities of the prompt's tokens too. Default false. */
  readonly promptLogprobs?: boolean | undefined;
  /** Number of most likely tokens whose log-probabilities are returned at each position of the prompt. Default 0. */
  readonly promptTopLogprobs?: number | undefined;
  /** Seed of all random numbers. Default 0. */
  readonly seed?: number | undefined;
  /** Gives several rounds with one seed different random numbers. Default 0. */
  readonly iteration?: number | undefined;
  /** Numbers of the prompts, which key their random numbers; default 0, 1, 2, … . */
  readonly promptIds?: readonly number[] | undefined;
  /** Adds text to samples and events; required for stop texts. */
  readonly tokenizer?: Pick<Tokenizer, 'tokenBytes' | 'isSpecial' | 'reversesDigits'> | undefined;
}

/** Complete, checked options. */
export type SamplingSettings = Readonly<ReturnType<typeof samplingSettings>>;

/** Samples of one prompt; each takes kilobytes before its first token. */
const MAX_SAMPLES = 65_536;

/** Below it logits divided by the temperature leave f32 no digits for their log-probabilities. */
export const MIN_TEMPERATURE = 0.01;

/** The largest temperature that OpenAI's API and vLLM take. */
export const LARGEST_SERVED_TEMPERATURE = 2;
const MAX_TEMPERATURE = 1e6;

/** Below it, and above its inverse, logits would leave the range in which they are computed. */
const MIN_REPETITION = 0.01;

/** The smallest that 32 bits hold with all their digits. */
const MIN_TOP_P = 2 ** -126;

interface Limits {
  readonly vocabSize: number;
  readonly eosTokenIds: readonly number[];
}

/**
 * @param prompts number of prompts
 * @throws StepTrainError that names the option, what it expects and what it found
 */
export function samplingSettings(
  options: SamplingOptions,
  { vocabSize, eosTokenIds }: Limits,
  prompts: number,
) {
  const { stop = [], logitBias = {}, choices, promptIds, tokenizer } = options;
  for (const [option, list] of Object.entries({ stop, choices: choices ?? [], promptIds: promptIds ?? [] }))
    if (!Array.isArray(list)) fail(option, 'a list', shown(list));
  for (const choice of choices ?? [])
    if (!Array.isArray(choice)) fail('choices', 'lists of token ids', shown(choice));
  const token = (option: string, id: unknown) => {
    if (Number.isInteger(id) && (id as number) >= 0 && (id as number) < vocabSize) return id as number;
    return fail(option, `token ids from 0 to ${vocabSize - 1}`, shown(id));
  };
  const biases = Object.entries(logitBias).map(([id, bias]) => {
    // The kernels read biases as 32-bit floats.
    if (!(Math.fround(bias) < Number.POSITIVE_INFINITY))
      fail(`logitBias of token ${id}`, 'a number below 3.4e38 or −Infinity', shown(bias));
    return [token('logitBias', Number(id)), bias] as const;
  });
  for (const choice of choices ?? []) for (const id of choice) token('choices', id);
  const strings = stop.filter((entry) => typeof entry === 'string');
  if (strings.some((text) => text === '')) fail('stop', 'texts that are not empty', '""');
  const half = strings.find((text) => /\p{Cs}/u.test(text));
  if (half !== undefined)
    fail('stop', 'texts without half of a surrogate pair, which no sample has', shown(half));
  if (strings.length > 0 && !tokenizer)
    fail('stop', 'token ids, or a tokenizer beside texts', shown(strings[0]));
  if (promptIds && promptIds.length !== prompts)
    fail('promptIds', `a number for each of the ${prompts} prompts`, `${promptIds.length}`);
  const eos = options.eosTokenIds?.map((id) => token('eosTokenIds', id)) ?? eosTokenIds;
  const promptTopLogprobs = whole('promptTopLogprobs', options.promptTopLogprobs ?? 0, 0, vocabSize);
  const stopTokens = stop.filter((entry) => typeof entry !== 'string').map((id) => token('stop', id));
  const maxNewTokens = whole('maxNewTokens', options.maxNewTokens ?? 256, 1);
  const settings = {
    n: whole('n', options.n ?? 1, 1, MAX_SAMPLES),
    maxNewTokens,
    minTokens: whole('minTokens', options.minTokens ?? 0, 0, maxNewTokens),
    temperature: within('temperature', options.temperature ?? 1, 0, MAX_TEMPERATURE),
    topK: whole('topK', options.topK ?? 0, 0),
    topP: topPOf(options.topP ?? 1),
    minP: within('minP', options.minP ?? 0, 0, 1),
    penalties: penaltiesOf(options),
    logitBias: biases,
    choices: choices && choiceTrie(choices),
    choicesOnly: options.choicesOnly ?? true,
    stopTokens: new Set([...(options.ignoreEos ? [] : eos), ...stopTokens]),
    /** Tokens that are not drawn before `minTokens`: with `ignoreEos` too, as in vLLM. */
    lateTokens: new Set([...eos, ...stopTokens]),
    stopStrings: strings,
    topLogprobs: whole('topLogprobs', options.topLogprobs ?? 0, 0, vocabSize),
    promptLogprobs: (options.promptLogprobs ?? false) || promptTopLogprobs > 0,
    promptTopLogprobs,
    seed: whole('seed', options.seed ?? 0, 0),
    iteration: whole('iteration', options.iteration ?? 0, 0, 2 ** 32 - 1),
    promptIds: Array.from({ length: prompts }, (_, i) =>
      whole('promptIds', promptIds?.[i] ?? i, 0, 2 ** 32 - 1),
    ),
    tokenizer,
  };
  if (settings.temperature > 0 && settings.temperature < MIN_TEMPERATURE)
    fail(
      'temperature',
      `0, which takes the most likely token, or at least ${MIN_TEMPERATURE}`,
      `${settings.temperature}`,
    );
  if (choices && settings.choicesOnly) checkChoices(choices, settings);
  return settings;
}

/** Every answer can be drawn to its end. */
function checkChoices(
  choices: readonly (readonly number[])[],
  { maxNewTokens, minTokens, stopTokens, lateTokens, logitBias }: SamplingSettings,
): void {
  const banned = new Set(logitBias.filter(([, bias]) => bias === Number.NEGATIVE_INFINITY).map(([id]) => id));
  for (const [i, choice] of choices.entries()) {
    const last = choice.length - 1;
    const stop = choice.findIndex((id) => stopTokens.has(id));
    if (choice.length > maxNewTokens)
      fail(
        'choices',
        `answers of at most maxNewTokens ${maxNewTokens}`,
        `${choice.length} tokens in answer ${i}`,
      );
    if (stop >= 0 && stop < last)
      fail('choices', 'tokens that end a text at the end of an answer alone', `one inside answer ${i}`);
    const late = choice.findIndex((id) => lateTokens.has(id));
    if (late >= 0 && minTokens > late)
      fail('minTokens', `at most ${late}, before the end of answer ${i} of choices`, `${minTokens}`);
    const token = choice.find((id) => banned.has(id));
    if (token !== undefined)
      fail('choices', 'tokens that logitBias does not ban; leave the answer out', `${token} in answer ${i}`);
  }
}

function whole(option: string, value: unknown, min: number, max = Number.MAX_SAFE_INTEGER): number {
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max)
    return value as number;
  const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
  return fail(option, `a whole number ${range}`, shown(value));
}

function within(option: string, value: unknown, min: number, max: number): number {
  if (typeof value === 'number' && value >= min && value <= max) return value;
  const range = max === Number.MAX_VALUE ? `of at least ${min}` : `from ${min} to ${max}`;
  return fail(option, `a number ${range}`, shown(value));
}

/** Penalties in the ranges of vLLM and OpenAI; undefined where none changes anything. */
function penaltiesOf(options: SamplingOptions): Penalties | undefined {
  const presence = within('presencePenalty', options.presencePenalty ?? 0, -2, 2);
  const frequency = within('frequencyPenalty', options.frequencyPenalty ?? 0, -2, 2);
  const repetition = within(
    'repetitionPenalty',
    options.repetitionPenalty ?? 1,
    MIN_REPETITION,
    1 / MIN_REPETITION,
  );
  return presence === 0 && frequency === 0 && repetition === 1
    ? undefined
    : { presence, frequency, repetition };
}

function topPOf(value: unknown): number {
  if (typeof value === 'number' && value >= MIN_TOP_P && value <= 1) return value;
  return fail('topP', 'a number above 0, at most 1', shown(value));
}

function fail(option: string, expected: string, found: string): never {
  throw invalid(`generate: ${option}: expected ${expected}, found ${found}`);
}
