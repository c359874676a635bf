/** Weights of 4 or 8 bits: their formats, and the bytes of a weight as `core/quantized.h` says and the addon packs them. */
import { WeightsError } from '../error.js';
import { dequantize } from '../gguf/dequantize.js';
import { blockType, blockTypeNumber } from '../gguf/types.js';

export type QuantizedFormat =
  /** bitsandbytes' NF4: 16 levels times the largest magnitude of 64 values, in f32 */
  | 'nf4'
  /** the same, these magnitudes in 8 bits */
  | 'nf4_double'
  /** Times a scale for each output */
  | 'int8'
  /** fp8, times a scale for each output */
  | 'e4m3'
  /** fp8, times a scale for each square of 128 × 128 */
  | 'e4m3_128'
  /** Blocks of ggml */
  | 'q4_0'
  | 'q4_1'
  | 'q4_k'
  | 'q6_k'
  | 'q8_0';

export interface QuantizedWeight {
  readonly format: QuantizedFormat;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** A weight that is stored as several tensors. */
export interface StoredParts {
  readonly shape: readonly [number, number];
  /** Names of all its tensors. */
  readonly parts: readonly string[];
  readonly format: QuantizedWeight['format'];
  /** @throws WeightsError for tensors that do not belong together */
  read(): QuantizedWeight;
}

/** The formats that a loaded weight may be converted to. */
export type MadeFormat = Extract<QuantizedFormat, 'nf4' | 'nf4_double' | 'int8'>;

/** The number that the features of an output must be a multiple of. */
export function featuresMultiple(format: QuantizedFormat): number {
  if (format === 'nf4' || format === 'nf4_double') return 64;
  if (format.endsWith('_k')) return 256;
  return format.startsWith('q') ? 32 : 4;
}

/** Bytes of a weight [outputs, features]; on a device it is rounded up to whole panels of outputs. */
export function quantizedBytes(format: QuantizedFormat, [n, k]: readonly [number, number]): number {
  const blocks = (n * k) / 64;
  switch (format) {
    case 'nf4':
      return n * k * 0.5 + 4 * blocks;
    case 'nf4_double':
      return n * k * 0.5 + blocks + 4 * (Math.ceil(blocks / NESTED_BLOCK) + NESTED_LEVELS + 1);
    case 'int8':
    case 'e4m3':
      return n * k + 4 * n;
    case 'e4m3_128':
      return n * k + 4 * Math.ceil(n / SQUARE) * Math.ceil(k / SQUARE);
    default: {
      const { values, bytes } = blockOf(format);
      return ((n * k) / values) * bytes;
    }
  }
}

/** Blocks of 64 that share a second-level scale of nf4_double, and levels of the first. */
export const [NESTED_BLOCK, NESTED_LEVELS] = [256, 256];

/** Rows, and columns, that share a scale of e4m3_128. */
export const SQUARE = 128;

/** bitsandbytes' levels (arXiv 2305.14314). */
export const NF4_LEVELS: readonly number[] = [
  -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
  -0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725,
  0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
].map(Math.fround);

/** The format that ggml's blocks of this type have here; undefined where products do not read them. */
export function formatOfBlocks(type: string): QuantizedFormat | undefined {
  return ['Q4_0', 'Q4_1', 'Q4_K', 'Q6_K', 'Q8_0'].includes(type)
    ? (type.toLowerCase() as QuantizedFormat)
    : undefined;
}

const blockOf = (format: QuantizedFormat) => blockType(blockTypeNumber(format.toUpperCase()))!;

/** The values in f32, with the bits that a product reads. */
export function dequantizedValues(
  { format, bytes }: QuantizedWeight,
  [n, k]: readonly [number, number],
): Float32Array<ArrayBuffer> {
  switch (format) {
    case 'nf4':
      return nf4Values(bytes, floats(bytes, (n * k) / 2));
    case 'nf4_double':
      return nf4Values(bytes, nestedScales(bytes, n * k));
    case 'int8':
      return scaledValues(bytes, [n, k], (code) => (code << 24) >> 24, floats(bytes, n * k));
    case 'e4m3':
      return scaledValues(bytes, [n, k], (code) => E4M3[code]!, floats(bytes, n * k));
    case 'e4m3_128':
      return squareValues(bytes, [n, k], floats(bytes, n * k));
    default:
      return dequantize(bytes, blockOf(format));
  }
}

/** Singles from byte `at` to the end. */
function floats(bytes: Uint8Array<ArrayBuffer>, at: number): Float32Array<ArrayBuffer> {
  return new Float32Array(bytes.slice(at).buffer);
}

function nestedScales(bytes: Uint8Array<ArrayBuffer>, values: number): Float32Array<ArrayBuffer> {
  const blocks = values / 64;
  const codes = bytes.subarray(values / 2, values / 2 + blocks);
  const rest = floats(bytes, values / 2 + blocks);
  const second = Math.ceil(blocks / NESTED_BLOCK);
  const [levels, offset] = [rest.subarray(second), rest.at(-1)!];
  return Float32Array.from(
    codes,
    (code, i) => Math.fround(levels[code]! * rest[Math.floor(i / NESTED_BLOCK)]!) + offset,
  );
}

function nf4Values(codes: Uint8Array, scales: Float32Array): Float32Array<ArrayBuffer> {
  const out = new Float32Array(scales.length * 64);
  for (let i = 0; i < out.length; i++) {
    const pair = codes[i >> 1]!;
    out[i] = NF4_LEVELS[i & 1 ? pair & 15 : pair >> 4]! * scales[i >> 6]!;
  }
  return out;
}

function scaledValues(
  codes: Uint8Array,
  [n, k]: readonly [number, number],
  value: (code: number) => number,
  scales: Float32Array,
): Float32Array<ArrayBuffer> {
  const out = new Float32Array(n * k);
  for (let i = 0; i < out.length; i++) out[i] = value(codes[i]!) * scales[Math.floor(i / k)]!;
  return out;
}

function squareValues(
  codes: Uint8Array,
  [n, k]: readonly [number, number],
  scales: Float32Array,
): Float32Array<ArrayBuffer> {
  const out = new Float32Array(n * k);
  const across = Math.ceil(k / SQUARE);
  for (let row = 0; row < n; row++)
    for (let i = 0; i < k; i++)
      out[row * k + i] =
        E4M3[codes[row * k + i]!]! * scales[Math.floor(row / SQUARE) * across + Math.floor(i / SQUARE)]!;
  return out;
}

/** Values of fp8 by code: a sign, four bits of exponent, three of fraction; no infinity, one NaN of each sign. */
const E4M3 = Float32Array.from({ length: 256 }, (_, code) => {
  const [exponent, fraction] = [(code >> 3) & 15, code & 7];
  const magnitude =
    (code & 127) === 127
      ? Number.NaN
      : exponent === 0
        ? fraction * 2 ** -9
        : (1 + fraction / 8) * 2 ** (exponent - 7);
  return code >> 7 ? -magnitude : magnitude;
});

/** Checks scales. @throws WeightsError where one is not finite */
export function finite<Scales extends Float32Array>(scales: Scales, where: string, name: string): Scales {
  const found = scales.find((scale) => !Number.isFinite(scale));
  if (found === undefined) return scales;
  throw new WeightsError(`${where}: expected finite scales in '${name}', found ${found}`);
}
