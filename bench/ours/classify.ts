import type { TrainableParameters } from '#src/autograd/parameters.js';
import { Tape } from '#src/autograd/tape.js';
import { raggedBatch } from '#src/models/batch.js';
import type { LinearHead } from '#src/models/decoder.js';
import { headOutputs, roleHead } from '#src/models/heads.js';
import { crossEntropy } from '#src/objectives/likelihood.js';
import type { Device } from '#src/runtime/device.js';
import { AdamW } from '#src/train/adamw.js';
import type { ClassifyCase } from '../cases.js';
import { newAdapter, randomDecoder } from './decoder.js';
import { randomIds } from './random.js';
import { stopwatch } from './stopwatch.js';

const BLOCKS = ['query_proj', 'key_proj', 'value_proj', 'dense'];

export async function benchClassify(device: Device, item: ClassifyCase, seconds: number): Promise<number[]> {
  const { lengths, direction, rank } = item;
  const decoder = await randomDecoder(device, item.config, item.dtype);
  const sequences = lengths.map((length, row) => ({
    ids: Array.from(randomIds(length, decoder.config.vocabSize, row + 1)),
  }));
  const samples =
    direction === 'forward'
      ? await stopwatch(device, seconds, () => {
          const batch = raggedBatch(device, sequences, decoder.config);
          const head = roleHead(decoder, {}) as LinearHead;
          device.scope(() => headOutputs(decoder.forward(batch), head)).dispose();
          batch.dispose();
        })
      : await benchStep();
  decoder.dispose();
  return samples;

  async function benchStep(): Promise<number[]> {
    const kept = { task_type: 'TOKEN_CLS', modules_to_save: ['classifier'] };
    const adapter = newAdapter(decoder, rank, { target_modules: BLOCKS, ...kept });
    const parameters = adapter.trainable as TrainableParameters;
    const optimizer = new AdamW(parameters, {
      beta1: 0.9,
      beta2: 0.999,
      epsilon: 1e-8,
      weightDecay: 0,
      maxGradNorm: 1,
    });
    const tokens = lengths.reduce((total, length) => total + length, 0);
    const labels = Int32Array.from({ length: tokens }, (_, token) => token % 2);
    const timed = await stopwatch(device, seconds, async () => {
      parameters.zeroGrads();
      device.scope(() => {
        const batch = raggedBatch(device, sequences, decoder.config);
        const tape = new Tape(device);
        const loss = tape.run(() => {
          const logits = headOutputs(
            decoder.forward(batch, { adapter }),
            roleHead(decoder, { adapter }) as LinearHead,
          );
          const weights = device.tensor(new Float32Array(tokens).fill(1 / tokens));
          return crossEntropy(logits, device.tensor(labels), weights).loss;
        });
        tape.backward([[loss, 1]]);
        tape.dispose();
        batch.dispose();
      });
      const { nonFinite } = await optimizer.step(1e-4);
      if (nonFinite) throw new Error('the gradient of the benchmark step is not finite');
    });
    for (const owned of [optimizer, adapter]) owned.dispose();
    return timed;
  }
}
