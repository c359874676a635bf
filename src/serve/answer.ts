/** Runs a generation request and writes its samples: all at the end, or token by token as events. */
import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { Generation } from '../generate/generation.js';
import type { Engine } from './engine.js';
import { RequestError } from './errors.js';
import { EventStream, endWithin } from './event-stream.js';
import type { GenerationRequest } from './generation-request.js';
import type { Job } from './job.js';
import { type ScoredToken, TextOffsets } from './token-logprobs.js';
import { TokenTimes } from './token-times.js';

export interface Exchange {
  readonly response: ServerResponse;
  /** Aborted if the client disconnects or the server ends. */
  readonly signal: AbortSignal;
  /** Time in milliseconds, from `performance.now()`. */
  readonly arrived: number;
  /** Rest of the path after its route: the name in `/v1/models/name`. */
  readonly rest: string | undefined;
}

export async function answer(engine: Engine, job: Job, exchange: Exchange): Promise<void> {
  const { request, prompts } = job;
  const { metrics } = engine;
  const lease = engine.models.lease(request.model);
  try {
    const generation = engine.start(job, lease, exchange.signal);
    metrics.promptTokens += tokensOf(prompts);
    const head = {
      id: `${job.shape.prefix}-${randomUUID()}`,
      created: Math.floor(Date.now() / 1000),
      model: lease.name,
    };
    try {
      if (request.stream) await stream(engine, generation, job, head, exchange);
      else await whole(engine, generation, job, head, exchange);
    } finally {
      // The adapter may be freed only when all rows have ended.
      generation.abort();
      await generation.samples.catch((error: unknown) => engine.fail(error));
    }
    metrics.requestSeconds.observe((performance.now() - exchange.arrived) / 1000);
  } finally {
    lease.release();
  }
}

type Head = Readonly<Record<'id' | 'model', string>> & { readonly created: number };

async function whole(
  engine: Engine,
  generation: Generation,
  { request, prompts, maxTokens, shape }: Job,
  head: Head,
  { response, signal, arrived }: Exchange,
): Promise<void> {
  const times = new TokenTimes(engine.metrics, arrived);
  for await (const { prompt, sample, token, finishReason } of generation)
    times.note(prompt * request.n + sample, {
      isToken: token !== undefined,
      isLast: finishReason !== undefined,
    });
  const samples = await generation.samples;
  const drawn = samples.flat();
  engine.metrics.generatedTokens += tokensOf(drawn.map(({ tokens }) => tokens));
  if (response.destroyed) return;
  if (drawn.some(({ finishReason }) => finishReason === 'error')) throw notANumber();
  const choices = samples.flatMap((list, prompt) =>
    list.map((sample, i) => {
      const scored = sample.tokens.map((token, t) => ({
        token,
        logprob: sample.logprobs[t],
        alternatives: sample.topLogprobs?.[t],
      }));
      return shape.choice({
        index: prompt * request.n + i,
        prompt,
        first: true,
        offsets: new TextOffsets(engine.served.tokenizer),
        text: maxTokens === 0 ? '' : (sample.text ?? ''),
        tokens: maxTokens === 0 ? [] : scored,
        promptLogprobs: sample.promptLogprobs,
        promptTopLogprobs: sample.promptTopLogprobs,
        finishReason: maxTokens === 0 ? 'length' : sample.finishReason,
        stopReason: maxTokens === 0 ? null : stopReason(engine, request, sample.stop),
      });
    }),
  );
  const completion = maxTokens === 0 ? 0 : tokensOf(drawn.map(({ tokens }) => tokens));
  response.setHeader('content-type', 'application/json; charset=utf-8');
  if (signal.aborted) response.setHeader('connection', 'close');
  await endWithin(
    response,
    JSON.stringify({
      ...head,
      object: shape.object,
      choices,
      usage: usage(tokensOf(prompts), completion),
      ...besideChoices(shape),
    }),
    engine.limits.stallSeconds,
  );
}

async function stream(
  engine: Engine,
  generation: Generation,
  { request, prompts, maxTokens, shape, topLogprobs }: Job,
  head: Head,
  { response, arrived }: Exchange,
): Promise<void> {
  const { metrics, limits } = engine;
  const events = new EventStream(response, limits.stallSeconds);
  const chunkHead = { ...head, object: shape.chunkObject };
  const times = new TokenTimes(metrics, arrived);
  const written = new Map<number, { offsets: TextOffsets; pending: ScoredToken[]; count: number }>();
  let completion = 0;
  try {
    for await (const {
      prompt,
      sample,
      token,
      logprob,
      topLogprobs: alternatives,
      text = '',
      ...end
    } of generation) {
      const index = prompt * request.n + sample;
      const earlier = written.get(index);
      const state = earlier ?? { offsets: new TextOffsets(engine.served.tokenizer), pending: [], count: 0 };
      written.set(index, state);
      if (token !== undefined) {
        metrics.generatedTokens++;
        completion++;
        state.count++;
        state.pending.push({ token, logprob, alternatives });
      }
      const { finishReason = null, stop } = end;
      times.note(index, { isToken: token !== undefined, isLast: finishReason !== null });
      if (finishReason === 'error') throw notANumber();
      // Text that may become a stop text is held back together with its tokens.
      if (earlier && text === '' && finishReason === null && topLogprobs === 0 && !request.tokenIds) continue;
      const shown = maxTokens === 0 ? '' : text;
      const part = {
        index,
        prompt,
        first: !earlier,
        offsets: state.offsets,
        text: shown,
        tokens: maxTokens === 0 ? [] : state.pending.splice(0),
        finishReason,
        stopReason: stopReason(engine, request, stop),
      };
      await events.send({
        ...chunkHead,
        choices: [shape.chunk(part)],
        ...(part.first ? besideChoices(shape) : {}),
        ...(request.continuousUsage
          ? { usage: usage(prompts[prompt]?.length ?? 0, maxTokens === 0 ? 0 : state.count) }
          : {}),
      });
    }
    if (request.includeUsage)
      await events.send({
        ...chunkHead,
        choices: [],
        usage: usage(tokensOf(prompts), maxTokens === 0 ? 0 : completion),
      });
  } catch (error) {
    if (!(error instanceof RequestError)) engine.fail(error);
    const refusal =
      error instanceof RequestError ? error : new RequestError(500, 'the server failed; see its log');
    await events.send(refusal.body);
  }
  await events.end();
}

const besideChoices = ({ promptIds }: Job['shape']) => (promptIds ? { prompt_token_ids: promptIds } : {});

/** The token or text that ended a sample; null for an end-of-text token, as in vLLM. */
function stopReason(
  { eosTokenIds }: Engine,
  { sampling }: GenerationRequest,
  stop: number | string | undefined,
): number | string | null {
  if (stop === undefined) return null;
  const asked = sampling.stop?.includes(stop) ?? false;
  return typeof stop === 'number' && eosTokenIds.includes(stop) && !asked ? null : stop;
}

function notANumber(): RequestError {
  return new RequestError(500, 'the model gave something that is not a number for this prompt');
}

function usage(prompt: number, completion: number): object {
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

function tokensOf(lists: readonly { readonly length: number }[]): number {
  return lists.reduce((sum, { length }) => sum + length, 0);
}
