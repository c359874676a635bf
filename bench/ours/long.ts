/** A LoRA step on one short and one long sequence: what a token costs, and what memory does. */
import { Decoder } from '#src/models/decoder.js';
import type { Device } from '#src/runtime/device.js';
import { QWEN_0_5B } from '../models.js';
import { median } from '../statistics.js';
import { randomDecoder } from './decoder.js';
import { randomIds } from './random.js';
import { everyToken, traineeOn } from './step.js';

const LENGTHS = [1024, 4096, 16_384];

/** Microseconds a token and MiB at the peak beyond the base, of `count` steps, with gradient checkpointing; at 1,024 also without. */
export async function longSequences(device: Device, count: number): Promise<Record<string, number>> {
  const base = await randomDecoder(device, { ...QWEN_0_5B, max_position_embeddings: 32_768 }, 'bf16');
  const metrics: Record<string, number> = {};
  const checkpointed = new Decoder(device, base.config, base.weights, {
    ...base.options,
    gradientCheckpointing: true,
  });
  for (const [decoder, lengths, what] of [
    [base, LENGTHS.slice(0, 1), ''],
    [checkpointed, LENGTHS, ', checkpointing'],
  ] as const) {
    const trainee = traineeOn(decoder, 16);
    for (const length of lengths) {
      const items = [everyToken(Array.from(randomIds(length, QWEN_0_5B.vocab_size, 1)), 0)];
      await trainee.step(items);
      const held = device.stats().liveBytes;
      device.resetPeak();
      const times: number[] = [];
      for (let i = 0; i < count; i++) {
        const began = performance.now();
        await trainee.step(items);
        times.push(((performance.now() - began) * 1000) / length);
      }
      metrics[`µs a token of ${length}${what}`] = median(times);
      metrics[`MiB of a step, ${length}${what}`] = (device.stats().peakBytes - held) / 2 ** 20;
    }
  }
  return metrics;
}
