/** One sample of one prompt, from its first token to the reason why it ended. */
import type { Role } from '../../models/decoder.js';
import type { RoleKey } from '../cache/prefixes.js';
import type { SamplingSettings } from '../options.js';
import type { DecodedRow } from '../step/decode.js';
import type { Drawn, TokenLogprob } from '../step/drawn.js';
import { type SampledRow, sampleKey } from '../step/sampling-inputs.js';
import type { ChoiceNode } from './choices.js';
import { Detokenizer } from './detokenize.js';
import { SeenTokens } from './penalties.js';

/**
 * stop: an end-of-text token, a token or text of `stop`, the end of a choice, or the first token that no choice has there.
 * length: `maxNewTokens`, or the longest sequence of the model. abort: the signal, or `abort()`. error: the model gave
 * something that is not a number.
 */
export type FinishReason = 'stop' | 'length' | 'abort' | 'error';

export interface Sample {
  /** All sampled tokens, including the one that ended the sample. */
  readonly tokens: readonly number[];
  /** The text of the tokens without special ones, up to a stop text; where a tokenizer was given. */
  readonly text?: string;
  /** log p of each token under the model, natural logarithm. */
  readonly logprobs: Float32Array;
  /** The same at the temperature that was sampled at. */
  readonly temperedLogprobs: Float32Array;
  /** The same under the sampling distribution: after temperature, bias, filters and choices. */
  readonly samplingLogprobs: Float32Array;
  /** The most likely tokens at each position, in descending order, if `topLogprobs` is set. */
  readonly topLogprobs?: readonly (readonly TokenLogprob[])[];
  /**
   * log p of each token of the prompt but the first, under the model, if `promptLogprobs` is set. The samples
   * of a prompt share it; absent where the request ended before it was known.
   */
  readonly promptLogprobs?: Float32Array;
  /** The most likely tokens in the place of each of these, in descending order, if `promptTopLogprobs` is set. */
  readonly promptTopLogprobs?: readonly (readonly TokenLogprob[])[];
  readonly finishReason: FinishReason;
  /** The token or text that ended the sample, if the reason is `stop`. */
  readonly stop?: number | string;
}

/** One step's addition to a sample. */
export interface GeneratedToken {
  /** Index of the prompt, from 0. */
  readonly prompt: number;
  /** Index among its samples, from 0. */
  readonly sample: number;
  /** Absent if a sample ends without a token: abort and error. */
  readonly token?: number;
  /** Under the model. */
  readonly logprob?: number;
  /** The most likely tokens in its place; where `topLogprobs` asked for them. */
  readonly topLogprobs?: readonly TokenLogprob[];
  /** New text that is certain, if a tokenizer was given. */
  readonly text?: string;
  readonly finishReason?: FinishReason;
  /** The token or text that ended the sample, if the reason is `stop`. */
  readonly stop?: number | string;
}

/** The state of a sample as JSON, from which it can continue. */
export interface SavedSample {
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  readonly temperedLogprobs: readonly number[];
  readonly samplingLogprobs: readonly number[];
  readonly topLogprobs?: readonly (readonly TokenLogprob[])[];
  readonly promptLogprobs?: readonly number[];
  readonly promptTopLogprobs?: readonly (readonly TokenLogprob[])[];
  readonly finishReason?: Exclude<FinishReason, 'abort'>;
}

/** A prompt, shared by its samples. */
export class SampledPrompt {
  /** Log-probabilities of tokens 1, 2, …; the first `known` are set. */
  readonly logprobs: Float32Array<ArrayBuffer>;
  /** The most likely tokens at the same positions, if they are asked for. */
  readonly topLogprobs: (readonly TokenLogprob[])[] = [];
  known = 0;

  constructor(
    readonly ids: readonly number[],
    /** Number among the rows of its request, from 0. */
    readonly index: number,
  ) {
    this.logprobs = new Float32Array(ids.length - 1);
  }
}

export class SampleRow implements DecodedRow {
  /** The prompt, then the drawn tokens. */
  readonly tokens: number[];
  readonly longest: number;
  finishReason: FinishReason | undefined;
  private readonly key: readonly [number, number];
  private readonly logprobs: number[] = [];
  private readonly temperedLogprobs: number[] = [];
  private readonly samplingLogprobs: number[] = [];
  private readonly topLogprobs: (readonly TokenLogprob[])[] = [];
  private readonly detokenizer: Detokenizer | undefined;
  private text = '';
  private choice: ChoiceNode | undefined;
  private readonly seen: SeenTokens | undefined;
  private stop: number | string | undefined;

  constructor(
    readonly role: RoleKey,
    /** Key of `role` in the cache. */
    readonly as: Role,
    private readonly settings: SamplingSettings,
    /** Longest sequence of the model. */
    maxPositions: number,
    private readonly prompt: SampledPrompt,
    readonly sample: number,
  ) {
    this.tokens = [...prompt.ids];
    this.longest = Math.min(prompt.ids.length + settings.maxNewTokens, maxPositions);
    this.key = sampleKey(settings, settings.promptIds[prompt.index] as number, sample);
    this.choice = settings.choices;
    this.seen = settings.penalties && new SeenTokens(settings.penalties, prompt.ids);
    if (settings.tokenizer)
      this.detokenizer = new Detokenizer(settings.tokenizer, { stop: settings.stopStrings });
  }

  sampledAt(position: number): SampledRow {
    const { settings, key, prompt, choice, seen } = this;
    const drawn = position - prompt.ids.length;
    return { settings, key, position, drawn, choice: settings.choicesOnly ? choice : undefined, seen };
  }

  /** The allowed tokens follow from the one before, and so do penalties. */
  get needsLast(): boolean {
    const { choices, choicesOnly } = this.settings;
    return (choices !== undefined && choicesOnly) || this.seen !== undefined;
  }

  /** The first sample of a prompt requests the prompt's log-probabilities. */
  get scored(): number {
    const { settings, prompt, sample } = this;
    const wanted = settings.promptLogprobs && sample === 0 && prompt.known < prompt.logprobs.length;
    return wanted ? prompt.ids.length : 0;
  }

  get fromStart(): boolean {
    return this.scored > 0;
  }

  get scoredAlternatives(): number {
    return this.settings.promptTopLogprobs;
  }

  /** Stores log-probabilities of tokens of the prompt, from tokens[first] on. */
  acceptScores(
    first: number,
    logprobs: Float32Array,
    likeliest: readonly (readonly TokenLogprob[])[] = [],
  ): void {
    this.prompt.logprobs.set(logprobs, first - 1);
    this.prompt.topLogprobs.splice(first - 1, likeliest.length, ...likeliest);
    this.prompt.known = first - 1 + logprobs.length;
  }

  get promptTokens(): number {
    return this.prompt.ids.length;
  }

  get promptIndex(): number {
    return this.prompt.index;
  }

  /** Adds a sampled token and ends the sample if the token does. */
  accept(drawn: Drawn): GeneratedToken {
    if (drawn.failed) return this.end('error');
    const { token, logprob } = drawn;
    this.tokens.push(token);
    this.logprobs.push(logprob);
    this.temperedLogprobs.push(drawn.temperedLogprob);
    this.samplingLogprobs.push(drawn.samplingLogprob);
    if (drawn.likeliest) this.topLogprobs.push(drawn.likeliest);
    const added = this.follow(token);
    const rest = this.finishReason ? this.lastText() : '';
    return {
      ...this.place,
      token,
      logprob,
      ...(drawn.likeliest ? { topLogprobs: drawn.likeliest } : {}),
      ...(this.detokenizer ? { text: added + rest } : {}),
      ...(this.finishReason ? { finishReason: this.finishReason } : {}),
      ...(this.stop === undefined ? {} : { stop: this.stop }),
    };
  }

  /** Ends a sample early. */
  end(finishReason: 'abort' | 'error'): GeneratedToken {
    this.finishReason = finishReason;
    return { ...this.place, ...(this.detokenizer ? { text: this.lastText() } : {}), finishReason };
  }

  result(): Sample {
    const { settings, prompt, topLogprobs, finishReason = 'abort', stop } = this;
    const scored = settings.promptLogprobs && prompt.known === prompt.logprobs.length;
    return {
      tokens: this.drawn,
      ...(this.detokenizer ? { text: this.text } : {}),
      logprobs: Float32Array.from(this.logprobs),
      temperedLogprobs: Float32Array.from(this.temperedLogprobs),
      samplingLogprobs: Float32Array.from(this.samplingLogprobs),
      ...(settings.topLogprobs > 0 ? { topLogprobs: [...topLogprobs] } : {}),
      ...(scored ? { promptLogprobs: prompt.logprobs } : {}),
      ...(scored && settings.promptTopLogprobs > 0 ? { promptTopLogprobs: prompt.topLogprobs } : {}),
      finishReason,
      ...(stop === undefined ? {} : { stop }),
    };
  }

  save(): SavedSample {
    const {
      settings,
      prompt,
      sample,
      logprobs,
      temperedLogprobs,
      samplingLogprobs,
      topLogprobs,
      finishReason,
    } = this;
    const scored = settings.promptLogprobs && sample === 0 && this.scored === 0;
    return {
      tokens: this.drawn,
      logprobs: [...logprobs],
      temperedLogprobs: [...temperedLogprobs],
      samplingLogprobs: [...samplingLogprobs],
      ...(settings.topLogprobs > 0 ? { topLogprobs: [...topLogprobs] } : {}),
      ...(scored ? { promptLogprobs: [...prompt.logprobs] } : {}),
      ...(scored && settings.promptTopLogprobs > 0 ? { promptTopLogprobs: [...prompt.topLogprobs] } : {}),
      // An aborted sample can continue.
      ...(finishReason && finishReason !== 'abort' ? { finishReason } : {}),
    };
  }

  /** Continues from the result of `save`. */
  restore(saved: SavedSample): void {
    this.logprobs.push(...saved.logprobs);
    this.temperedLogprobs.push(...saved.temperedLogprobs);
    this.samplingLogprobs.push(...saved.samplingLogprobs);
    this.topLogprobs.push(...(saved.topLogprobs ?? []));
    if (saved.promptLogprobs)
      this.acceptScores(1, Float32Array.from(saved.promptLogprobs), saved.promptTopLogprobs);
    for (const token of saved.tokens) {
      this.tokens.push(token);
      this.follow(token);
    }
    this.finishReason ??= saved.finishReason;
    if (this.finishReason) this.lastText();
  }

  private get drawn(): number[] {
    return this.tokens.slice(this.prompt.ids.length);
  }

  /** Updates text, choice and end by a sampled token; returns the new text. */
  private follow(token: number): string {
    const { settings, tokens, prompt } = this;
    const drawn = tokens.length - prompt.ids.length;
    const long = drawn > settings.minTokens;
    this.seen?.push(token);
    const added = this.detokenizer?.push(token, long) ?? '';
    this.text += added;
    this.choice = this.choice?.next.get(token);
    const chosen = settings.choices !== undefined && (this.choice?.next.size ?? 0) === 0;
    const stop = settings.stopTokens.has(token) && long ? token : this.detokenizer?.stoppedBy;
    if (stop !== undefined || chosen) {
      this.finishReason = 'stop';
      this.stop = stop ?? token;
    } else if (tokens.length >= this.longest) this.finishReason = 'length';
    return added;
  }

  private lastText(): string {
    const rest = this.detokenizer?.end() ?? '';
    this.text += rest;
    return rest;
  }

  private get place() {
    return { prompt: this.prompt.index, sample: this.sample };
  }
}
