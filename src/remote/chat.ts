/** Questions to a chat model behind an OpenAI-compatible endpoint, each answered with one text. */
import { warnOnce } from '../terminal/log.js';
import type { ChatMessage } from '../tokenizer/tokenizer.js';
import { atOnce } from './at-once.js';
import { RemoteError } from './errors.js';
import { parsedAnswer } from './events.js';
import { type Endpoint, endpointOf, received } from './http-request.js';
import { isObject } from './protocol.js';
import { type RetryOptions, retrying } from './retry.js';

export interface ChatClientOptions {
  /** URL without /v1: `https://api.example.org`. */
  readonly url: string;
  /** The name under which the server has the model. */
  readonly model: string;
  /** Environment variable with the server's key; none is sent where it is not set. Default `STEPTRAIN_API_KEY`. */
  readonly keyEnv?: string;
  /** Requests at a time. Default 8. */
  readonly concurrency?: number;
  /** Seconds until there is a connection (default 10), and until the answer (default 300). */
  readonly connectSeconds?: number;
  readonly idleSeconds?: number;
  /** Tries of a request in all where connection or server fail. Default 6. */
  readonly attempts?: number;
  /** Seconds before the second try, twice as long before each further one. Default 0.5. */
  readonly backoffSeconds?: number;
}

export interface ChatSettings {
  /** Default 0. */
  readonly temperature?: number;
  /** Default 300. */
  readonly maxTokens?: number;
}

export interface ChatReply {
  readonly text: string;
  /** Why the server ended the text: `length` where it was cut off; undefined if it does not say. */
  readonly finishReason: string | undefined;
  /** The server's count; 0 if it gives none. */
  readonly promptTokens: number;
  readonly completionTokens: number;
}

export class ChatClient {
  private readonly endpoint: Endpoint;
  private readonly retry: RetryOptions;
  private readonly concurrency: number;

  /** @throws StepTrainError for an address that is none */
  constructor(private readonly options: ChatClientOptions) {
    const {
      url,
      keyEnv = 'STEPTRAIN_API_KEY',
      concurrency = 8,
      attempts = 6,
      backoffSeconds = 0.5,
    } = options;
    const { connectSeconds = 10, idleSeconds = 300 } = options;
    const key = process.env[keyEnv];
    this.endpoint = endpointOf({ url, key, concurrency, connectSeconds, idleSeconds }, 'chat');
    this.retry = { attempts, backoffMs: 1000 * backoffSeconds, maxBackoffMs: 30_000 };
    this.concurrency = concurrency;
  }

  /**
   * Asks all questions, some at a time, and hands each reply to `take`; one for which it returns false is asked again, up to `tries`
   * times. Undefined replies are those that it never took.
   *
   * @returns undefined if the signal stopped it
   * @throws RemoteError where the server refuses, or fails after all attempts
   */
  async askAll(
    questions: readonly (readonly ChatMessage[])[],
    settings: ChatSettings & {
      readonly tries?: number;
      readonly take: (reply: ChatReply, question: number) => boolean;
      readonly signal?: AbortSignal | undefined;
    },
  ): Promise<boolean[] | undefined> {
    const { tries = 1, take, signal } = settings;
    const taken = questions.map(() => false);
    const { concurrency } = this;
    const whole = await atOnce(questions, { concurrency, signal }, async (question, i, stop) => {
      for (let attempt = 0; attempt < tries && !taken[i]; attempt++)
        taken[i] = take(await this.ask(question, settings, stop), i);
    });
    return whole ? taken : undefined;
  }

  /** @throws RemoteError where the server refuses, or fails after all attempts */
  ask(messages: readonly ChatMessage[], settings: ChatSettings, signal: AbortSignal): Promise<ChatReply> {
    const { temperature = 0, maxTokens = 300 } = settings;
    const body = { model: this.options.model, messages, temperature, max_tokens: maxTokens };
    return retrying('a question', this.retry, signal, () =>
      replyTo(this.endpoint, '/v1/chat/completions', body, signal),
    );
  }

  close(): void {
    this.endpoint.agent.destroy();
  }
}

/** More characters for each token than texts and formulas have. */
const MOST_CHARACTERS = 7;
/** Characters that a server of the shortest context reads. */
const FEW_CHARACTERS = 4000;

/**
 * Asks once, and warns where the server counts too few tokens for what it was asked: some cut what is too long and say nothing.
 *
 * @throws as `received` and `replyOf` do
 */
export async function replyTo(
  endpoint: Endpoint,
  path: string,
  body: { readonly messages: readonly ChatMessage[] },
  signal: AbortSignal,
): Promise<ChatReply> {
  const reply = replyOf(await received(endpoint, path, body, signal));
  const characters = body.messages.reduce((sum, { content }) => sum + String(content ?? '').length, 0);
  const { promptTokens: tokens } = reply;
  if (characters > FEW_CHARACTERS && tokens > 0 && characters > MOST_CHARACTERS * tokens)
    warnOnce(
      `${endpoint.base.host} counts ${tokens} tokens in a question of ${characters} characters, so it seems to cut long ` +
        'questions: give it a longer context (num_ctx of Ollama, --ctx-size of llama.cpp, --max-model-len of vLLM)',
    );
  return reply;
}

/**
 * The reply in a server's response.
 *
 * @throws PassingFailure for invalid JSON, RemoteError for JSON that is no chat completion
 */
export function replyOf(text: string): ChatReply {
  const answer = parsedAnswer(text);
  const choices = isObject(answer) ? answer.choices : undefined;
  const choice = Array.isArray(choices) && isObject(choices[0]) ? choices[0] : undefined;
  const message = choice?.message;
  // A refusal, or a reply that was cut off while it reasoned, has no content: it is an empty reply.
  const content =
    isObject(message) && message.content === null ? '' : isObject(message) ? message.content : undefined;
  if (typeof content !== 'string')
    throw new RemoteError('the server answers without choices[0].message.content; is it a chat endpoint?');
  const usage = isObject(answer) && isObject(answer.usage) ? answer.usage : {};
  const count = (value: unknown) => (typeof value === 'number' ? value : 0);
  return {
    text: content,
    finishReason: typeof choice?.finish_reason === 'string' ? choice.finish_reason : undefined,
    promptTokens: count(usage.prompt_tokens),
    completionTokens: count(usage.completion_tokens),
  };
}
