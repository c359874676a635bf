/**
 * What the sum of gradients should take on H100s that no run has met yet, by bytes and links alone, so that a real run can say that it
 * is wrong. Each GPU sends (W − 1)/W of the gradient as slices and as much again as sums; the addition reads all slices once. Seconds
 * are of the slower of the two kinds of links: inside a machine and between machines both send at once.
 */

/** Bytes a second that a GPU sends, one way, as NCCL's tests see them on such machines. */
const LINKS = { nvlink: 370e9, network: 45e9 } as const;
const MEMORY = 3.0e12;
const GPUS_OF_A_MACHINE = 8;
/** Of starting a collective; two of them a sum. */
const LATENCY = { inside: 30e-6, across: 80e-6 } as const;

export interface Prediction {
  readonly what: string;
  readonly gpus: number;
  readonly gradientBytes: number;
  readonly seconds: number;
}

/** Parameters that are trained. */
const TRAINED = {
  'LoRA r = 16, Qwen2.5-0.5B': 8.8e6,
  'LoRA r = 16, Llama-3.1-8B': 41.9e6,
  'LoRA r = 16, Llama-3.3-70B': 207e6,
  'all weights, Qwen2.5-7B': 7.62e9,
} as const;

export function predictedSum(gradientBytes: number, gpus: number): number {
  const machines = Math.max(1, gpus / GPUS_OF_A_MACHINE);
  const peers = gpus - 1;
  const outside = gpus - gpus / machines;
  const toEach = (2 * gradientBytes) / gpus;
  const inside = ((peers - outside) * toEach) / LINKS.nvlink;
  const across = (outside * toEach) / LINKS.network;
  const latency = 2 * (machines > 1 ? LATENCY.across : LATENCY.inside);
  return Math.max(inside, across) + gradientBytes / MEMORY + latency;
}

export function clusterPredictions(): Prediction[] {
  return Object.entries(TRAINED).flatMap(([what, parameters]) =>
    [8, 64].map((gpus) => {
      const gradientBytes = 4 * parameters;
      return { what, gpus, gradientBytes, seconds: predictedSum(gradientBytes, gpus) };
    }),
  );
}

/** LoRA on a base whose layers the GPUs of a machine hold together: a layer is gathered twice a micro-batch. */
const SHARDED = { what: 'Llama-3.3-70B', layers: 80, layerBytes: 2 * 855.6e6, layerParameters: 855.6e6 };
/** Products of bf16 a second that a training step reaches: two fifths of what the GPU's makers say. */
const PRODUCTS = 400e12;

export interface GatherPrediction {
  /** Of all gathers of a micro-batch. */
  readonly gather: number;
  /** Of its forward, its second forward, and the gradients of its activations. */
  readonly compute: number;
}

export function predictedGather(tokens: number): GatherPrediction {
  const { layers, layerBytes, layerParameters } = SHARDED;
  const arrives = (layerBytes * (GPUS_OF_A_MACHINE - 1)) / GPUS_OF_A_MACHINE;
  return {
    gather: 2 * layers * (arrives / LINKS.nvlink + LATENCY.inside),
    compute: (3 * 2 * layers * layerParameters * tokens) / PRODUCTS,
  };
}

/** A forward has half of the gathers and a third of the products; the first layer of each pass is waited for. */
function gatheredAhead(gather: number, compute: number): number {
  const forward = Math.max(gather / 2, compute / 3);
  const backward = Math.max(gather / 2, (2 * compute) / 3);
  return forward + backward + gather / SHARDED.layers;
}

export interface StepPrediction {
  /** With a sum that begins when the backward pass has ended: `run.overlap` false. */
  readonly after: number;
  /** With one that goes on beside it: but for the time of the last layer's sum, which this leaves out. */
  readonly beside: number;
}

/** Seconds of an optimizer step of `tokens` a GPU: forward, backward, and the sum of gradients. */
export function predictedStep(what: keyof typeof STEPS, tokens: number, gpus: number): StepPrediction {
  const { weights, trained } = STEPS[what];
  const forward = (2 * weights * tokens) / PRODUCTS;
  // Of a weight that is trained, a product for its own gradient too.
  const backward = forward * (trained === weights ? 2 : 1);
  const sum = predictedSum(4 * trained, gpus);
  return { after: forward + backward + sum, beside: forward + Math.max(backward, sum) };
}

const STEPS = {
  'LoRA r = 16, Llama-3.1-8B': { weights: 8.03e9, trained: TRAINED['LoRA r = 16, Llama-3.1-8B'] },
  'all weights, Qwen2.5-7B': { weights: 7.62e9, trained: TRAINED['all weights, Qwen2.5-7B'] },
} as const;

export function predictionLines(): string[] {
  return [...sumLines(), ...stepLines(), ...gatherLines()];
}

function stepLines(): string[] {
  return (Object.keys(STEPS) as (keyof typeof STEPS)[]).flatMap((what) =>
    [8, 64].map((gpus) => {
      const { after, beside } = predictedStep(what, 8192, gpus);
      return `predicted, ${gpus} H100, ${what}: a step of 8192 tokens a GPU in ${beside.toFixed(3)} s, and in ${after.toFixed(3)} s with run.overlap=false`;
    }),
  );
}

function gatherLines(): string[] {
  return [1024, 8192].map((tokens) => {
    const { gather, compute } = predictedGather(tokens);
    return `predicted, 8 H100, ${SHARDED.what} with run.shard_base: layers gathered in ${gather.toFixed(2)} s of a micro-batch of ${tokens} tokens, which computes for ${compute.toFixed(2)} s: ${gatheredAhead(gather, compute).toFixed(2)} s ahead of their use, ${(gather + compute).toFixed(2)} s with run.overlap=false`;
  });
}

function sumLines(): string[] {
  return clusterPredictions().map(
    ({ what, gpus, gradientBytes, seconds }) =>
      `predicted, ${gpus} H100, ${what}: ${(gradientBytes / 1e6).toFixed(0)} MB of gradient summed in ${(1000 * seconds).toFixed(2)} ms`,
  );
}
