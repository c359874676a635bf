/** OpenAI's completions with token ids: steptrain serve and vLLM. */
import { LARGEST_SERVED_TEMPERATURE } from '../generate/options.js';
import type { SourceSample } from '../generate/sample-source.js';
import { PassingFailure, RemoteError } from './errors.js';
import {
  isLogprobList,
  isObject,
  isTokenList,
  type Protocol,
  type SampleReader,
  type SampleRequest,
  samplingFields,
  seedOf,
} from './protocol.js';

/** steptrain serve draws the same samples as the generator in process: it takes the keys of the random numbers. */
export const STEPTRAIN: Protocol = {
  ...completions(({ options: { seed = 0, iteration = 0 }, promptId }) => ({
    seed,
    iteration,
    prompt_ids: [promptId],
  })),
  adapterHint: 'start steptrain serve with --adapter-root',
};

export const VLLM: Protocol = {
  maxTemperature: LARGEST_SERVED_TEMPERATURE,
  ...completions((request) => ({ seed: seedOf(request) })),
  adapterHint: 'start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True',
  // The server reads the directory it was started on again. Prompts computed by the earlier weights are dropped.
  reload: () => [
    ['/collective_rpc', { method: 'reload_weights' }],
    ['/reset_prefix_cache', {}],
  ],
  reloadHint: 'start vLLM with VLLM_SERVER_DEV_MODE=1',
};

function completions(seeds: (request: SampleRequest) => object): Omit<Protocol, 'adapterHint'> {
  return {
    path: '/v1/completions',
    many: true,
    body: (request) => ({ ...completionBody(request), ...seeds(request) }),
    reader: (request) => new CompletionReader(request),
    loadPath: '/v1/load_lora_adapter',
    unloadPath: '/v1/unload_lora_adapter',
  };
}

function completionBody({ model, prompt, n, options }: SampleRequest): object {
  return {
    model,
    prompt,
    n,
    max_tokens: options.maxNewTokens ?? 256,
    min_tokens: options.minTokens,
    ...samplingFields(options),
    logprobs: 0,
    // Two ways to the ids: the first is newer, and any vLLM has the second.
    return_token_ids: true,
    return_tokens_as_token_ids: true,
    stream: true,
    stream_options: { include_usage: true },
  };
}

interface Draft {
  readonly tokens: number[];
  readonly logprobs: number[];
  finishReason: 'stop' | 'length' | undefined;
  stop: number | string | undefined;
}

class CompletionReader implements SampleReader {
  private readonly drafts: readonly Draft[];
  private usage: Readonly<Record<string, unknown>> | undefined;

  constructor(private readonly request: SampleRequest) {
    this.drafts = Array.from({ length: request.n }, () => ({
      tokens: [],
      logprobs: [],
      finishReason: undefined,
      stop: undefined,
    }));
  }

  push(event: unknown): void {
    if (!isObject(event)) throw garbage('an event that is no object');
    if (isObject(event.error)) throw new PassingFailure(`the server says: ${String(event.error.message)}`);
    if (isObject(event.usage)) this.usage = event.usage;
    if (!Array.isArray(event.choices)) throw garbage('an event without choices');
    for (const choice of event.choices) this.take(choice);
  }

  end(): readonly SourceSample[] {
    const { prompt } = this.request;
    const { completion_tokens: completion, prompt_tokens: read } = this.usage ?? {};
    if (typeof completion !== 'number' || typeof read !== 'number') throw garbage('a stream without usage');
    if (read !== prompt.length)
      throw new RemoteError(
        `the server read ${read} tokens of a prompt of ${prompt.length}: it changes prompts, so its samples belong to another prompt`,
      );
    const tokens = this.drafts.reduce((sum, draft) => sum + draft.tokens.length, 0);
    if (tokens !== completion)
      throw garbage(`${tokens} tokens where the server counts ${completion}: some were lost or came twice`);
    return this.drafts.map(({ tokens, logprobs, finishReason, stop }) => {
      if (finishReason === undefined) throw garbage('a sample without its end');
      return {
        tokens,
        logprobs: Float32Array.from(logprobs),
        finishReason,
        ...(stop === undefined ? {} : { stop }),
      };
    });
  }

  private take(choice: unknown): void {
    const draft = isObject(choice) ? this.drafts[choice.index as number] : undefined;
    if (!isObject(choice) || !draft) throw garbage('a choice that was not asked for');
    const tokens = tokensOf(choice);
    if (tokens.length > 0) {
      if (draft.finishReason) throw garbage('tokens after the end of their sample');
      draft.tokens.push(...tokens);
      draft.logprobs.push(...logprobsOf(choice, tokens.length));
    }
    const { finish_reason: reason, stop_reason: stop } = choice;
    if (reason === undefined || reason === null) return;
    // A sample that the server gave up, for example while it shuts down, does not count.
    if (reason !== 'stop' && reason !== 'length')
      throw new PassingFailure(`the server ended a sample with ${reason}`);
    draft.finishReason = reason;
    if (typeof stop === 'number' || typeof stop === 'string') draft.stop = stop;
  }
}

function tokensOf(choice: Readonly<Record<string, unknown>>): readonly number[] {
  const written = isObject(choice.logprobs) ? choice.logprobs.tokens : undefined;
  const named = Array.isArray(written)
    ? written.map((text) => Number(/^token_id:(\d+)$/.exec(String(text))?.[1] ?? Number.NaN))
    : undefined;
  const given = choice.token_ids ?? undefined;
  if (given !== undefined && !isTokenList(given)) throw garbage('token ids that are none');
  const readable = named?.every((id) => Number.isSafeInteger(id)) ? named : undefined;
  const tokens = given ?? readable;
  if (tokens === undefined && (choice.text || named?.length))
    throw new RemoteError(
      'the server gives text without token ids, and text made into tokens again may be other tokens; it needs return_token_ids ' +
        '(vLLM 0.10.2) or return_tokens_as_token_ids',
    );
  if (given && readable && given.some((id, i) => id !== readable[i]))
    throw garbage('two lists of token ids that differ');
  return tokens ?? [];
}

function logprobsOf({ logprobs }: Readonly<Record<string, unknown>>, count: number): readonly number[] {
  const list = isObject(logprobs) ? logprobs.token_logprobs : undefined;
  if (list === undefined)
    throw new RemoteError('the server gives no log-probabilities; start it without a limit on logprobs');
  if (!isLogprobList(list) || list.length !== count)
    throw garbage(`log-probabilities that do not fit ${count} tokens`);
  return list;
}

function garbage(what: string): PassingFailure {
  return new PassingFailure(`the server wrote ${what}`);
}
