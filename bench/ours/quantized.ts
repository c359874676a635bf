/**
 * What a quantised base costs and gains: the same steps in bf16 and in each format, in turns within every round. Of a GGUF file the
 * steps of decoding as it is kept and as it is dequantised to bf16, and llama.cpp's, by its own batched-bench or node-llama-cpp.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Generator } from '#src/generate/generator.js';
import type { Decoder } from '#src/models/decoder.js';
import { ggufDirectory } from '#src/models/gguf.js';
import { loadDecoder } from '#src/models/load.js';
import type { Device } from '#src/runtime/device.js';
import type { RuntimeCase } from '../cases.js';
import { QWEN_0_5B, QWEN_1_5B } from '../models.js';
import { median } from '../statistics.js';
import { type Format, randomDecoder } from './decoder.js';
import { newPrompts, timeGeneration } from './generate.js';
import { randomIds } from './random.js';
import type { Metrics } from './runtime.js';
import { everyToken, traineeOn } from './step.js';

const FORMATS: readonly (Format | undefined)[] = [undefined, 'nf4', 'int8', 'q4_1', 'nf4_head', 'int8_head'];
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

const LLAMA = fileURLToPath(new URL('../../../../bench/peers/node-llama.mjs', import.meta.url));
const ROWS = [1, 2, 4];
/** Of a step of decoding: more than of random weights, as these steps are short. */
const FILE_TOKENS = 48;

/**
 * Of the file that STEPTRAIN_BENCH_GGUF names; llama.cpp's beside it where STEPTRAIN_LLAMA_BENCH names its batched-bench, or
 * STEPTRAIN_NODE_LLAMA the package. `item.count` rounds, as above.
 */
export async function quantizedFile(device: Device, { count }: RuntimeCase): Promise<Metrics> {
  const directory = ggufDirectory(process.env.STEPTRAIN_BENCH_GGUF as string);
  const [kept, plain] = [
    await loadDecoder(device, directory, { quantize: 'keep' }),
    await loadDecoder(device, directory, { quantize: 'none' }),
  ];
  const ways = [
    (rows: number) => decodeStep(kept, rows, FILE_TOKENS),
    (rows: number) => decodeStep(plain, rows, FILE_TOKENS),
    ...(process.env.STEPTRAIN_LLAMA_BENCH
      ? [(rows: number) => batchedBench(rows, device.info().threads)]
      : process.env.STEPTRAIN_NODE_LLAMA
        ? [(rows: number) => llamaStep(rows, kept.config.vocabSize, device.info().threads)]
        : []),
  ];
  const metrics: Record<string, number> = {};
  for (const rows of ROWS) {
    const times = ways.map((): number[] => []);
    for (let round = 0; round <= count; round++)
      for (const [i, way] of ways.entries()) {
        const seconds = await way(rows);
        if (round > 0) times[i]?.push(seconds);
      }
    const [own, ...others] = times as [number[], ...number[][]];
    metrics[`ms, decode of ${rows}, kept`] = 1000 * median(own);
    for (const [i, name] of ['bf16', 'llama.cpp'].slice(0, others.length).entries()) {
      const ratios = own.map((seconds, round) => (others[i]?.[round] as number) / seconds);
      metrics[`times ${name}, decode of ${rows}`] = median(ratios);
      metrics[`least of ${count}, ${name}, decode of ${rows}`] = Math.min(...ratios);
    }
  }
  for (const decoder of [kept, plain]) decoder.dispose();
  return metrics;
}

/** In a process of its own, as its threads would wait for each other by spinning. */
function llamaStep(batch: number, vocabulary: number, threads: number): number {
  const request = { model: process.env.STEPTRAIN_BENCH_GGUF, threads, batch, vocabulary };
  const sizes = { prompt: PROMPT, newTokens: FILE_TOKENS };
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [LLAMA, JSON.stringify({ ...request, ...sizes })],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(`node-llama-cpp: ${stderr.trim().split('\n').at(-1)}`);
  return JSON.parse(stdout.trim().split('\n').at(-1) as string).step;
}

/** Likewise; the tokens that it feeds are its own. */
function batchedBench(rows: number, threads: number): number {
  const sizes = {
    npp: PROMPT,
    ntg: FILE_TOKENS,
    npl: rows,
    c: rows * (PROMPT + FILE_TOKENS),
    t: threads,
    tb: threads,
  };
  const { stdout, stderr } = spawnSync(
    process.env.STEPTRAIN_LLAMA_BENCH as string,
    [
      ...['-m', process.env.STEPTRAIN_BENCH_GGUF as string, '-fa', 'on', '--output-format', 'jsonl'],
      ...Object.entries(sizes).flatMap(([name, value]) => [`-${name}`, String(value)]),
    ],
    { encoding: 'utf8' },
  );
  const line = stdout.split('\n').findLast((each) => each.startsWith('{'));
  if (line === undefined) throw new Error(`llama-batched-bench: ${stderr.trim().split('\n').at(-1)}`);
  return JSON.parse(line).t_tg / FILE_TOKENS;
}

/** Seconds of a step of decoding after PROMPT tokens. */
async function decodeStep(decoder: Decoder, rows: number, newTokens: number): Promise<number> {
  const generator = new Generator(decoder, { maxRows: rows, maxTokens: rows * PROMPT });
  const { rest } = await timeGeneration(generator, newPrompts(decoder, rows, PROMPT), { newTokens });
  generator.release();
  generator.dispose();
  return rest / (newTokens - 1);
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
    decode: (rows) => decodeStep(decoder, rows, NEW_TOKENS),
    async step() {
      const began = performance.now();
      await trainee.step(items);
      return (performance.now() - began) / 1000;
    },
    dispose: () => trainee.dispose(),
  };
}
