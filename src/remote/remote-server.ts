/** One server: its samples, and the adapters that it holds. */
import type { SourceOptions, SourceSample } from '../generate/sample-source.js';
import { invalid } from '../native/errors.js';
import { atOnce } from './at-once.js';
import { PassingFailure, RemoteError } from './errors.js';
import { jsonEvents } from './events.js';
import { type Endpoint, endpointOf, received, StatusError, send } from './http-request.js';
import { STEPTRAIN, VLLM } from './openai.js';
import { isObject, type Protocol, type SampleRequest } from './protocol.js';
import { type RetryOptions, retrying } from './retry.js';
import { SGLANG } from './sglang.js';

const PROTOCOLS = { steptrain: STEPTRAIN, vllm: VLLM, sglang: SGLANG } as const;

export interface RemoteServerOptions {
  readonly server: keyof typeof PROTOCOLS;
  /** The name under which the server has the base model; SGLang needs none. */
  readonly model?: string;
  /** Environment variable with the server's key. Default `STEPTRAIN_API_KEY`; none is sent where it is not set. */
  readonly keyEnv?: string;
  /** Requests at a time, to each server. Default 64. */
  readonly concurrency?: number;
  /** Seconds until there is a connection (default 10), and between bytes (default 300: requests may wait for their turn). */
  readonly connectSeconds?: number;
  readonly idleSeconds?: number;
  /** Tries of a request in all. Default 8. */
  readonly attempts?: number;
  /** Seconds before the second try (default 0.5), twice as long before each further one, at most `maxBackoffSeconds` (default 30). */
  readonly backoffSeconds?: number;
  readonly maxBackoffSeconds?: number;
  /** Seconds in which answers of a busy server that say when to come back are not counted as tries. Default 1800. */
  readonly busySeconds?: number;
}

/** Samples of the server's base, or of an adapter that it has by `adapter`, its name. */
export type ServerSampling = SourceOptions & { readonly adapter?: string | undefined };

export class RemoteServer {
  private readonly concurrency: number;
  private readonly protocol: Protocol;
  private readonly endpoint: Endpoint;
  private readonly retry: RetryOptions;
  private readonly base: string;
  private longest: Promise<number | undefined> | undefined;

  /** @param url without /v1: `http://127.0.0.1:8000` */
  constructor(
    readonly url: string,
    options: RemoteServerOptions,
  ) {
    const { server, model = '', keyEnv = 'STEPTRAIN_API_KEY' } = options;
    const { concurrency = 64, connectSeconds = 10, idleSeconds = 300, attempts = 8 } = options;
    const { backoffSeconds = 0.5, maxBackoffSeconds = 30, busySeconds = 1800 } = options;
    if (!Object.hasOwn(PROTOCOLS, server)) refuse('server', Object.keys(PROTOCOLS).join(', '), server);
    if (model === '' && server !== 'sglang') refuse('model', "the name of the server's model", model);
    for (const [name, value] of Object.entries({ concurrency, attempts }))
      if (!(Number.isSafeInteger(value) && value > 0)) refuse(name, 'a whole number of at least 1', value);
    for (const [name, value] of Object.entries({
      connectSeconds,
      idleSeconds,
      backoffSeconds,
      maxBackoffSeconds,
      busySeconds,
    }))
      if (!(value > 0 && value < 2 ** 31 / 1000)) refuse(name, 'seconds above 0', value);
    this.protocol = PROTOCOLS[server];
    const key = process.env[keyEnv];
    this.endpoint = endpointOf({ url, key, concurrency, connectSeconds, idleSeconds }, 'remoteSource');
    this.retry = {
      attempts,
      backoffMs: backoffSeconds * 1000,
      maxBackoffMs: maxBackoffSeconds * 1000,
      patienceMs: busySeconds * 1000,
    };
    this.concurrency = concurrency;
    this.base = model;
  }

  /** Number of prompts, with `n` samples each, that keeps the server busy. */
  promptsAtOnce(n: number): number {
    return this.protocol.many ? this.concurrency : Math.ceil(this.concurrency / n);
  }

  async sample(
    prompts: readonly (readonly number[])[],
    { adapter, ...options }: ServerSampling,
  ): Promise<readonly (readonly SourceSample[])[] | undefined> {
    const { n = 1, promptIds, signal, maxNewTokens = 256, temperature = 1, skip, onSample } = options;
    const { maxTemperature = Number.POSITIVE_INFINITY } = this.protocol;
    if (temperature > maxTemperature)
      throw invalid(
        `temperature: expected at most ${maxTemperature}, which is all that the server takes, found ${temperature}`,
      );
    // The base is a model of the server, but no adapter, which is all that SGLang is asked for by name.
    const model = adapter ?? (this.protocol === SGLANG ? '' : this.base);
    this.longest ??= this.readLongest();
    const longest = (await this.longest) ?? Number.POSITIVE_INFINITY;
    const samples = prompts.map(() => new Array<SourceSample>(n));
    const isWanted = ({ index, sample, n }: { index: number; sample: number; n: number }) =>
      !skip || Array.from({ length: n }, (_, i) => sample + i).some((i) => !skip(index, i));
    const asked = prompts.flatMap((prompt, index) => {
      // A sample ends at the model's longest sequence, as in process.
      const room = Math.min(maxNewTokens, Math.max(1, longest - prompt.length));
      const own = { ...options, maxNewTokens: room };
      const each = { model, prompt, index, promptId: promptIds?.[index] ?? index, options: own };
      return this.protocol.many
        ? [{ ...each, sample: 0, n }]
        : Array.from({ length: n }, (_, sample) => ({ ...each, sample, n: 1 }));
    });
    const requests = asked.filter(isWanted);
    const { concurrency } = this;
    const whole = await atOnce(requests, { concurrency, signal }, async (request, _, stop) => {
      const drawn = await this.ask(request, stop);
      for (const [i, ended] of drawn.entries()) {
        const sample = request.sample + i;
        (samples[request.index] as SourceSample[])[sample] = ended;
        if (!skip?.(request.index, sample)) onSample?.(request.index, sample, ended);
      }
    });
    return whole ? samples : undefined;
  }

  close(): void {
    this.endpoint.agent.destroy();
  }

  private ask(request: SampleRequest, signal: AbortSignal): Promise<readonly SourceSample[]> {
    const { protocol, endpoint } = this;
    return retrying(`prompt ${request.promptId}`, this.retry, signal, async () => {
      const { chunks } = await send(endpoint, protocol.path, protocol.body(request), signal);
      const reader = protocol.reader(request);
      for await (const event of jsonEvents(chunks)) reader.push(event);
      const samples = reader.end();
      // The last token has the reward, so that there is one.
      if (samples.some(({ tokens }) => tokens.length === 0))
        throw new PassingFailure('the server ended a sample before its first token');
      return samples;
    });
  }

  /** @param path of the adapter's folder as the server sees it */
  async load(name: string, path: string): Promise<void> {
    const { protocol } = this;
    const { signal } = new AbortController();
    try {
      await retrying(`loading the adapter ${name}`, this.retry, signal, async (attempt) => {
        try {
          await this.post(protocol.loadPath, { lora_name: name, lora_path: path });
        } catch (error) {
          // An earlier try may have loaded it before its answer was lost.
          const again = attempt > 1 && error instanceof StatusError && error.status === 400;
          if (!again || !(await this.lists(name))) throw error;
        }
      });
    } catch (error) {
      throw refused(error, 'loads no adapters', protocol.adapterHint);
    }
  }

  /** @param path of the directory that it serves, as the server sees it */
  async reload(path: string): Promise<void> {
    const { reload, reloadHint } = this.protocol;
    const { signal } = new AbortController();
    try {
      for (const [where, body] of reload?.(path) ?? [])
        await retrying('reading the weights anew', this.retry, signal, () => this.post(where, body));
    } catch (error) {
      throw refused(error, 'reads no weights anew', reloadHint);
    }
  }

  async unload(name: string): Promise<void> {
    const { signal } = new AbortController();
    await retrying(`unloading the adapter ${name}`, this.retry, signal, async () => {
      await this.post(this.protocol.unloadPath, { lora_name: name });
    }).catch((error: unknown) => {
      // Gone is gone, also where the answer to an earlier try was lost.
      if (!(error instanceof StatusError && [400, 404].includes(error.status))) throw error;
    });
  }

  /** Whether it answers now; it is asked once. */
  async isThere(): Promise<boolean> {
    const limit = AbortSignal.timeout(this.endpoint.connectMs);
    return this.read('/v1/models', undefined, limit).then(
      () => true,
      () => false,
    );
  }

  /** Positions of the server's model, where it reports them. */
  private async readLongest(): Promise<number | undefined> {
    try {
      const limit = AbortSignal.timeout(this.endpoint.connectMs);
      const models: unknown = JSON.parse(await this.read('/v1/models', undefined, limit));
      const all: readonly unknown[] = isObject(models) && Array.isArray(models.data) ? models.data : [];
      const own = all.find((model) => isObject(model) && model.id === this.base) ?? all[0];
      const length = isObject(own) ? own.max_model_len : undefined;
      return typeof length === 'number' && length > 0 ? length : undefined;
    } catch {
      // A server that lists no models may sample all the same; if it cannot, its next answer says why.
      return undefined;
    }
  }

  private async lists(name: string): Promise<boolean> {
    const models: unknown = JSON.parse(await this.read('/v1/models', undefined));
    return isObject(models) && Array.isArray(models.data) && models.data.some((model) => model?.id === name);
  }

  private async post(path: string, body: object): Promise<void> {
    const text = await this.read(path, body);
    // SGLang may answer 200 to a request that failed.
    if (/"success":\s*false/.test(text)) throw new RemoteError(`the server did not: ${text.slice(0, 300)}`);
  }

  private async read(
    path: string,
    body: object | undefined,
    signal = new AbortController().signal,
  ): Promise<string> {
    return received(this.endpoint, path, body, signal);
  }
}

/** The error of a request. For a path that the server does not have, it names what the server lacks. */
function refused(error: unknown, what: string, hint: string | undefined): unknown {
  if (!(error instanceof StatusError && [403, 404, 405].includes(error.status))) return error;
  return new RemoteError(`the server ${what} (${error.message}); ${hint}`, { cause: error });
}

function refuse(option: string, expected: string, found: unknown): never {
  throw invalid(`remoteSource: ${option}: expected ${expected}, found ${JSON.stringify(found)}`);
}
