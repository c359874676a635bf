/** Properties of the runtime itself: what an op costs JavaScript, how long the event loop waits, what memory does. */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Device } from '#src/runtime/device.js';
import { branchedSequence } from '#src/sequences/sequence.js';
import type { RuntimeCase } from '../cases.js';
import { QWEN_0_5B, QWEN3_5_0_8B } from '../models.js';
import { median } from '../statistics.js';
import { clusterStep } from './cluster.js';
import { expertsBesideLoop } from './experts.js';
import { raggedRequests, sharedAttention, sharedPrompt, smallModel } from './generation.js';
import { longSequences } from './long.js';
import { quantizedBases, quantizedFile } from './quantized.js';
import { uniform } from './random.js';
import { everyToken, randomTrainee } from './step.js';
import { memoryByTenths } from './tenths.js';

export type Metrics = Readonly<Record<string, number>>;

export function benchRuntime(device: Device, item: RuntimeCase): Promise<Metrics> {
  switch (item.measure) {
    case 'queue':
      return queueCost(device, item.count);
    case 'event loop':
      return eventLoopDelay(device, item.count);
    case 'ragged':
      return raggedMemory(device, item.count);
    case 'verdicts':
      return verdictBranches(device, item.count, QWEN_0_5B, 8);
    case 'verdicts of 20 steps':
      return verdictBranches(device, item.count, QWEN3_5_0_8B, 20);
    case 'long sequences':
      return longSequences(device, item.count);
    case 'small model':
      return smallModel(device, item.count);
    case 'shared attention':
      return sharedAttention(device, item.count);
    case 'shared prompt':
      return sharedPrompt(device, item.count);
    case 'shared prompt with states':
      return sharedPrompt(device, item.count, QWEN3_5_0_8B, 16);
    case 'ragged requests':
      return raggedRequests(device, item.count);
    case 'quantized':
      return quantizedBases(device, item);
    case 'quantized file':
      return quantizedFile(device, item);
    case 'experts':
      return expertsBesideLoop(device, item.count);
    case 'cluster':
      return clusterStep(item.count);
  }
}

const OPS_PER_BATCH = 500;

/** Nanoseconds of JavaScript per op: five inputs, two outputs and three scalars, on tensors of one token. */
async function queueCost(device: Device, batches: number): Promise<Metrics> {
  const x = () => device.zeros([1, 1, 8]);
  const [q, k, v, o] = [x(), x(), x(), x()];
  const [cu_seqlens, branch] = [device.tensor(Int32Array.from([0, 1])), device.zeros([1], 'i32')];
  const lse = device.zeros([1, 1]);
  const { ops } = device;
  const time = async (queueOne: () => void) => {
    const samples: number[] = [];
    for (let batch = 0; batch < batches; batch++) {
      const began = performance.now();
      for (let i = 0; i < OPS_PER_BATCH; i++) queueOne();
      samples.push(((performance.now() - began) * 1e6) / OPS_PER_BATCH);
      await device.synchronize();
    }
    return median(samples);
  };
  const given = await time(() => {
    ops.attention({ q, k, v, cu_seqlens, branch, causal: true, window: 0, scale: 1, o, lse });
  });
  const allocated = await time(() => {
    const made = ops.attention({ q, k, v, cu_seqlens, branch, causal: true, window: 0, scale: 1 });
    made.o.dispose();
    made.lse.dispose();
  });
  for (const tensor of [q, k, v, cu_seqlens, branch, o, lse]) tensor.dispose();
  return { 'ns, outputs given': given, 'ns, outputs made and disposed': allocated };
}

/** Milliseconds that a timer of one millisecond comes late, during steps that keep every core busy. */
async function eventLoopDelay(device: Device, steps: number): Promise<Metrics> {
  const trainee = await randomTrainee(device, QWEN_0_5B, 'bf16', 16);
  const items = [0, 1].map((row) => everyToken(tokenIds(256, QWEN_0_5B.vocab_size, row + 1), row));
  await trainee.step(items);
  const histogram = monitorEventLoopDelay({ resolution: 1 });
  histogram.enable();
  for (let step = 0; step < steps; step++) await trainee.step(items);
  histogram.disable();
  trainee.dispose();
  const late = (nanoseconds: number) => Math.max(0, nanoseconds / 1e6 - 1);
  return {
    'p50 ms': late(histogram.percentile(50)),
    'p99 ms': late(histogram.percentile(99)),
    'max ms': late(histogram.max),
  };
}

/** A problem of 60 tokens, steps of 40, and after each step a verdict with two tokens before it. */
const VERDICTS = { problem: 60, step: 40, tail: 2 };

/** A training step on all verdicts of a solution of `count` steps: as branches of one sequence, and as a sequence each. */
async function verdictBranches(
  device: Device,
  steps: number,
  config: typeof QWEN_0_5B | typeof QWEN3_5_0_8B,
  count: number,
): Promise<Metrics> {
  const trainee = await randomTrainee(device, config, 'bf16', 16);
  const { problem, step, tail } = VERDICTS;
  const trunk = tokenIds(problem + count * step, config.vocab_size, 1);
  const tailIds = tokenIds(tail, config.vocab_size, 2);
  const ends = Array.from({ length: count }, (_, j) => problem + (j + 1) * step);
  const places = ends.map((at) => ({ at, answers: [[10], [12]] }));
  const { answers, ...sequence } = branchedSequence(trunk, places, tailIds);
  const together = [
    { sequence: { ...sequence, rowId: 0 }, rows: answers.flatMap(([right]) => right?.rows ?? []) },
  ];
  const apart = ends.map((at, rowId) => {
    const ids = [...trunk.slice(0, at), ...tailIds];
    const positions = ids.map((_, i) => i);
    return {
      sequence: { ids, positions, branch: undefined, rowId },
      rows: [{ row: ids.length - 1, token: 10 }],
    };
  });
  const time = async (items: typeof apart | typeof together) => {
    await trainee.step(items);
    const samples: number[] = [];
    for (let i = 0; i < steps; i++) {
      const began = performance.now();
      await trainee.step(items);
      samples.push(performance.now() - began);
    }
    return median(samples);
  };
  const tokens = (items: typeof apart | typeof together) =>
    items.reduce((sum, item) => sum + item.sequence.ids.length, 0);
  const [shared, separate] = [await time(together), await time(apart)];
  trainee.dispose();
  return {
    'tokens, one pass': tokens(together),
    'tokens, a sequence each': tokens(apart),
    'ms, one pass': shared,
    'ms, a sequence each': separate,
    'times faster': separate / shared,
  };
}

const SMALL = {
  ...QWEN_0_5B,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
  vocab_size: 96,
};

/** Max live tensors and max bytes in each tenth of the steps; equal tenths mean that nothing grows. */
async function raggedMemory(device: Device, steps: number): Promise<Metrics> {
  const trainee = await randomTrainee(device, SMALL, 'f32', 4);
  const shapes = uniform(5 * steps, 7).map((value) => (value + 1) / 2);
  const draw = (step: number, i: number, below: number) =>
    Math.floor((shapes[5 * step + i] as number) * below);
  const memory = memoryByTenths(device, steps);
  const began = performance.now();
  for (let step = 0; step < steps; step++) {
    const sequences = 1 + draw(step, 0, 4);
    const items = Array.from({ length: sequences }, (_, row) =>
      everyToken(tokenIds(2 + draw(step, 1 + row, 47), SMALL.vocab_size, step + row + 1), row),
    );
    await trainee.step(items);
    memory.note(step);
  }
  trainee.dispose();
  return { ...memory.metrics, 'ms per step': (performance.now() - began) / steps };
}

function tokenIds(length: number, below: number, seed: number): number[] {
  return Array.from(uniform(length, seed), (value) => Math.floor(((value + 1) / 2) * below));
}
