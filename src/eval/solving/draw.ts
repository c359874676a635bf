// Draws the missing samples. A sample depends on its problem, its number and the settings alone, so it does not matter
// which others are drawn with it, are drawn before it, or exist already.
import type { Model } from '../../api/model.js';
import { exchange } from '../../cluster/exchange.js';
import { Generator } from '../../generate/generator.js';
import type { SamplingOptions } from '../../generate/options.js';
import { roomToGenerate } from '../../generate/room.js';
import type { FinishReason, SavedSample } from '../../generate/rows/sample-row.js';
import { savedOptions } from '../../generate/snapshot.js';
import { processesOf } from '../../runtime/processes.js';
import type { DrawnSample } from './sample.js';

export interface DrawOptions extends Omit<SamplingOptions, 'promptIds' | 'n'> {
  readonly n: number;
  /** Max samples at a time. */
  readonly maxRows?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Whether a sample exists already. */
  readonly has: (problem: number, sample: number) => boolean;
  readonly onSample: (sample: DrawnSample) => void;
  readonly onToken: () => void;
}

/**
 * Draws samples. In a job each process draws those of its problems, and receives all.
 *
 * @param prompts token ids by problem
 */
export async function drawSamples(
  model: Pick<Model, 'decoder' | 'adapter'>,
  prompts: readonly (readonly number[])[],
  { n, maxRows, signal, has, onSample, onToken, tokenizer, ...sampling }: DrawOptions,
): Promise<void> {
  const { decoder, adapter } = model;
  const numbers = Array.from({ length: n }, (_, sample) => sample);
  const missing = prompts.flatMap((ids, problem) => {
    const left = numbers.filter((sample) => !has(problem, sample));
    return left.length === 0 ? [] : [{ ids, problem, left }];
  });
  const [fitting, tooLong] = [
    missing.filter(({ ids }) => ids.length < decoder.config.maxPositions),
    missing.filter(({ ids }) => ids.length >= decoder.config.maxPositions),
  ];
  for (const { problem, left } of tooLong)
    for (const sample of left) onSample({ problem, sample, text: '', tokens: 0, finish_reason: 'too_long' });
  if (fitting.length === 0 || signal?.aborted) return;

  const all = fitting.map(({ ids }) => ids);
  const options = { ...sampling, n, ...(tokenizer ? { tokenizer } : {}) };
  const room = roomToGenerate(decoder, all, { ...options, maxRows });
  using generator = new Generator(decoder, room);
  const processes = processesOf(decoder.device);
  const { rank, size } = processes?.cluster ?? { rank: 0, size: 1 };
  const own: DrawnSample[] = [];
  const solve = async ({ ids, problem, left }: (typeof fitting)[number]) => {
    // A request in which the existing samples have already ended.
    const samples = [numbers.map((sample) => (left.includes(sample) ? EMPTY : ENDED))];
    const request = {
      prompts: [ids],
      options: savedOptions({ ...sampling, n, promptIds: [problem] }),
      samples,
    };
    const generation = generator.resume(request, {
      role: { ...(adapter ? { adapter } : {}) },
      ...(tokenizer ? { tokenizer } : {}),
      ...(signal ? { signal } : {}),
    });
    const drawn = numbers.map(() => ({ text: '', tokens: 0 }));
    for await (const { sample, token, text, finishReason } of generation) {
      const written = drawn[sample] as (typeof drawn)[number];
      written.text += text ?? '';
      if (token !== undefined) {
        written.tokens++;
        onToken();
      }
      if (!ended(finishReason)) continue;
      const sampled = { problem, sample, ...written, finish_reason: finishReason };
      own.push(sampled);
      onSample(sampled);
    }
  };

  const turns = fitting.filter((_, i) => i % size === rank);
  await inTurn(turns, solve, { weight: ({ left }) => left.length, most: 2 * room.maxRows, signal });
  if (!processes) return;
  processes.add(own.reduce((sum, { tokens }) => sum + tokens, 0));
  const found = await exchange(processes.cluster, own);
  for (const sampled of found.filter((_, other) => other !== rank).flat()) onSample(sampled);
  await processes.settle();
}

const EMPTY: SavedSample = { tokens: [], logprobs: [], temperedLogprobs: [], samplingLogprobs: [] };
const ENDED: SavedSample = { ...EMPTY, finishReason: 'length' };

function ended(reason: FinishReason | undefined): reason is Exclude<FinishReason, 'abort'> {
  return reason !== undefined && reason !== 'abort';
}

interface Turns<T> {
  readonly weight: (item: T) => number;
  /** Items start while those under way weigh less. */
  readonly most: number;
  readonly signal: AbortSignal | undefined;
}

/** Works on items in order, several at a time. The first failure ends it when all that were under way have ended. */
async function inTurn<T>(
  items: readonly T[],
  work: (item: T) => Promise<void>,
  { weight, most, signal }: Turns<T>,
): Promise<void> {
  const running = new Set<Promise<void>>();
  const failures: unknown[] = [];
  let load = 0;
  for (const item of items) {
    while (load >= most && failures.length === 0) await Promise.race(running);
    if (failures.length > 0 || signal?.aborted) break;
    load += weight(item);
    const done: Promise<void> = work(item)
      .catch((error: unknown) => void failures.push(error))
      .finally(() => {
        load -= weight(item);
        running.delete(done);
      });
    running.add(done);
  }
  await Promise.all(running);
  if (failures.length > 0) throw failures[0];
}
