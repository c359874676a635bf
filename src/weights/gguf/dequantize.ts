/**
 * Blocks of ggml's quantised types as f32, with ggml's own order of operations (`ggml-quants.c`), so that every value has its bits:
 * products and sums are rounded to f32 one by one.
 */
import { f16ToF32 } from '../convert.js';
import { WeightsError } from '../error.js';
import type { BlockType } from './types.js';

const round = Math.fround;

/** Values of a code of IQ4_NL. */
const IQ4_NL = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/** All halves as singles: 256 KiB, made once. */
let halves: Float32Array | undefined;

function half(bytes: Uint8Array, at: number): number {
  halves ??= f16ToF32(Uint16Array.from({ length: 65_536 }, (_, bits) => bits));
  return halves[bytes[at]! | (bytes[at + 1]! << 8)]!;
}

/** Writes the values of one block, `from` in bytes on, to `out` from `to` on. */
type Decode = (bytes: Uint8Array, from: number, out: Float32Array, to: number) => void;

const DECODE: Readonly<Record<string, Decode>> = {
  Q4_0(bytes, from, out, to) {
    const d = half(bytes, from);
    for (let i = 0; i < 16; i++) {
      const q = bytes[from + 2 + i]!;
      out[to + i] = ((q & 15) - 8) * d;
      out[to + 16 + i] = ((q >> 4) - 8) * d;
    }
  },
  Q4_1(bytes, from, out, to) {
    const [d, m] = [half(bytes, from), half(bytes, from + 2)];
    for (let i = 0; i < 16; i++) {
      const q = bytes[from + 4 + i]!;
      out[to + i] = round((q & 15) * d) + m;
      out[to + 16 + i] = round((q >> 4) * d) + m;
    }
  },
  Q5_0(bytes, from, out, to) {
    const d = half(bytes, from);
    for (let i = 0; i < 16; i++) {
      const q = bytes[from + 6 + i]!;
      out[to + i] = (((q & 15) | (fifth(bytes, from + 2, i) << 4)) - 16) * d;
      out[to + 16 + i] = (((q >> 4) | (fifth(bytes, from + 2, i + 16) << 4)) - 16) * d;
    }
  },
  Q5_1(bytes, from, out, to) {
    const [d, m] = [half(bytes, from), half(bytes, from + 2)];
    for (let i = 0; i < 16; i++) {
      const q = bytes[from + 8 + i]!;
      out[to + i] = round(((q & 15) | (fifth(bytes, from + 4, i) << 4)) * d) + m;
      out[to + 16 + i] = round(((q >> 4) | (fifth(bytes, from + 4, i + 16) << 4)) * d) + m;
    }
  },
  Q8_0(bytes, from, out, to) {
    const d = half(bytes, from);
    for (let i = 0; i < 32; i++) out[to + i] = signed(bytes[from + 2 + i]!) * d;
  },
  IQ4_NL(bytes, from, out, to) {
    const d = half(bytes, from);
    for (let i = 0; i < 16; i++) {
      const q = bytes[from + 2 + i]!;
      out[to + i] = d * IQ4_NL[q & 15]!;
      out[to + 16 + i] = d * IQ4_NL[q >> 4]!;
    }
  },
  Q2_K(bytes, from, out, to) {
    const [scales, codes] = [from, from + 16];
    const [d, min] = [half(bytes, from + 80), half(bytes, from + 82)];
    for (let i = 0; i < 256; i++) {
      // 128 values share 32 bytes: two bits of each, by turns of 32 values. A scale serves 16 values.
      const scale = bytes[scales + (i >> 4)]!;
      const q = (bytes[codes + 32 * (i >> 7) + (i & 31)]! >> (2 * ((i >> 5) & 3))) & 3;
      out[to + i] = round(round(d * (scale & 15)) * q) - round(min * (scale >> 4));
    }
  },
  Q3_K(bytes, from, out, to) {
    const [high, codes, packed] = [from, from + 32, from + 96];
    const d = half(bytes, from + 108);
    for (let i = 0; i < 256; i++) {
      const j = i >> 4;
      const low = j < 8 ? bytes[packed + j]! & 15 : bytes[packed + j - 8]! >> 4;
      const scale = (low | (((bytes[packed + 8 + (j & 3)]! >> (2 * (j >> 2))) & 3) << 4)) - 32;
      const q = (bytes[codes + 32 * (i >> 7) + (i & 31)]! >> (2 * ((i >> 5) & 3))) & 3;
      // A high bit that is clear takes 4 away.
      const less = (bytes[high + (i & 31)]! >> (i >> 5)) & 1 ? 0 : 4;
      out[to + i] = round(d * scale) * (q - less);
    }
  },
  Q4_K(bytes, from, out, to) {
    const [d, min] = [half(bytes, from), half(bytes, from + 2)];
    for (let i = 0; i < 256; i++) {
      const [scale, least] = sixBits(bytes, from + 4, i >> 5);
      const q = (bytes[from + 16 + 32 * (i >> 6) + (i & 31)]! >> (4 * ((i >> 5) & 1))) & 15;
      out[to + i] = round(round(d * scale) * q) - round(min * least);
    }
  },
  Q5_K(bytes, from, out, to) {
    const [d, min] = [half(bytes, from), half(bytes, from + 2)];
    for (let i = 0; i < 256; i++) {
      const [scale, least] = sixBits(bytes, from + 4, i >> 5);
      const q = (bytes[from + 48 + 32 * (i >> 6) + (i & 31)]! >> (4 * ((i >> 5) & 1))) & 15;
      const fifthBit = (bytes[from + 16 + (i & 31)]! >> (i >> 5)) & 1;
      out[to + i] = round(round(d * scale) * (q + 16 * fifthBit)) - round(min * least);
    }
  },
  Q6_K(bytes, from, out, to) {
    const [low, high, scales] = [from, from + 128, from + 192];
    const d = half(bytes, from + 208);
    for (let i = 0; i < 256; i++) {
      const [part, group, l] = [i >> 7, (i >> 5) & 3, i & 31];
      const four = (bytes[low + 64 * part + 32 * (group & 1) + l]! >> (4 * (group >> 1))) & 15;
      const two = (bytes[high + 32 * part + l]! >> (2 * group)) & 3;
      out[to + i] = round(d * signed(bytes[scales + (i >> 4)]!)) * ((four | (two << 4)) - 32);
    }
  },
};

/** Bit `i` of the 32 bits that begin at `at`. */
const fifth = (bytes: Uint8Array, at: number, i: number) => (bytes[at + (i >> 3)]! >> (i & 7)) & 1;

const signed = (byte: number) => (byte << 24) >> 24;

/** Scale and least value of group `j` of eight, six bits each, packed into twelve bytes. */
function sixBits(bytes: Uint8Array, at: number, j: number): [number, number] {
  if (j < 4) return [bytes[at + j]! & 63, bytes[at + j + 4]! & 63];
  return [
    (bytes[at + j + 4]! & 15) | ((bytes[at + j - 4]! >> 6) << 4),
    (bytes[at + j + 4]! >> 4) | ((bytes[at + j]! >> 6) << 4),
  ];
}

/** The values of whole blocks, in f32. */
export function dequantize(bytes: Uint8Array, type: BlockType): Float32Array<ArrayBuffer> {
  const decode = DECODE[type.name];
  if (decode === undefined) throw new WeightsError(`${type.name} holds no blocks`);
  const blocks = bytes.length / type.bytes;
  const out = new Float32Array(blocks * type.values);
  for (let block = 0; block < blocks; block++) decode(bytes, block * type.bytes, out, block * type.values);
  return out;
}
