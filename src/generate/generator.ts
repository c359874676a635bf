/**
 * Generates text for many requests at once, with the weights and kernels of training. Requests may come at any time.
 * Their rows run together, and the result of a row depends on its own request alone.
 */
import type { Adapter } from '../models/adapter.js';
import { checkSequences } from '../models/batch.js';
import type { Decoder, Role } from '../models/decoder.js';
import { DisposedError, invalid, StepTrainError } from '../native/errors.js';
import { PAGE_TOKENS } from '../ops/cache.js';
import { cacheShape, KeyValueCache } from './cache/keys-values.js';
import { PagePool } from './cache/pages.js';
import type { RoleKey } from './cache/prefixes.js';
import { roleKey, sameRole } from './cache/roles.js';
import { type Generation, RunningGeneration } from './generation.js';
import { type SamplingOptions, samplingSettings } from './options.js';
import { cacheBudget, checkWhole, DEFAULT_TOKENS, fastestRows } from './room.js';
import { type Sample, SampledPrompt, SampleRow } from './rows/sample-row.js';
import { keptStatesFor, pagesOfRow, Scheduler, type SchedulerOptions, type Step } from './scheduler.js';
import {
  checkSnapshot,
  type GenerationSnapshot,
  restoredOptions,
  type SavedOptions,
  savedOptions,
} from './snapshot.js';
import { Bodies } from './step/bodies.js';
import { CapturedSteps } from './step/captured.js';
import { decode, type QueuedStep } from './step/decode.js';

export interface GeneratorOptions {
  /**
   * Bytes for keys and values, in addition to the weights. Default: half of what the device may plan for, at most what
   * `maxRows` rows can fill.
   */
  readonly cacheBytes?: number | undefined;
  /** Max samples that run together; others wait. Default: 64 on a CPU, 256 on a GPU. Samples that find no pages wait too. */
  readonly maxRows?: number | undefined;
  /** Max tokens of one forward; longer prompts are computed in chunks. Default 512. */
  readonly maxTokens?: number | undefined;
}

export interface GenerateOptions extends SamplingOptions {
  /** The adapter to sample from. Default: the base. */
  readonly role?: Pick<Role, 'adapter'> | undefined;
  /** Ends all samples with their tokens so far. */
  readonly signal?: AbortSignal | undefined;
  /** Samples that the caller has already, by the number of their prompt and their own: they are not drawn, and end as `abort`. */
  readonly skip?: ((prompt: number, sample: number) => boolean) | undefined;
  /** Called with each sample that has come to its own end. */
  readonly onSample?: ((prompt: number, sample: number, ended: Sample) => void) | undefined;
}

/** The load of a generator. */
export interface GeneratorLoad {
  /** Samples that run, and samples that wait for a place or for pages. */
  readonly running: number;
  readonly waiting: number;
  /** Pages of keys and values of 64 tokens each: all, those that samples use, and those kept for prompts that begin alike. */
  readonly pages: number;
  readonly usedPages: number;
  readonly cachedPages: number;
}

/** The options that a snapshot does not contain. */
export type ResumeOptions = Pick<GenerateOptions, 'role' | 'signal' | 'tokenizer' | 'skip' | 'onSample'>;

/** A request that has not ended. */
interface Running {
  readonly generation: RunningGeneration;
  readonly signal: AbortSignal | undefined;
  /** The request's adapter, and the version of its weights at its start. */
  readonly adapter: Adapter | undefined;
  readonly key: RoleKey;
}

export class Generator {
  private readonly pool: PagePool;
  private readonly scheduler: Scheduler<SampleRow>;
  private readonly limits: SchedulerOptions;
  private readonly pageBytes: number;
  private readonly bodies: Bodies;
  private readonly captured: CapturedSteps;
  private cache: KeyValueCache | undefined;
  private readonly running = new Set<Running>();
  private readonly owners = new Map<SampleRow, RunningGeneration>();
  private loop: Promise<void> | undefined;
  /** The next step, if it was queued before the one before it was read. */
  private ahead: readonly QueuedStep<SampleRow>[] | undefined;
  /** Resolves when the last chunk of prompts has run. */
  private chunk: Promise<void> | undefined;
  private roles: readonly RoleKey[] = [];
  private disposed = false;
  private readonly isCpu: boolean;

  /** @param decoder stays the caller's, and must outlive the generator */
  constructor(
    readonly decoder: Decoder,
    { cacheBytes, maxRows = fastestRows(decoder.device), maxTokens = DEFAULT_TOKENS }: GeneratorOptions = {},
  ) {
    const { pageBytes, rowBytes, window } = cacheShape(decoder);
    const states = (maxRows + keptStatesFor(maxRows)) * rowBytes;
    const bytes = cacheBytes ?? Math.max(0, cacheBudget(decoder.device) - states);
    this.isCpu = decoder.device.info().name === 'cpu';
    checkWhole({ maxRows, maxTokens, cacheBytes: bytes });
    const keptStates = rowBytes > 0 ? keptStatesFor(maxRows) : undefined;
    this.limits = { maxRows, maxTokens, window, keptStates };
    const maxPages = maxRows * pagesOfRow(decoder.config.maxPositions, this.limits);
    this.pool = new PagePool(Math.min(Math.floor(bytes / pageBytes), maxPages));
    this.scheduler = new Scheduler(this.pool, this.limits);
    this.pageBytes = pageBytes;
    this.bodies = new Bodies(decoder);
    this.captured = new CapturedSteps(decoder, maxRows);
  }

  /** Bytes of keys and values that are held while there are requests and until `release`. */
  get cacheBytes(): number {
    return this.pool.size * this.pageBytes;
  }

  /** Tokens of the longest sample that fits, its prompt included. */
  get longestSample(): number {
    const { maxPositions } = this.decoder.config;
    const fits = pagesOfRow(maxPositions - 1, this.limits) <= this.pool.size;
    return fits ? maxPositions : this.pool.size * PAGE_TOKENS + 1;
  }

  /**
   * Starts a request. Its samples are the same whatever else runs, in which order, and with which limits (on the CPU bit
   * for bit, within one instruction set).
   *
   * @param prompts token ids; at least one each
   * @throws StepTrainError for a prompt that the model cannot read, an option out of range, a sample that does not fit
   */
  generate(prompts: readonly ArrayLike<number>[], options: GenerateOptions = {}): Generation {
    const { role: _, signal: _signal, skip: _skip, onSample: _onSample, ...sampling } = options;
    return this.start(prompts, options, savedOptions(sampling));
  }

  /**
   * Continues a request from its snapshot. With the same weights its samples are those of the uninterrupted request.
   *
   * @throws StepTrainError for an invalid snapshot, and whatever `generate` throws
   */
  resume(snapshot: GenerationSnapshot, options: ResumeOptions = {}): Generation {
    checkSnapshot(snapshot, this.decoder.config.vocabSize);
    const { prompts, options: saved, samples } = snapshot;
    return this.start(prompts, { ...restoredOptions(saved), ...options }, saved, samples);
  }

  get load(): GeneratorLoad {
    const { pool, scheduler } = this;
    const cachedPages = scheduler.prefixes.idle;
    return {
      running: scheduler.runningRows,
      waiting: scheduler.size - scheduler.runningRows,
      pages: pool.size,
      usedPages: pool.size - pool.free - cachedPages,
      cachedPages,
    };
  }

  /** Drops the cache of an adapter that no request uses and none will. */
  forget(adapter: Adapter): void {
    const key = roleKey(this.decoder, { adapter });
    for (const role of this.roles) if (sameRole(role, key)) this.scheduler.prefixes.clear(role);
    this.roles = this.roles.filter((role) => !sameRole(role, key));
    this.bodies.forget(adapter);
    this.captured.forget(adapter);
  }

  /** Frees the memory of keys and values, for example before a phase of training; the next request allocates it again. */
  release(): void {
    if (this.scheduler.size > 0)
      throw new StepTrainError('E_STATE', 'generator: release while requests run; await or abort them first');
    this.scheduler.prefixes.clear();
    this.freeMemory();
  }

  /** Rejects running requests and frees the cache. A second call does nothing. */
  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    if (!this.loop) this.freeMemory();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  private freeMemory(): void {
    this.captured.release();
    this.cache?.dispose();
    this.cache = undefined;
    this.bodies.release();
  }

  private start(
    prompts: readonly ArrayLike<number>[],
    options: GenerateOptions,
    saved: SavedOptions,
    samples?: GenerationSnapshot['samples'],
  ): Generation {
    if (this.disposed) throw new DisposedError('the generator');
    const { decoder } = this;
    const { config } = decoder;
    checkSequences('generate', prompts, config);
    const settings = samplingSettings(options, config, prompts.length);
    const { adapter } = options.role ?? {};
    decoder.head({ adapter });
    if (adapter?.head)
      throw invalid(
        'generate: the adapter is a classifier such as a reward network: it scores text and writes none',
      );
    const key = roleKey(decoder, { adapter });
    const lists = prompts.map((ids) => Array.from(ids));
    const rows = lists.map((ids, index) => {
      const prompt = new SampledPrompt(ids, index);
      return Array.from({ length: settings.n }, (_, sample) => {
        const row = new SampleRow(key, { adapter }, settings, config.maxPositions, prompt, sample);
        const earlier = samples?.[index]?.[sample];
        if (earlier) row.restore(earlier);
        if (options.skip?.(index, sample)) row.end('abort');
        return row;
      });
    });
    for (const [row] of rows) if (row) this.checkFits(row, lists[row.promptIndex]?.length as number);
    this.forgetOlder(key);
    const generation = new RunningGeneration(rows, lists, saved, options.onSample);
    for (const row of rows.flat()) {
      if (row.finishReason) continue;
      this.owners.set(row, generation);
      this.scheduler.add(row, row.longest - 1);
    }
    this.running.add({ generation, signal: options.signal, adapter, key });
    this.loop ??= this.run();
    return generation;
  }

  private checkFits({ promptIndex, longest }: SampleRow, length: number): void {
    if (longest <= length) {
      throw invalid(
        `generate: prompt ${promptIndex} has ${length} tokens, as many as the model reads (max_position_embeddings): ` +
          'no token can follow; shorten it',
      );
    }
    const needed = pagesOfRow(longest - 1, this.limits);
    const missing = needed - this.pool.size;
    if (missing <= 0) return;
    throw new StepTrainError(
      'E_MEMORY',
      `generate: prompt ${promptIndex} of ${length} tokens with up to ${longest - length} new ones needs ` +
        `${needed * this.pageBytes} bytes of keys and values, and the cache has ` +
        `${this.cacheBytes}: ${missing * this.pageBytes} are missing; lower maxNewTokens or raise cacheBytes`,
    );
  }

  /** Drops cached prefixes from before a change of the weights. */
  private forgetOlder(key: RoleKey): void {
    for (const old of this.roles) if (old !== key && sameRole(old, key)) this.scheduler.prefixes.clear(old);
    this.roles = [...this.roles.filter((old) => !sameRole(old, key)), key];
  }

  private async run(): Promise<void> {
    // Requests that are made together start together.
    await Promise.resolve();
    try {
      for (;;) {
        this.endAborted();
        this.failChanged();
        for (const running of this.running) {
          running.generation.settle();
          if (running.generation.isDone) this.running.delete(running);
        }
        if (this.running.size === 0) break;
        if (this.disposed) throw new DisposedError('the generator');
        await this.step();
      }
    } catch (error) {
      for (const { generation } of this.running) generation.fail(error);
      this.running.clear();
      this.remove(new Set(this.owners.keys()));
    } finally {
      for (const queued of this.ahead ?? []) queued.dispose();
      this.ahead = undefined;
      this.chunk = undefined;
      this.loop = undefined;
      if (this.disposed) this.freeMemory();
    }
  }

  /** Ends one step; where it can, it queues the next one first, so that the device never waits for the host. */
  private async step(): Promise<void> {
    const { scheduler } = this;
    const step = this.ahead ?? this.queue(scheduler.next());
    try {
      const next = scheduler.ahead();
      this.ahead = next && this.queue(next, step);
      for (const { rows, result } of step) {
        const { drawn, scores } = await result;
        for (const { row, first, logprobs, likeliest } of scores)
          row.acceptScores(first, logprobs, likeliest);
        rows.forEach((row, i) => {
          // The row may have ended since, by the token before or by an abort.
          if (row.finishReason) return;
          const owner = this.owners.get(row);
          owner?.publish(row.accept(drawn[i] as (typeof drawn)[number]));
          if (!row.finishReason) return;
          owner?.ended(row);
          this.remove(new Set([row]));
        });
      }
      if (step.every(({ rows }) => rows.length === 0)) await this.chunkDone();
    } finally {
      for (const queued of step) queued.dispose();
    }
  }

  /**
   * Nothing is read of a chunk of a prompt, yet an abort must be heard before the next one is queued. A GPU has one more queued
   * meanwhile, so that it need not wait for the host.
   */
  private async chunkDone(): Promise<void> {
    const earlier = this.chunk;
    const last = this.decoder.device.synchronize();
    last.catch(() => {});
    this.chunk = last;
    await (this.isCpu ? last : earlier);
  }

  /** @param before draws the tokens of the step, where it runs ahead */
  private queue(
    step: Step<SampleRow>,
    before: readonly QueuedStep<SampleRow>[] = [],
  ): readonly QueuedStep<SampleRow>[] {
    const { decoder, scheduler } = this;
    const { maxRows, keptStates = 0 } = this.limits;
    this.cache ??= new KeyValueCache(decoder, this.pool.size, maxRows + keptStates);
    const cache = this.cache;
    cache.copy(step.copies);
    cache.copyStates(step.stateCopies);
    const queued = this.bodies.of(step.slices, this.owners.keys()).map(({ slices, role, stack }) => {
      const [first] = slices;
      const drawing = before.find(({ rows }) => first && rows.includes(first.row))?.drawing;
      const model = { decoder, cache, role, stack };
      return this.captured.decode(model, slices, drawing) ?? decode(model, slices, drawing);
    });
    cache.copyStates(scheduler.done(step));
    // The result of a step without readers may fail with the one before it.
    for (const { result } of queued) result.catch(() => {});
    return queued;
  }

  private endAborted(): void {
    const ended = new Set<SampleRow>();
    for (const { generation, signal } of this.running) {
      if (!generation.isAborted && !signal?.aborted) continue;
      for (const row of this.unfinished(generation)) {
        generation.publish(row.end('abort'));
        ended.add(row);
      }
    }
    this.remove(ended);
  }

  /** A sample has one set of weights: requests fail whose weights have changed under them. */
  private failChanged(): void {
    const keys = new Map<Adapter | undefined, RoleKey>();
    const ended = new Set<SampleRow>();
    for (const running of this.running) {
      const { generation, adapter, key } = running;
      const now = keys.get(adapter) ?? roleKey(this.decoder, { adapter });
      keys.set(adapter, now);
      if (now === key) continue;
      for (const row of this.unfinished(generation)) {
        row.end('error');
        ended.add(row);
      }
      this.running.delete(running);
      generation.fail(
        new StepTrainError(
          'E_STATE',
          'generate: the weights changed while samples were under way; await the samples, or abort them, before an ' +
            'optimizer step',
        ),
      );
    }
    this.remove(ended);
  }

  private unfinished({ rows }: RunningGeneration): readonly SampleRow[] {
    return rows.flat().filter(({ finishReason }) => finishReason === undefined);
  }

  private remove(rows: ReadonlySet<SampleRow>): void {
    this.scheduler.remove(rows);
    for (const row of rows) this.owners.delete(row);
  }
}
