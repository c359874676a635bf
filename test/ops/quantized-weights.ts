import { withQuantizedWeights } from '../../src/weights/quantized/checkpoint.js';
import { dequantizedValues, type QuantizedWeight } from '../../src/weights/quantized/format.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { goldenPath } from '../weights/golden.js';
import { random } from './numbers.js';

export interface KnownWeight extends QuantizedWeight {
  readonly name: string;
  readonly shape: readonly [number, number];
  /** What the format's own library makes of it, in f32. */
  readonly values: Float32Array<ArrayBuffer>;
}

/** Those of test/golden/quantized, by the libraries that save them; and `X.source` of those that bitsandbytes quantised. */
export function goldenWeights(): {
  readonly weights: readonly KnownWeight[];
  source(name: string): Float32Array<ArrayBuffer>;
} {
  const file = openSafetensors(goldenPath('quantized/weights.safetensors'));
  const floats = (name: string) => new Float32Array(file.read(name).buffer);
  const reader = withQuantizedWeights({ ...bound(file), directory: 'golden' });
  const weights = ['double', 'plain', 'int8', 'fp8', 'whole', 'square'].map((name): KnownWeight => {
    const stored = reader.quantized?.(`${name}.weight`) as QuantizedWeight;
    const shape = reader.tensors.get(`${name}.weight`)?.shape as readonly [number, number];
    return { ...stored, name, shape, values: floats(`${name}.values`) };
  });
  return { weights, source: (name) => floats(`${name}.source`) };
}

function bound(file: ReturnType<typeof openSafetensors>) {
  return {
    tensors: file.tensors,
    read: (name: string) => file.read(name),
    close: () => file.close(),
  };
}

/** Blocks of ggml: random codes, and scales of a plausible size. test/weights/gguf compares the values with the gguf package. */
export function blockWeights(shape: readonly [number, number] = [70, 512]): readonly KnownWeight[] {
  const blocks = {
    q4_0: [32, 18, [0]],
    q4_1: [32, 20, [0, 2]],
    q4_k: [256, 144, [0, 2]],
    q6_k: [256, 210, [208]],
    q8_0: [32, 34, [0]],
  } as const;
  return Object.entries(blocks).map(([name, [values, size, halves]], f): KnownWeight => {
    const format = name as KnownWeight['format'];
    const bytes = Uint8Array.from(
      random(((shape[0] * shape[1]) / values) * size, 40 + f),
      (value) => (value + 1) * 128,
    );
    // The upper byte of a half from 2^-9 to 2^-7, of either sign.
    for (let at = 0; at < bytes.length; at += size)
      for (const half of halves) bytes[at + half + 1] = 0x18 + (bytes[at + half + 1]! & 0x87);
    return { format, name, shape, bytes, values: dequantizedValues({ format, bytes }, shape) };
  });
}
