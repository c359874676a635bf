/** Rows of f32 as blocks of Q8_0 and Q4_0, rounded as ggml's reference does. */
import { f32ToF16 } from '../convert.js';
import { WeightsError } from '../error.js';
import { type BlockType, blockType, blockTypeNumber } from './types.js';

const round = Math.fround;

/** Half away from zero, as C's roundf. */
const rounded = (value: number) => Math.sign(value) * Math.floor(Math.abs(value) + 0.5);

type Encode = (values: Float32Array, from: number, bytes: Uint8Array, to: number) => void;

const ENCODE: Readonly<Record<string, Encode>> = {
  Q8_0(values, from, bytes, to) {
    let largest = 0;
    for (let i = 0; i < 32; i++) largest = Math.max(largest, Math.abs(values[from + i]!));
    const d = round(largest / 127);
    const inverse = d ? round(1 / d) : 0;
    putHalf(bytes, to, d);
    for (let i = 0; i < 32; i++) bytes[to + 2 + i] = rounded(round(values[from + i]! * inverse));
  },
  Q4_0(values, from, bytes, to) {
    // The value that is largest without its sign becomes −8.
    let extreme = 0;
    for (let i = 0; i < 32; i++)
      if (Math.abs(values[from + i]!) > Math.abs(extreme)) extreme = values[from + i]!;
    const d = round(extreme / -8);
    const inverse = d ? round(1 / d) : 0;
    putHalf(bytes, to, d);
    const code = (value: number) => Math.min(15, Math.trunc(round(value * inverse + 8.5)));
    for (let i = 0; i < 16; i++)
      bytes[to + 2 + i] = code(values[from + i]!) | (code(values[from + 16 + i]!) << 4);
  },
};

function putHalf(bytes: Uint8Array, at: number, value: number): void {
  const bits = f32ToF16(Float32Array.of(value))[0] as number;
  bytes[at] = bits & 255;
  bytes[at + 1] = bits >> 8;
}

/** Quantised types of the GGUF files that are written here. */
export type QuantizedName = 'Q8_0' | 'Q4_0';
export const QUANTIZED: readonly QuantizedName[] = ['Q8_0', 'Q4_0'];

/**
 * @param values finite ones, whole blocks: a multiple of 32
 * @param weight its name, for the message
 * @throws WeightsError where the scale of a block is too large for the half in which it is stored
 */
export function quantize(
  values: Float32Array,
  name: QuantizedName,
  weight = 'the weight',
): Uint8Array<ArrayBuffer> {
  const type = blockType(blockTypeNumber(name)) as BlockType;
  const encode = ENCODE[name] as Encode;
  const blocks = values.length / type.values;
  const bytes = new Uint8Array(blocks * type.bytes);
  for (let block = 0; block < blocks; block++) {
    const to = block * type.bytes;
    encode(values, block * type.values, bytes, to);
    if ((bytes[to + 1]! & 0x7c) === 0x7c)
      throw new WeightsError(
        `${weight} has values too large for ${name}, whose scales are halves (from value ${block * type.values} on); write another dtype, such as bf16`,
      );
  }
  return bytes;
}
