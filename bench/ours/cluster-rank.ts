/**
 * One process of a job that trains: a LoRA step of the shape of Qwen2.5-0.5B on one thread, whose batch of two sequences is two
 * shards. Prints the seconds of each step, on the clock and of the processor, which a busy machine changes less, and those in which it
 * waited for the others. Arguments: steps, sequences (default 2), and what carries the gradients (default auto).
 */
import type { TrainableParameters } from '#src/autograd/parameters.js';
import { openCarrier } from '#src/cluster/carriers.js';
import { joinCluster } from '#src/cluster/cluster.js';
import { placeOf } from '#src/cluster/environment.js';
import { nll } from '#src/objectives/nll.js';
import { openDevice } from '#src/runtime/device.js';
import { scoreRows } from '#src/sequences/forward.js';
import { accumulate } from '#src/train/accumulate.js';
import { AdamW } from '#src/train/adamw.js';
import { divideBatches } from '#src/train/sums/data-parallel.js';
import { QWEN_0_5B } from '../models.js';
import { newAdapter, randomDecoder } from './decoder.js';
import { randomIds } from './random.js';
import { everyToken } from './step.js';

const TOKENS = 256;

const [steps, sequences] = [Number(process.argv[2]), Number(process.argv[3] ?? 2)];
const wanted = process.argv[4] === 'tcp' ? 'tcp' : 'auto';
const place = placeOf(process.env);
const cluster = place && (await joinCluster({ place, greeting: {} }));
const device = openDevice('cpu', { threads: 1 });
const decoder = await randomDecoder(device, QWEN_0_5B, 'bf16');
const adapter = newAdapter(decoder, 16);
const parameters = adapter.trainable as TrainableParameters;
// Under mpirun the plugin, where it is compiled.
const carrier = cluster && (await openCarrier(cluster, { wanted, device: 'cpu' }));
divideBatches(device, { shards: sequences, cluster, carrier });
const optimizer = new AdamW(parameters, {
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0,
  maxGradNorm: 1,
});
const items = Array.from({ length: sequences }, (_, row) =>
  everyToken(Array.from(randomIds(TOKENS, QWEN_0_5B.vocab_size, row + 1)), row),
);

interface Taken {
  readonly clock: number;
  readonly processor: number;
  readonly waited: number;
}

async function step(): Promise<Taken> {
  const [began, before] = [performance.now(), process.cpuUsage()];
  const waited = cluster?.waiting.seconds ?? 0;
  await accumulate(
    items,
    {
      device,
      microBatchTokens: TOKENS,
      sizeOf: () => TOKENS,
      normaliser: () => sequences * (TOKENS - 1),
      trains: [parameters],
    },
    (group, total) => {
      const { logprobs } = scoreRows(decoder, { adapter }, group);
      const weights = new Float32Array(group.length * (TOKENS - 1)).fill(1 / total);
      return [{ loss: nll(logprobs, device.tensor(weights)) }];
    },
  );
  const { nonFinite } = await optimizer.step(1e-4);
  if (nonFinite) throw new Error('the gradient of the benchmark step is not finite');
  const { user, system } = process.cpuUsage(before);
  return {
    clock: (performance.now() - began) / 1000,
    processor: (user + system) / 1e6,
    waited: (cluster?.waiting.seconds ?? 0) - waited,
  };
}

await step();
const taken: Taken[] = [];
for (let i = 0; i < steps; i++) taken.push(await step());
console.log(JSON.stringify(taken));
optimizer.dispose();
adapter.dispose();
decoder.dispose();
device.dispose();
await carrier?.close();
await cluster?.close();
