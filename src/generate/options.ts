/** What a request may ask for, and what is refused. */
import { StepTrainError } from '../native/errors.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { type ChoiceNode, choiceTrie } from './choices.js';

/** How tokens are sampled. Everything but the tokens of `stop` and `choices` may differ between requests that run together. */
export interface SamplingOptions {
  /** Samples of each prompt. Default 1. */
  readonly n?: number;
  /** Most tokens of a sample; at the longest sequence of the model it ends before. Default 256. */
  readonly maxNewTokens?: number;
  /** Before so many tokens neither the end-of-text token nor a token of `stop` is drawn, nor does a text stop. Default 0. */
  readonly minTokens?: number;
  /** Of the softmax; 0 takes the most likely token. Default 1. */
  readonly temperature?: number;
  /** Only so many of the most likely tokens; 0: all. Default 0. */
  readonly topK?: number;
  /** Only the most likely tokens that together reach this probability. Default 1: all. */
  readonly topP?: number;
  /** Only tokens at least so likely as this share of the most likely one. Default 0: all. */
  readonly minP?: number;
  /** Added to the logits of tokens, by id; −Infinity bans one. */
  readonly logitBias?: Readonly<Record<number, number>>;
  /** The answers, in tokens, of which each sample is one. */
  readonly choices?: readonly (readonly number[])[];
  /** false: any token may be drawn, and a sample that has become none of the `choices` ends there. Default true. */
  readonly choicesOnly?: boolean;
  /** Token ids, and texts where a `tokenizer` is given, that end a sample. */
  readonly stop?: readonly (number | string)[];
  /** The tokens that end a text. Default: those of the model's configuration. */
  readonly eosTokenIds?: readonly number[];
  /** Go on after them. Default false. */
  readonly ignoreEos?: boolean;
  /** Also log-probabilities of so many of the most likely tokens in place of each one drawn. Default 0. */
  readonly topLogprobs?: number;
  /** Also log-probabilities of the tokens of the prompt. Default false. */
  readonly promptLogprobs?: boolean;
  /** Of all random numbers. Default 0. */
  readonly seed?: number;
  /** Keeps the random numbers of several rounds with one seed apart. Default 0. */
  readonly iteration?: number;
  /** Numbers of the prompts, which key their random numbers; default 0, 1, 2, … . */
  readonly promptIds?: readonly number[];
  /** Gives samples and events a text, and is needed for stop texts. */
  readonly tokenizer?: Pick<Tokenizer, 'tokenBytes' | 'isSpecial'>;
}

/** The same, complete and checked. */
export interface SamplingSettings {
  readonly n: number;
  readonly maxNewTokens: number;
  readonly minTokens: number;
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly logitBias: readonly (readonly [token: number, bias: number])[];
  readonly choices: ChoiceNode | undefined;
  readonly choicesOnly: boolean;
  readonly stopTokens: ReadonlySet<number>;
  readonly stopStrings: readonly string[];
  readonly topLogprobs: number;
  readonly promptLogprobs: boolean;
  readonly seed: number;
  readonly iteration: number;
  readonly promptIds: readonly number[];
  readonly tokenizer: SamplingOptions['tokenizer'];
}

interface Limits {
  readonly vocabSize: number;
  readonly eosTokenIds: readonly number[];
}

/**
 * @param prompts how many there are
 * @throws StepTrainError that names the option, what it expects and what it found
 */
export function samplingSettings(
  options: SamplingOptions,
  { vocabSize, eosTokenIds }: Limits,
  prompts: number,
): SamplingSettings {
  const { stop = [], logitBias = {}, choices, promptIds, tokenizer } = options;
  for (const [option, list] of Object.entries({ stop, choices: choices ?? [], promptIds: promptIds ?? [] }))
    if (!Array.isArray(list)) fail(option, 'a list', JSON.stringify(list));
  for (const choice of choices ?? [])
    if (!Array.isArray(choice)) fail('choices', 'lists of token ids', JSON.stringify(choice));
  const token = (option: string, id: unknown) => {
    if (Number.isInteger(id) && (id as number) >= 0 && (id as number) < vocabSize) return id as number;
    return fail(option, `token ids from 0 to ${vocabSize - 1}`, id);
  };
  const biases = Object.entries(logitBias).map(([id, bias]) => {
    if (Number.isNaN(Number(bias)) || bias === Number.POSITIVE_INFINITY)
      fail(`logitBias of token ${id}`, 'a number or −Infinity', bias);
    return [token('logitBias', Number(id)), bias] as const;
  });
  for (const choice of choices ?? []) for (const id of choice) token('choices', id);
  const strings = stop.filter((entry) => typeof entry === 'string');
  if (strings.some((text) => text === '')) fail('stop', 'texts that are not empty', '""');
  if (strings.length > 0 && !tokenizer)
    fail('stop', 'token ids, or a tokenizer beside texts', JSON.stringify(strings[0]));
  if (promptIds && promptIds.length !== prompts)
    fail('promptIds', `a number for each of the ${prompts} prompts`, `${promptIds.length}`);
  const eos = options.eosTokenIds?.map((id) => token('eosTokenIds', id)) ?? eosTokenIds;
  const stopTokens = stop.filter((entry) => typeof entry !== 'string').map((id) => token('stop', id));
  const maxNewTokens = whole('maxNewTokens', options.maxNewTokens ?? 256, 1);
  const settings = {
    n: whole('n', options.n ?? 1, 1),
    maxNewTokens,
    minTokens: whole('minTokens', options.minTokens ?? 0, 0, maxNewTokens),
    temperature: within('temperature', options.temperature ?? 1, 0, Number.MAX_VALUE),
    topK: whole('topK', options.topK ?? 0, 0),
    topP: within('topP', options.topP ?? 1, 0, 1),
    minP: within('minP', options.minP ?? 0, 0, 1),
    logitBias: biases,
    choices: choices && choiceTrie(choices),
    choicesOnly: options.choicesOnly ?? true,
    stopTokens: new Set([...(options.ignoreEos ? [] : eos), ...stopTokens]),
    stopStrings: strings,
    topLogprobs: whole('topLogprobs', options.topLogprobs ?? 0, 0, vocabSize),
    promptLogprobs: options.promptLogprobs ?? false,
    seed: whole('seed', options.seed ?? 0, 0),
    iteration: whole('iteration', options.iteration ?? 0, 0, 2 ** 32 - 1),
    promptIds: Array.from({ length: prompts }, (_, i) =>
      whole('promptIds', promptIds?.[i] ?? i, 0, 2 ** 32 - 1),
    ),
    tokenizer,
  };
  if (settings.topP === 0) fail('topP', 'a number above 0', 0);
  return settings;
}

function whole(option: string, value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): number {
  if (Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most)
    return value as number;
  const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
  return fail(option, `a whole number ${range}`, value);
}

function within(option: string, value: unknown, least: number, most: number): number {
  if (typeof value === 'number' && value >= least && value <= most) return value;
  const range = most === Number.MAX_VALUE ? `of at least ${least}` : `from ${least} to ${most}`;
  return fail(option, `a number ${range}`, value);
}

function fail(option: string, expected: string, found: unknown): never {
  throw new StepTrainError('E_RANGE', `generate: ${option}: expected ${expected}, found ${found}`);
}
