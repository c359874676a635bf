/** Generation as `Model.generate` does it, timed from outside: when the first token of the last row came, and the last of all. */
import { Generator } from '#src/generate/generator.js';
import type { Adapter } from '#src/models/adapter.js';
import type { Decoder } from '#src/models/decoder.js';
import type { Device } from '#src/runtime/device.js';
import type { GenerateCase } from '../cases.js';
import { newAdapter, randomDecoder } from './decoder.js';
import { randomIds } from './random.js';
import { inTurn } from './stopwatch.js';

/** What the cases of a trial share on a device, while they are of one shape. */
const models = new Map<Device, Model>();
interface Model {
  readonly shape: string;
  readonly decoder: Decoder;
  readonly adapters: Map<number, Adapter>;
}
/** Prompts so far: none comes twice, as a cached prefix would answer it. */
let prompts = 0;

/** Seconds of a step of all rows, or of the forward to the first tokens; a sample for each generation. */
export async function benchGenerate(device: Device, item: GenerateCase, seconds: number): Promise<number[]> {
  const { decoder, adapters } = await modelOf(device, item);
  if (item.rank > 0 && !adapters.has(item.rank)) adapters.set(item.rank, newAdapter(decoder, item.rank));
  const adapter = adapters.get(item.rank);
  const { batch, prompt, suite } = item;
  // All rows begin and end together, so that every step is of all of them.
  const generator = new Generator(decoder, { maxRows: batch, maxTokens: batch * prompt });
  const newTokens = suite === 'prefill' ? 1 : item.newTokens;
  await timeGeneration(generator, newPrompts(decoder, 1, 16), { adapter, newTokens: 2 });
  const samples: number[] = [];
  for (let spent = 0; spent < seconds; ) {
    const times = await inTurn(() =>
      timeGeneration(generator, newPrompts(decoder, batch, prompt), { adapter, newTokens }),
    );
    const sample = suite === 'prefill' ? times.first : times.rest / (newTokens - 1);
    samples.push(sample);
    spent += times.first + times.rest;
  }
  generator.release();
  generator.dispose();
  return samples;
}

async function modelOf(device: Device, { config, dtype }: GenerateCase): Promise<Model> {
  const shape = JSON.stringify([config, dtype]);
  const before = models.get(device);
  if (before?.shape === shape) return before;
  for (const adapter of before?.adapters.values() ?? []) adapter.dispose();
  before?.decoder.dispose();
  const model = { shape, decoder: await randomDecoder(device, config, dtype), adapters: new Map() };
  models.set(device, model);
  return model;
}

/** Seconds until every prompt has its first token, and from then on. */
export async function timeGeneration(
  generator: Generator,
  prompts: readonly Int32Array[],
  options: {
    readonly newTokens: number;
    readonly adapter?: Adapter | undefined;
    readonly n?: number;
    readonly temperature?: number;
  },
): Promise<{ readonly first: number; readonly rest: number }> {
  const { newTokens, adapter, n = 1, temperature = 0 } = options;
  const began = performance.now();
  let first = 0;
  let tokens = 0;
  const generation = generator.generate(prompts, {
    maxNewTokens: newTokens,
    n,
    temperature,
    ignoreEos: true,
    role: { adapter },
  });
  for await (const _ of generation) if (++tokens === n * prompts.length) first = performance.now();
  return { first: (first - began) / 1000, rest: (performance.now() - first) / 1000 };
}

export function newPrompts({ config }: Decoder, count: number, length: number): Int32Array[] {
  return Array.from({ length: count }, () => randomIds(length, config.vocabSize, ++prompts));
}
