/** Properties of generation: time beside the kernels, what a shared prefix gains, memory over ragged requests. */
import { fileURLToPath } from 'node:url';
import { Generator } from '#src/generate/generator.js';
import { loadDecoder } from '#src/models/load.js';
import { attentionPaged, PAGE_TOKENS, pageElements } from '#src/ops/cache.js';
import type { Device } from '#src/runtime/device.js';
import { QWEN_0_5B } from '../models.js';
import { median } from '../statistics.js';
import { randomDecoder } from './decoder.js';
import { newPrompts, timeGeneration } from './generate.js';
import { randomTensor, uniform } from './random.js';
import type { Metrics } from './runtime.js';
import { memoryByTenths } from './tenths.js';

const EMBEDDED = fileURLToPath(new URL('../../../../assets/arithmetic-base', import.meta.url));
const ROWS = 64;
const PROMPT = 1024;

/** 64 rows of a small model at temperature 1: milliseconds of a step, and how much of it no kernel runs. */
export async function smallModel(device: Device, newTokens: number): Promise<Metrics> {
  const decoder = await loadDecoder(device, EMBEDDED, { dtype: 'f32' });
  const generator = new Generator(decoder, { maxRows: ROWS, maxTokens: 32 * ROWS });
  const steps: number[] = [];
  const outside: number[] = [];
  for (let round = 0; round < 12; round++) {
    const before = device.stats().kernelSeconds;
    const options = { newTokens, temperature: 1 };
    const { first, rest } = await timeGeneration(generator, newPrompts(decoder, ROWS, 32), options);
    if (round < 2) continue; // until JavaScript is compiled
    steps.push((1000 * rest) / (newTokens - 1));
    outside.push(100 * (1 - (device.stats().kernelSeconds - before) / (first + rest)));
  }
  generator.dispose();
  decoder.dispose();
  const step = median(steps);
  return { 'ms per step': step, 'tokens/s': (1000 * ROWS) / step, '% outside kernels': median(outside) };
}

/** Attention of one step of one layer, where all rows have the same pages and where each has its own. */
export async function sharedAttention(device: Device, calls: number): Promise<Metrics> {
  const { num_attention_heads: heads, num_key_value_heads: kvHeads, hidden_size: hidden } = QWEN_0_5B;
  const headDim = hidden / heads;
  // The page after the prompt is each row's own in both cases.
  const each = PROMPT / PAGE_TOKENS + 1;
  const q = randomTensor(device, [ROWS, hidden], 'bf16');
  const cache = randomTensor(device, [ROWS * each, pageElements(kvHeads, headDim)], 'bf16', { seed: 2 });
  const queryOffsets = device.tensor(Int32Array.from({ length: ROWS + 1 }, (_, r) => r));
  const lengths = device.tensor(new Int32Array(ROWS).fill(PROMPT + PAGE_TOKENS / 2));
  const time = async (pageOf: (row: number, i: number) => number) => {
    const numbers = Int32Array.from({ length: ROWS * each }, (_, i) =>
      pageOf(Math.floor(i / each), i % each),
    );
    const pages = device.tensor(numbers, [ROWS, each]);
    const samples: number[] = [];
    for (let call = 0; call < calls; call++) {
      const began = performance.now();
      attentionPaged(q, cache, { queryOffsets, pages, lengths, headDim }).dispose();
      await device.synchronize();
      samples.push(performance.now() - began);
    }
    pages.dispose();
    return median(samples);
  };
  const own = (row: number, i: number) => row * each + i;
  const unshared = await time(own);
  const shared = await time((row, i) => (i === each - 1 ? own(row, i) : i));
  for (const tensor of [q, cache, queryOffsets, lengths]) tensor.dispose();
  return { 'ms, own pages': unshared, 'ms, shared pages': shared, 'times faster': unshared / shared };
}

/** 64 samples of one prompt beside one sample of it: the prompt is computed once, and its keys are read once a step. */
export async function sharedPrompt(
  device: Device,
  newTokens: number,
  model: Readonly<Record<string, unknown>> = QWEN_0_5B,
  rows = ROWS,
): Promise<Metrics> {
  const decoder = await randomDecoder(device, model, 'bf16');
  const generator = new Generator(decoder, { maxRows: rows, cacheBytes: 2 ** 30 });
  await timeGeneration(generator, newPrompts(decoder, 1, 16), { newTokens: 2 });
  const one = await timeGeneration(generator, newPrompts(decoder, 1, PROMPT), { newTokens });
  const all = await timeGeneration(generator, newPrompts(decoder, 1, PROMPT), {
    newTokens,
    n: rows,
    temperature: 1,
  });
  const short = await timeGeneration(generator, newPrompts(decoder, 1, 16), {
    newTokens,
    n: rows,
    temperature: 1,
  });
  generator.dispose();
  decoder.dispose();
  const step = ({ rest }: typeof one) => (1000 * rest) / (newTokens - 1);
  return {
    's to the first token, 1 sample': one.first,
    [`s to the first token, ${rows} samples`]: all.first,
    'ms per step, 1 sample': step(one),
    [`ms per step, ${rows} samples`]: step(all),
    [`ms per step, ${rows} samples of a prompt of 16 tokens`]: step(short),
  };
}

const SMALL = {
  ...QWEN_0_5B,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 512,
  vocab_size: 96,
};

/** Max live tensors and max bytes in tenths of the requests; equal tenths mean that nothing grows. */
export async function raggedRequests(device: Device, requests: number): Promise<Metrics> {
  const decoder = await randomDecoder(device, SMALL, 'f32');
  const generator = new Generator(decoder, { maxRows: 16, cacheBytes: 2 ** 22 });
  const shapes = uniform(4 * requests, 7).map((value) => (value + 1) / 2);
  const draw = (request: number, i: number, below: number) =>
    Math.floor((shapes[4 * request + i] as number) * below);
  const memory = memoryByTenths(device, requests);
  const began = performance.now();
  for (let request = 0; request < requests; request++) {
    const prompts = newPrompts(decoder, 1 + draw(request, 0, 3), 1 + draw(request, 1, 200));
    const options = { maxNewTokens: 1 + draw(request, 2, 40), n: 1 + draw(request, 3, 4), seed: request };
    await generator.generate(prompts, options).samples;
    memory.note(request);
  }
  generator.dispose();
  decoder.dispose();
  return { ...memory.metrics, 'ms per request': (performance.now() - began) / requests };
}
