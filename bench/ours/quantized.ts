/** What a quantised base costs and gains: the same steps in bf16 and in each format, in turns within every round. */
import { Generator } from '#src/generate/generator.js';
import type { Device } from '#src/runtime/device.js';
import type { RuntimeCase } from '../cases.js';
import { QWEN_0_5B, QWEN_1_5B } from '../models.js';
import { median } from '../statistics.js';
import { type Format, randomDecoder } from './decoder.js';
import { newPrompts, timeGeneration } from './generate.js';
import { randomIds } from './random.js';
import type { Metrics } from './runtime.js';
import { everyToken, traineeOn } from './step.js';

const FORMATS: readonly (Format | undefined)[] = [undefined, 'nf4_double', 'int8', 'q4_1'];
const [PROMPT, NEW_TOKENS, STEP_TOKENS, RANK] = [128, 16, 512, 16];

/** `item.count` rounds, after one that is not counted. */
export async function quantizedBases(device: Device, item: RuntimeCase): Promise<Metrics> {
  const shape = item.name === 'Qwen2.5-0.5B' ? QWEN_0_5B : QWEN_1_5B;
  const metrics: Record<string, number> = {};
  const bases: Base[] = [];
  for (const format of FORMATS) bases.push(await baseOf(device, shape, format));
  for (const [what, measure] of WORK) {
    const times = bases.map((): number[] => []);
    for (let round = 0; round <= item.count; round++)
      for (const [i, base] of bases.entries()) {
        const seconds = await measure(base);
        if (round > 0) times[i]?.push(seconds);
      }
    const [plain, ...others] = times as [number[], ...number[][]];
    metrics[`ms, ${what}, bf16`] = 1000 * median(plain);
    for (const [i, own] of others.entries()) {
      const ratios = own.map((seconds, round) => (plain[round] as number) / seconds).sort((a, b) => a - b);
      metrics[`times bf16, ${what}, ${FORMATS[i + 1]}`] = median(ratios);
      metrics[`least of ${ratios.length}, ${what}, ${FORMATS[i + 1]}`] = ratios[0] as number;
    }
  }
  for (const { dispose } of bases) dispose();
  return metrics;
}

interface Base {
  decode(rows: number): Promise<number>;
  step(): Promise<number>;
  dispose(): void;
}

const WORK: readonly (readonly [string, (base: Base) => Promise<number>])[] = [
  ['decode of 1', (base) => base.decode(1)],
  ['decode of 2', (base) => base.decode(2)],
  ['decode of 4', (base) => base.decode(4)],
  [`LoRA step of ${STEP_TOKENS} tokens`, (base) => base.step()],
];

async function baseOf(
  device: Device,
  shape: Readonly<Record<string, unknown>>,
  format: Format | undefined,
): Promise<Base> {
  const decoder = await randomDecoder(device, shape, 'bf16', format);
  const trainee = traineeOn(decoder, RANK);
  const items = [0, 1].map((row) =>
    everyToken(Array.from(randomIds(STEP_TOKENS / 2, decoder.config.vocabSize, row + 1)), row),
  );
  return {
    async decode(rows) {
      const generator = new Generator(decoder, { maxRows: rows, maxTokens: rows * PROMPT });
      const { rest } = await timeGeneration(generator, newPrompts(decoder, rows, PROMPT), {
        newTokens: NEW_TOKENS,
      });
      generator.release();
      generator.dispose();
      return rest / (NEW_TOKENS - 1);
    },
    async step() {
      const began = performance.now();
      await trainee.step(items);
      return (performance.now() - began) / 1000;
    },
    dispose: () => trainee.dispose(),
  };
}
