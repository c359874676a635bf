import { Tape } from '#src/autograd/tape.js';
import { packWeight } from '#src/ops/gemm.js';
import { headLogprobs } from '#src/ops/head.js';
import type { Device } from '#src/runtime/device.js';
import type { HeadCase } from '../cases.js';
import { randomIds, randomTensor } from './random.js';
import { stopwatch } from './stopwatch.js';

export async function benchHead(device: Device, item: HeadCase, seconds: number): Promise<number[]> {
  const { rows, hidden, vocabulary, dtype, direction } = item;
  const x = randomTensor(device, [rows, hidden], dtype);
  const weight = device.scope(() =>
    packWeight(randomTensor(device, [vocabulary, hidden], dtype, { bound: 0.035 }), dtype),
  );
  const targets = device.tensor(randomIds(rows, vocabulary));
  const seed = device.tensor(new Float32Array(rows).fill(-1 / rows));
  const logprobs = () => headLogprobs(x, { name: 'head', value: weight }, targets).logprobs;
  const samples = await stopwatch(device, seconds, () => {
    device.scope(() => {
      if (direction === 'forward') {
        logprobs();
        return;
      }
      const tape = new Tape(device);
      tape.watch(x);
      tape.backward([[tape.run(logprobs), seed]]);
      tape.takeGradient(x)?.dispose();
      tape.dispose();
    });
  });
  for (const tensor of [x, weight, targets, seed]) tensor.dispose();
  return samples;
}
