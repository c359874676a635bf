/** Shared by all requests: the model, its tokenizer, the generator, and the number of running requests. */
import type { Model } from '../api/model.js';
import type { Generation } from '../generate/generation.js';
import { Generator, type GeneratorOptions } from '../generate/generator.js';
import { StepTrainError } from '../native/errors.js';
import type { Scorer } from '../scoring/scorer.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { fieldError, RequestError } from './errors.js';
import type { Job } from './job.js';
import type { ServeLimits } from './limits.js';
import { ServerMetrics } from './metrics.js';
import { ScoreQueue } from './score-queue.js';
import { type AdapterPolicy, type Lease, ServedModels } from './served-models.js';

/** The served model. The caller keeps its ownership. */
export interface Served {
  /** The model's name in requests and in /v1/models. */
  readonly name: string;
  readonly model: Model;
  /** Default: the model's. */
  readonly tokenizer?: Tokenizer | undefined;
  /** Default: those of model and tokenizer. */
  readonly eosTokenIds?: readonly number[] | undefined;
  /** Scorers of /score by the names that requests give; the first is the default. */
  readonly scorers?: Readonly<Record<string, Scorer>> | undefined;
}

/** Texts with more characters per token of the context than this are refused before they are tokenised. */
const CHARACTERS_PER_TOKEN = 32;

/** Alternatives of all tokens of a request, which are kept until it is answered; each takes hundreds of bytes. */
const MAX_ALTERNATIVES = 1 << 20;

/** Seconds after which a client may retry. */
const RETRY_SECONDS = 1;

export class Engine {
  readonly generator: Generator;
  readonly models: ServedModels;
  readonly metrics = new ServerMetrics();
  readonly scoring = new ScoreQueue();
  readonly eosTokenIds: readonly number[];
  /** Resolves with the error of a failed device, after which no request can be answered. */
  readonly failure: Promise<unknown>;
  failed = false;
  private breakDown: (error: unknown) => void = () => {};

  constructor(
    readonly served: Served & { readonly tokenizer: Tokenizer },
    readonly limits: ServeLimits,
    options: GeneratorOptions & { readonly adapters?: AdapterPolicy },
  ) {
    const { adapters = {}, ...sizes } = options;
    this.generator = new Generator(served.model.decoder, sizes);
    this.models = new ServedModels(served.model, this.generator, served.name, adapters);
    this.failure = new Promise((resolve) => {
      this.breakDown = resolve;
    });
    this.eosTokenIds = served.eosTokenIds ?? served.model.endTokens(served.tokenizer);
  }

  /**
   * Starts a request.
   *
   * @throws RequestError for an invalid request, and if too many requests wait
   */
  start(job: Job, lease: Lease, signal: AbortSignal): Generation {
    const { prompts, topLogprobs, promptLogprobs, promptTopLogprobs } = job;
    const { n, sampling } = job.request;
    if (this.failed) throw new RequestError(503, 'the server failed and is going down');
    const { waiting } = this.generator.load;
    if (waiting > 0 && waiting + prompts.length * n > this.limits.queue)
      throw new RequestError(
        429,
        `${waiting} samples wait already, and ${this.limits.queue} may; try again later`,
        {
          code: 'queue_full',
          retryAfter: RETRY_SECONDS,
        },
      );
    const maxNewTokens = this.newTokens(job);
    const drawn = prompts.length * n * maxNewTokens;
    const given = prompts.reduce((sum, { length }) => sum + length, 0);
    const alternatives = drawn * topLogprobs + given * promptTopLogprobs;
    if (alternatives > MAX_ALTERNATIVES)
      throw fieldError(
        'logprobs',
        `${alternatives} alternatives of up to ${drawn + given} tokens are more than ${MAX_ALTERNATIVES}; ask for fewer, or lower max_tokens or n`,
      );
    try {
      return this.generator.generate(prompts, {
        ...sampling,
        n,
        maxNewTokens,
        topLogprobs,
        promptLogprobs,
        promptTopLogprobs,
        eosTokenIds: this.eosTokenIds,
        tokenizer: job.writer ?? this.served.tokenizer,
        role: { adapter: lease.adapter },
        signal,
      });
    } catch (error) {
      if (!(error instanceof StepTrainError)) throw error;
      throw new RequestError(400, asFields(error.message));
    }
  }

  /** @throws RequestError for a text that is certainly too long, without tokenising it */
  checkLength(text: string): void {
    const { maxPositions } = this.served.model.decoder.config;
    if (text.length <= maxPositions * CHARACTERS_PER_TOKEN) return;
    throw new RequestError(
      400,
      `the prompt has ${text.length} characters, far more than the ${maxPositions} tokens that the model reads; shorten it`,
      { code: 'context_length_exceeded' },
    );
  }

  /** Max new tokens of each sample. */
  private newTokens({ prompts, maxTokens, usualTokens = Number.POSITIVE_INFINITY }: Job): number {
    // A prompt is scored together with one new token, which is not shown.
    const asked = maxTokens === 0 ? 1 : maxTokens;
    const { maxPositions } = this.served.model.decoder.config;
    const longest = prompts.reduce((most, { length }) => Math.max(most, length), 0);
    const room = maxPositions - longest;
    if (room < (asked ?? 1))
      throw new RequestError(
        400,
        `the model reads ${maxPositions} tokens, and the prompt has ${longest}${
          asked === undefined ? '' : ` beside up to ${asked} new ones`
        }; shorten the prompt or lower max_tokens`,
        { code: 'context_length_exceeded' },
      );
    if (asked !== undefined && asked > this.limits.newTokens)
      throw fieldError('max_tokens', `this server gives at most ${this.limits.newTokens}, found ${asked}`);
    const fitting = this.generator.longestSample - longest;
    return asked ?? Math.max(1, Math.min(fitting, this.limits.newTokens, usualTokens));
  }

  /** Called when a generation fails as a whole, which means that the device has failed. */
  fail(error: unknown): void {
    this.failed = true;
    this.breakDown(error);
  }

  dispose(): void {
    this.models.dispose();
    this.generator.dispose();
  }
}

/** Requests call the options of the generator otherwise: topP is top_p. */
function asFields(message: string): string {
  const [, option = '', rest = ''] = /^generate: (\w+)(.*)$/s.exec(message) ?? ['', '', message];
  return option.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) + rest;
}
