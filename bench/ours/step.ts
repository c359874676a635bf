/** One LoRA training step as the training loop does it, on a decoder of random weights. */

import { modelWeights, parseModelConfig } from '#src/architectures/table.js';
import type { Parameter, TrainableParameters } from '#src/autograd/parameters.js';
import { Tape } from '#src/autograd/tape.js';
import { type Adapter, createAdapter } from '#src/models/adapter.js';
import { Decoder } from '#src/models/decoder.js';
import { nll } from '#src/objectives/nll.js';
import { packWeight } from '#src/ops/gemm.js';
import { cast } from '#src/ops/memory.js';
import type { Device } from '#src/runtime/device.js';
import { type ScoredRows, scoreRows } from '#src/sequences/forward.js';
import { AdamW } from '#src/train/adamw.js';
import { parseAdapterConfig } from '#src/weights/adapter-config.js';
import type { FloatType, StepCase } from '../cases.js';
import { randomIds, randomTensor } from './random.js';
import { stopwatch } from './stopwatch.js';

const LEARNING_RATE = 1e-4;

export async function benchStep(device: Device, item: StepCase, seconds: number): Promise<number[]> {
  const trainee = await randomTrainee(device, item.config, item.dtype, item.rank);
  const items = item.lengths.map((length, row): ScoredRows => {
    const ids = Array.from(randomIds(length, trainee.decoder.config.vocabSize, row + 1));
    return everyToken(ids, row);
  });
  const samples = await stopwatch(device, seconds, () => trainee.step(items));
  trainee.dispose();
  return samples;
}

/** Every token is predicted from those before it. */
export function everyToken(ids: readonly number[], rowId: number): ScoredRows {
  return {
    sequence: { ids, positions: ids.map((_, position) => position), branch: undefined, rowId },
    rows: ids.slice(1).map((token, row) => ({ row, token })),
  };
}

export interface RandomTrainee {
  readonly decoder: Decoder;
  readonly adapter: Adapter;
  step(items: readonly ScoredRows[]): Promise<void>;
  dispose(): void;
}

/** Built without files; frozen weights in the layouts that loading from a directory gives. */
export async function randomTrainee(
  device: Device,
  json: Readonly<Record<string, unknown>>,
  dtype: FloatType,
  rank: number,
): Promise<RandomTrainee> {
  const config = parseModelConfig(json as never, 'bench');
  const weights = new Map<string, Parameter>();
  for (const { name, shape, kind } of modelWeights(config)) {
    const value = device.scope(() => {
      if (kind === 'norm') return device.tensor(new Float32Array(shape[0] as number).fill(1));
      const drawn = randomTensor(device, shape, 'bf16', { bound: 0.035, seed: weights.size + 1 });
      return shape.length === 1 ? cast(drawn, 'f32') : packWeight(drawn, dtype);
    });
    await device.synchronize();
    weights.set(name, { name, value });
  }
  const settings = { peft_type: 'LORA', r: rank, lora_alpha: 2 * rank, target_modules: 'all-linear' };
  const lora = parseAdapterConfig(settings, 'bench');
  const decoder = new Decoder(device, config, weights, { dtype });
  const adapter = createAdapter(device, config, lora, { seed: 1 });
  const parameters = adapter.trainable as TrainableParameters;
  const optimizer = new AdamW(parameters, {
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weightDecay: 0,
    maxGradNorm: 1,
  });
  return {
    decoder,
    adapter,
    async step(items) {
      const targets = items.reduce((sum, { rows }) => sum + rows.length, 0);
      parameters.zeroGrads();
      device.scope(() => {
        const tape = new Tape(device);
        const loss = tape.run(() => {
          const { logprobs } = scoreRows(decoder, { adapter }, items);
          return nll(logprobs, device.tensor(new Float32Array(targets).fill(1 / targets)));
        });
        tape.backward([[loss, 1]]);
        tape.dispose();
      });
      const { nonFinite } = await optimizer.step(LEARNING_RATE);
      if (nonFinite) throw new Error('the gradient of the benchmark step is not finite');
    },
    dispose() {
      optimizer.dispose();
      adapter.dispose();
      decoder.dispose();
    },
  };
}
