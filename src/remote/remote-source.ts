/** Samples of servers: steptrain serve, vLLM or SGLang. */
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { posix, resolve } from 'node:path';
import type { SampleSource, SourceOptions, SourceSample } from '../generate/sample-source.js';
import type { Adapter } from '../models/adapter.js';
import type { Decoder } from '../models/decoder.js';
import { invalid } from '../native/errors.js';
import { toLog } from '../terminal/log.js';
import { DrawnAhead } from './drawn-ahead.js';
import { RemoteError } from './errors.js';
import { RemoteServer, type RemoteServerOptions } from './remote-server.js';
import { writeOver } from './served-weights.js';
import { spread } from './spread.js';

export interface RemoteSourceOptions extends RemoteServerOptions {
  /** URL without /v1: `http://127.0.0.1:8000`. Several have the same base, and share the prompts. */
  readonly url: string | readonly string[];
  /**
   * The folder for published adapters, and the same folder as the server sees it. Without it nothing can be published.
   */
  readonly adapters?: { readonly directory: string; readonly seenAs?: string };
  /**
   * The model directory that the servers were started on, for a model that is trained whole: its weights are
   * overwritten. And the same directory as the server sees it.
   */
  readonly weights?: { readonly directory: string; readonly seenAs?: string };
  /** Hears that one of several servers is left out, or is back. Default: standard error. */
  readonly tell?: (sentence: string) => void;
}

/**
 * Servers as a source of samples. Each request is one prompt. It is tried again where it fails, and its samples count
 * when all of them came whole, so that none is lost and none counts twice. For the same weights, samples of `steptrain
 * serve` equal those of the generator in process bit for bit.
 *
 * Several servers each take the next prompt as they have room. One that does not answer after all tries is left out,
 * and the others draw its prompts. Before the next samples it is tried again, and gets the adapter first: all samples
 * of one call come from the adapter that was published last.
 *
 * @throws StepTrainError for an option out of range
 */
export function remoteSource({ url, ...options }: RemoteSourceOptions): SampleSource {
  const urls = typeof url === 'string' ? [url] : url;
  if (urls.length === 0) throw invalid('remoteSource: url: expected at least one address, found none');
  const twice = urls.find((each, i) => urls.indexOf(each) < i);
  if (twice !== undefined) throw invalid(`remoteSource: url: ${twice} is given twice; name each server once`);
  return new RemoteSource(
    urls.map((each) => new RemoteServer(each, options)),
    options,
  );
}

/** An adapter by its name; without one, the weights of the model. */
interface Published {
  readonly name?: string;
  readonly directory: string;
  readonly path: string;
}

class RemoteSource implements SampleSource {
  /** Servers that answer. */
  private readonly live: Set<RemoteServer>;
  private readonly adapters: RemoteSourceOptions['adapters'];
  private readonly weights: RemoteSourceOptions['weights'];
  private readonly tell: (sentence: string) => void;
  /** Prefix of this source's adapters, so that those of another run are never taken for them. */
  private readonly prefix = `steptrain-${randomBytes(6).toString('hex')}`;
  private published: Published | undefined;
  /** Number of times that each name was written. Files are never written over while a server reads them. */
  private readonly written = new Map<string, number>();
  /** Folders in which an adapter lies, also for rounds that are not drawn yet. */
  private readonly folders = new Set<string>();
  private readonly ahead = new DrawnAhead();

  constructor(
    private readonly servers: readonly RemoteServer[],
    { adapters, weights, tell = toLog }: Pick<RemoteSourceOptions, 'adapters' | 'weights' | 'tell'>,
  ) {
    this.live = new Set(servers);
    this.adapters = adapters;
    this.weights = weights;
    this.tell = tell;
  }

  async sample(
    prompts: readonly (readonly number[])[],
    options: SourceOptions,
  ): Promise<readonly (readonly SourceSample[])[] | undefined> {
    return this.ahead.take(options.iteration ?? 0, options) ?? this.draw(prompts, options);
  }

  async begin(
    adapter: Adapter,
    prompts: readonly (readonly number[])[],
    options: SourceOptions & { readonly iteration: number },
  ): Promise<void> {
    const { iteration } = options;
    const written = await this.write(adapter, iteration);
    this.ahead.begin(iteration, async (signal) => {
      await this.load(written);
      return this.draw(prompts, { ...options, signal });
    });
  }

  private async draw(
    prompts: readonly (readonly number[])[],
    options: SourceOptions,
  ): Promise<readonly (readonly SourceSample[])[] | undefined> {
    const adapter = this.published?.name;
    const [only] = this.servers as [RemoteServer];
    if (this.servers.length === 1) return only.sample(prompts, { ...options, adapter });
    await this.lookAgain();
    const { n = 1, promptIds, skip, onSample, signal } = options;
    const samples = prompts.map(() => new Array<SourceSample>(n));
    const whole = await spread(
      [...this.live],
      prompts.map((_, index) => index),
      {
        signal,
        atOnce: (server) => server.promptsAtOnce(n),
        leave: (server, error) => this.leave(server, error),
      },
      async (server, index, stop) => {
        const own = samples[index] as SourceSample[];
        const number = 1 + this.servers.indexOf(server);
        await server.sample([prompts[index] as readonly number[]], {
          ...options,
          adapter,
          promptIds: [promptIds?.[index] ?? index],
          signal: stop,
          // Samples that a server drew before it was lost are not drawn again.
          skip: (_, sample) => own[sample] !== undefined || skip?.(index, sample) === true,
          onSample(_, sample, drawn) {
            const ended = { ...drawn, server: number };
            own[sample] = ended;
            onSample?.(index, sample, ended);
          },
        });
        stop.throwIfAborted();
      },
    );
    return whole ? samples : undefined;
  }

  async publish(adapter: Adapter, iteration: number): Promise<void> {
    await this.load(await this.write(adapter, iteration));
  }

  async publishWeights(decoder: Decoder): Promise<void> {
    const { weights } = this;
    if (!weights)
      throw new RemoteError('the source has no weights.directory, which the servers were started on');
    await writeOver(weights.directory, decoder);
    await this.load({ directory: weights.directory, path: weights.seenAs ?? resolve(weights.directory) });
  }

  private async write(adapter: Adapter, iteration: number): Promise<Published> {
    const { adapters, prefix } = this;
    if (!adapters)
      throw new RemoteError(
        'the source has no adapters.directory, in which the server finds what is published',
      );
    const own = `${prefix}-${iteration}`;
    const times = this.written.get(own) ?? 0;
    this.written.set(own, times + 1);
    const name = times > 0 ? `${own}.${times}` : own;
    const directory = resolve(adapters.directory, name);
    this.folders.add(directory);
    await adapter.save(directory);
    return {
      name,
      directory,
      path: adapters.seenAs === undefined ? directory : posix.join(adapters.seenAs, name),
    };
  }

  private async load(published: Published): Promise<void> {
    const { published: earlier } = this;
    await this.onAll((server) => give(server, published));
    this.published = published;
    const { name, directory } = earlier ?? {};
    if (name === undefined || directory === undefined) return;
    await this.onAll((server) => server.unload(name));
    await this.remove(directory);
  }

  private async remove(directory: string): Promise<void> {
    await rm(directory, { recursive: true, force: true });
    this.folders.delete(directory);
  }

  async close(): Promise<void> {
    await this.ahead.end();
    const name = this.published?.name;
    this.published = undefined;
    if (name !== undefined) await Promise.allSettled([...this.live].map((server) => server.unload(name)));
    for (const directory of this.folders) await this.remove(directory);
    for (const server of this.servers) server.close();
  }

  private async onAll(work: (server: RemoteServer) => Promise<void>): Promise<void> {
    await Promise.all(
      [...this.live].map((server) =>
        work(server).catch((error: unknown) => {
          if (!(error instanceof RemoteError)) throw error;
          this.leave(server, error);
        }),
      ),
    );
  }

  /** @throws the error where no other server is left */
  private leave(server: RemoteServer, error: RemoteError): void {
    const { live, servers } = this;
    if (live.size === 1 && live.has(server)) throw error;
    if (!live.delete(server)) return;
    this.tell(
      `${server.url} is left out until it answers again (${error.message}); ${live.size} of ${servers.length} servers go on`,
    );
  }

  /** Takes those back that answer again and have the adapter. */
  private async lookAgain(): Promise<void> {
    const { published } = this;
    const lost = this.servers.filter((server) => !this.live.has(server));
    await Promise.all(
      lost.map(async (server) => {
        if (!(await server.isThere())) return;
        try {
          if (published) await give(server, published);
        } catch {
          return;
        }
        this.live.add(server);
        this.tell(`${server.url} is back: ${this.live.size} of ${this.servers.length} servers go on`);
      }),
    );
  }
}

const give = (server: RemoteServer, { name, path }: Published): Promise<void> =>
  name === undefined ? server.reload(path) : server.load(name, path);
