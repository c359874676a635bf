import type { TrainableParameters } from '#src/autograd/parameters.js';
import { Tape } from '#src/autograd/tape.js';
import type { Adapter } from '#src/models/adapter.js';
import type { Decoder } from '#src/models/decoder.js';
import { nll } from '#src/objectives/nll.js';
import type { Device } from '#src/runtime/device.js';
import { type ScoredRows, scoreRows } from '#src/sequences/forward.js';
import { AdamW } from '#src/train/adamw.js';
import type { FloatType, StepCase } from '../cases.js';
import { newAdapter, randomDecoder } from './decoder.js';
import { randomIds } from './random.js';
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

export async function randomTrainee(
  device: Device,
  json: Readonly<Record<string, unknown>>,
  dtype: FloatType,
  rank: number,
): Promise<RandomTrainee> {
  return traineeOn(await randomDecoder(device, json, dtype), rank);
}

export function traineeOn(decoder: Decoder, rank: number): RandomTrainee {
  const { device } = decoder;
  const adapter = newAdapter(decoder, rank);
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
