/** SGLang's own /generate, which gives tokens with their log-probabilities. */
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

export const SGLANG: Protocol = {
  path: '/generate',
  // Samples of one request would share a seed.
  many: false,
  body: generateBody,
  reader: (request) => new GenerateReader(request),
  loadPath: '/load_lora_adapter',
  unloadPath: '/unload_lora_adapter',
  adapterHint: 'start SGLang with --enable-lora, --max-lora-rank and --lora-target-modules',
  reload: (path) => [['/update_weights_from_disk', { model_path: path }]],
  reloadHint: 'take an SGLang that has /update_weights_from_disk',
};

function generateBody(request: SampleRequest): object {
  const { model, prompt, options } = request;
  return {
    input_ids: prompt,
    ...(model === '' ? {} : { lora_path: model }),
    sampling_params: {
      n: 1,
      max_new_tokens: options.maxNewTokens ?? 256,
      min_new_tokens: options.minTokens,
      ...samplingFields(options),
      sampling_seed: seedOf(request),
      no_stop_trim: true,
    },
    return_logprob: true,
    logprob_start_len: -1,
    stream: true,
  };
}

class GenerateReader implements SampleReader {
  private tokens: number[] = [];
  private logprobs: number[] = [];
  private reason: Readonly<Record<string, unknown>> | undefined;
  private promptTokens: unknown;

  constructor(private readonly request: SampleRequest) {}

  push(event: unknown): void {
    const info = isObject(event) ? event.meta_info : undefined;
    if (isObject(event) && isObject(event.error))
      throw new PassingFailure(`the server says: ${String(event.error.message)}`);
    if (!isObject(info)) throw new PassingFailure('the server wrote an event without meta_info');
    const { completion_tokens: count, prompt_tokens: promptTokens, output_token_logprobs: list } = info;
    if (!Array.isArray(list))
      throw new RemoteError('the server gives no tokens with log-probabilities (output_token_logprobs)');
    const logprobs = list.map((entry) => (Array.isArray(entry) ? entry[0] : undefined));
    const tokens = list.map((entry) => (Array.isArray(entry) ? entry[1] : undefined));
    if (!isTokenList(tokens) || !isLogprobList(logprobs))
      throw new PassingFailure('the server wrote log-probabilities that are none');
    // An event has all tokens so far or, with --stream-output, the new ones; the count tells which.
    if (tokens.length === count) {
      this.tokens = [...tokens];
      this.logprobs = [...logprobs];
    } else if (this.tokens.length + tokens.length === count) {
      this.tokens.push(...tokens);
      this.logprobs.push(...logprobs);
    } else
      throw new PassingFailure(
        `the server counts ${String(count)} tokens, and others came: some were lost or came twice`,
      );
    this.promptTokens = promptTokens;
    if (isObject(info.finish_reason)) this.reason = info.finish_reason;
  }

  end(): readonly SourceSample[] {
    const { prompt } = this.request;
    const { tokens, logprobs, reason, promptTokens } = this;
    if (promptTokens !== prompt.length)
      throw new RemoteError(
        `the server read ${String(promptTokens)} tokens of a prompt of ${prompt.length}: it changes prompts, so that its samples are not of this one`,
      );
    const { type, matched } = reason ?? {};
    if (type !== 'stop' && type !== 'length')
      throw new PassingFailure(`the server ended a sample with ${String(type)}`);
    const stop = typeof matched === 'number' || typeof matched === 'string' ? matched : undefined;
    return [
      {
        tokens,
        logprobs: Float32Array.from(logprobs),
        finishReason: type,
        ...(stop === undefined ? {} : { stop }),
      },
    ];
  }
}
