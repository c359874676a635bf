/**
 * Steps that decode one token a row, recorded once for each number of rows and replayed: the host then writes two arrays and
 * queues one replay instead of every op. All recordings share one memory pool. The CPU records exact numbers of rows; a GPU
 * rounds them up, and the rows too many write nothing.
 */
import type { Adapter } from '../../models/adapter.js';
import type { AdapterStack } from '../../models/adapter-stack.js';
import type { Decoder } from '../../models/decoder.js';
import { PAGE_TOKENS } from '../../ops/cache.js';
import { headLogits } from '../../ops/head.js';
import type { Graph, GraphPool } from '../../runtime/graph.js';
import type { Tensor } from '../../runtime/tensor.js';
import type { KeyValueCache } from '../cache/keys-values.js';
import { pagesFor } from '../cache/pages.js';
import type { Row, Slice } from '../scheduler.js';
import { StepBuffers, type StepShape } from './buffers.js';
import { alternativeLogits, type DecodedModel, type DecodedRow, type QueuedStep } from './decode.js';
import { drawnOf } from './drawn.js';
import { StepDraws } from './draws.js';
import { type DrawingStep, longestOf } from './inputs.js';
import { isBiased, type SampledRow } from './sampling-inputs.js';

/** Shapes that are remembered; those that came longest ago go first. */
const MOST = 32;
/** Pages of the smallest table: as many keys as one split of a GPU's attention. */
const MIN_PAGES = 8;

interface Recording {
  readonly inputs: StepBuffers;
  /** Gives the logits of all rows, f32 [R, V], until another recording is replayed. */
  readonly graph: Graph<Tensor>;
}

export class CapturedSteps {
  private readonly mostRows: number;
  private readonly exact: boolean;
  private pool: GraphPool | undefined;
  private cache: KeyValueCache | undefined;
  private stack: AdapterStack | undefined;
  private readonly draws = new Map<Adapter | undefined, StepDraws>();
  /** Recordings by body and shape; undefined for a shape that has occurred once. */
  private readonly shapes = new Map<string, Recording | undefined>();

  constructor(
    private readonly decoder: Decoder,
    maxRows: number,
  ) {
    this.exact = decoder.device.info().name === 'cpu';
    this.mostRows = this.rounded(maxRows);
  }

  /**
   * Queues a step of `slices` as `decode` does, with its bits; undefined where it is none to replay: a row computes other than its
   * next token, a draw has biases or allowed tokens, or the shape comes for the first time.
   *
   * @param before draws the tokens of the slices, one each, if they are not known yet
   */
  decode<R extends DecodedRow>(
    model: DecodedModel,
    slices: readonly Slice<R>[],
    before?: DrawingStep,
  ): QueuedStep<R> | undefined {
    if (!slices.every(isNextToken)) return undefined;
    const sampled = slices.map(({ row, to }) => row.sampledAt(to));
    if (sampled.some(isBiased)) return undefined;
    this.follow(model);
    const draws = this.drawsOf(model.role.adapter);
    const recording = this.recordingOf(model, slices, draws);
    if (!recording) return undefined;
    const { graph, inputs } = recording;
    inputs.write(slices, sampled, before, model.stack);
    graph.replay();
    const rows = slices.map(({ row }) => row);
    const alternatives = alternativeLogits(graph.result, sampled);
    const views = draws.of(inputs.shape.rows);
    return {
      rows,
      result: read(draws, inputs.shape.rows, sampled, alternatives).then((drawn) => ({ drawn, scores: [] })),
      drawing: {
        rows,
        tokens: views.tokens,
        lengths: views.lengths,
        counts: slices.map(({ to }) => to),
        draws,
      },
      dispose: () => alternatives?.dispose(),
    };
  }

  /** Forgets recordings, and draws with `adapter`, which no request uses; queued steps go on. */
  forget(adapter?: Adapter): void {
    if (adapter) this.draws.get(adapter)?.dispose();
    if (adapter) this.draws.delete(adapter);
    for (const recording of this.shapes.values()) disposeOf(recording);
    this.shapes.clear();
    this.pool?.dispose();
    this.pool = undefined;
  }

  /** Frees all memory. No step may be read, nor a step follow one of before. */
  release(): void {
    this.forget();
    for (const draws of this.draws.values()) draws.dispose();
    this.draws.clear();
    this.cache = this.stack = undefined;
  }

  /** Recordings read the cache and the packed adapters that they were made with. */
  private follow({ cache, stack }: DecodedModel): void {
    if (this.cache !== cache || (stack && this.stack && this.stack !== stack)) this.forget();
    this.cache = cache;
    this.stack = stack ?? this.stack;
  }

  private drawsOf(adapter: Adapter | undefined): StepDraws {
    const draws = this.draws.get(adapter) ?? new StepDraws(this.decoder.device, this.mostRows);
    this.draws.set(adapter, draws);
    return draws;
  }

  private recordingOf<R extends DecodedRow>(
    model: DecodedModel,
    slices: readonly Slice<R>[],
    draws: StepDraws,
  ): Recording | undefined {
    const { maxPositions } = this.decoder.config;
    let pages = MIN_PAGES;
    while (pages < pagesFor(longestOf(slices))) pages *= 2;
    const shape = { rows: this.rounded(slices.length), pages: Math.min(pages, pagesFor(maxPositions)) };
    const body = [...this.draws.keys()].indexOf(model.role.adapter);
    const key = `${body} ${model.stack !== undefined} ${shape.rows} ${shape.pages}`;
    const met = this.shapes.has(key);
    const recording = this.shapes.get(key) ?? (met ? this.record(model, shape, draws) : undefined);
    this.shapes.delete(key);
    this.shapes.set(key, recording);
    for (const [oldest, old] of this.shapes) {
      if (this.shapes.size <= MOST) break;
      disposeOf(old);
      this.shapes.delete(oldest);
    }
    return recording;
  }

  private record({ role, cache, stack }: DecodedModel, shape: StepShape, draws: StepDraws): Recording {
    const { decoder } = this;
    const { device } = decoder;
    const longest = Math.min(shape.pages * PAGE_TOKENS, decoder.config.maxPositions);
    decoder.prepare(longest);
    this.pool ??= device.graphPool();
    const inputs = new StepBuffers(device, shape, draws);
    const { pages, queryOffsets, states } = inputs;
    const drawn = draws.of(shape.rows);
    try {
      const graph = device.capture(() => {
        const { ids, positions, slots, next_lengths } = device.ops.advance({
          tokens: draws.tokens,
          lengths: inputs.lengths,
          rows: inputs.from,
          pages,
          next_lengths: drawn.lengths,
        });
        const places = { slots, lengths: next_lengths, pages, queryOffsets, states, decodes: true };
        const batch = { ids, positions, longest, ...places };
        const as = stack ? { ...role, stack, adapterOf: inputs.adapterOf } : role;
        const hidden = decoder.forwardAttending(batch, as, cache.past(batch));
        const logits = headLogits(hidden, decoder.head(role));
        device.ops.sample({
          logits,
          keys: inputs.keys,
          temperature: inputs.temperature,
          top_k: inputs.topK,
          top_p: inputs.topP,
          min_p: inputs.minP,
          tokens: drawn.tokens,
          logprobs: drawn.logprobs,
          sampling_logprobs: drawn.sampling,
          tempered_logprobs: drawn.tempered,
          status: drawn.status,
        });
        return logits;
      }, this.pool);
      return { inputs, graph };
    } catch (error) {
      inputs.dispose();
      throw error;
    }
  }

  /** Rows of a recording for so many rows. */
  private rounded(rows: number): number {
    if (this.exact) return rows;
    if (rows <= 8) return 2 ** Math.ceil(Math.log2(rows));
    const step = rows <= 64 ? 8 : 64;
    return Math.ceil(rows / step) * step;
  }
}

/** Whether the slice computes one token and then draws the next, and nothing else is asked of it. */
const isNextToken = ({ row, from, to, cached }: Slice<Row & Pick<DecodedRow, 'scored'>>) =>
  to - from === 1 && cached === from && to >= row.tokens.length && from >= row.scored - 1;

function disposeOf(recording: Recording | undefined): void {
  recording?.graph.result.dispose();
  recording?.graph.dispose();
  recording?.inputs.dispose();
}

/** Two reads, queued at once: the next replay overwrites their sources. */
async function read(
  draws: StepDraws,
  count: number,
  rows: readonly SampledRow[],
  alternatives: Tensor | undefined,
) {
  const { integers, floats } = draws.of(count);
  const [drawn, logprobs, logits] = await Promise.all([
    integers.read(),
    floats.readFloats(),
    alternatives?.readFloats(),
  ]);
  return drawnOf(rows, {
    tokens: drawn,
    status: drawn.subarray(count),
    logprobs,
    tempered: logprobs.subarray(count),
    sampling: logprobs.subarray(2 * count),
    alternatives: logits,
  });
}
