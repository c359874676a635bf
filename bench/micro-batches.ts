/**
 * What a token of a LoRA step costs by the size of micro-batches: one optimizer batch, cut into micro-batches of each size in
 * turn, whose gradients add up.
 *   node build/ts/bench/micro-batches.js [MODEL …] [--tokens 512,1024,2048,4096] [--rounds 3] [--json FILE]
 * MODEL is a directory, a GGUF file or, for random weights of that shape, `12M` or `Qwen2.5-0.5B`.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import type { TrainableParameters } from '#src/autograd/parameters.js';
import { Tape } from '#src/autograd/tape.js';
import { baseDirectory } from '#src/models/base.js';
import type { Decoder } from '#src/models/decoder.js';
import { loadDecoder } from '#src/models/load.js';
import { nll } from '#src/objectives/nll.js';
import { type Device, openDevice } from '#src/runtime/device.js';
import { type ScoredRows, scoreRows } from '#src/sequences/forward.js';
import { AdamW } from '#src/train/adamw.js';
import { describeMachine, machineLine } from './machine.js';
import { QWEN_0_5B, SMALL } from './models.js';
import { newAdapter, randomDecoder } from './ours/decoder.js';
import { randomIds } from './ours/random.js';
import { everyToken } from './ours/step.js';
import { type Spread, spread } from './statistics.js';

const SHAPES: Readonly<Record<string, object>> = { '12M': SMALL, 'Qwen2.5-0.5B': QWEN_0_5B };
const LENGTH = 256;
const RANK = 16;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    tokens: { type: 'string', default: '512,1024,2048,4096' },
    rounds: { type: 'string', default: '3' },
    json: { type: 'string' },
  },
});
const sizes = values.tokens.split(',').map(Number);
const rounds = Number(values.rounds);
if (!sizes.every((size) => size > 0 && size % LENGTH === 0) || !(rounds >= 1))
  throw new Error(`--tokens expects multiples of ${LENGTH}, --rounds a number of at least 1`);

/** Microseconds a token over the rounds, by the clock and of processor time, and bytes of tensors at the peak. */
interface Cost {
  readonly tokens: number;
  readonly clock: Spread;
  readonly processor: Spread;
  readonly peakBytes: number;
}

const device = openDevice(process.env.STEPTRAIN_BENCH_DEVICE ?? 'cpu');
const machine = describeMachine(undefined);
console.log(machineLine(machine));
const results: Record<string, readonly Cost[]> = {};
for (const model of positionals.length > 0 ? positionals : Object.keys(SHAPES)) {
  const decoder = await opened(device, model);
  const { hiddenSize, numLayers } = decoder.config;
  results[`${model.replace(/^.*\//, '')}, ${numLayers} × ${hiddenSize}`] = await costs(decoder);
  decoder.dispose();
}
device.dispose();
for (const [model, rows] of Object.entries(results))
  for (const { tokens, clock, processor, peakBytes } of rows)
    console.log(
      `${model}: ${tokens} at once: ${shown(clock)} µs a token, processor ${shown(processor)}, ${(peakBytes / 2 ** 30).toFixed(2)} GiB`,
    );
if (values.json)
  writeFileSync(
    values.json,
    `${JSON.stringify({ machine, rounds, length: LENGTH, rank: RANK, results }, undefined, 1)}\n`,
  );

function opened(on: Device, model: string): Promise<Decoder> {
  const shape = SHAPES[model];
  return shape ? randomDecoder(on, shape as typeof SMALL, 'bf16') : loadDecoder(on, baseDirectory(model));
}

async function costs(decoder: Decoder): Promise<Cost[]> {
  const adapter = newAdapter(decoder, RANK);
  const parameters = adapter.trainable as TrainableParameters;
  const settings = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 1 };
  const optimizer = new AdamW(parameters, settings);
  const batch = Array.from({ length: Math.max(...sizes) / LENGTH }, (_, row) =>
    everyToken(Array.from(randomIds(LENGTH, decoder.config.vocabSize, row + 1)), row),
  );
  const targets = batch.length * (LENGTH - 1);
  const forwardAndBack = (items: readonly ScoredRows[]) =>
    device.scope(() => {
      const tape = new Tape(device);
      const loss = tape.run(() => {
        const { logprobs } = scoreRows(decoder, { adapter }, items);
        return nll(logprobs, device.tensor(new Float32Array(items.length * (LENGTH - 1)).fill(1 / targets)));
      });
      tape.backward([[loss, 1]]);
      tape.dispose();
    });
  const samples = sizes.map((tokens) => ({
    tokens,
    clock: [] as number[],
    processor: [] as number[],
    peakBytes: 0,
  }));
  // One uncounted round warms up.
  for (let round = -1; round < rounds; round++)
    for (const one of samples) {
      device.resetPeak();
      const [began, used] = [performance.now(), process.cpuUsage()];
      parameters.zeroGrads();
      const count = one.tokens / LENGTH;
      for (let at = 0; at < batch.length; at += count) {
        forwardAndBack(batch.slice(at, at + count));
        await device.synchronize();
      }
      await optimizer.step(1e-4);
      if (round < 0) continue;
      const { user, system } = process.cpuUsage(used);
      const per = batch.length * LENGTH;
      one.clock.push(((performance.now() - began) * 1e3) / per);
      one.processor.push((user + system) / per);
      one.peakBytes = Math.max(one.peakBytes, device.stats().peakBytes);
    }
  optimizer.dispose();
  adapter.dispose();
  return samples.map(({ tokens, clock, processor, peakBytes }) => ({
    tokens,
    clock: spread(clock),
    processor: spread(processor),
    peakBytes,
  }));
}

function shown({ median, min, max }: Spread): string {
  return `${median.toFixed(0)} (${min.toFixed(0)}–${max.toFixed(0)})`;
}
