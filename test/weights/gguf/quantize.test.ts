import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { QUANTIZED, quantize } from '../../../src/weights/gguf/quantize.js';

/** Made by test/golden/make_gguf.py with the `gguf` package. */
const golden = JSON.parse(
  readFileSync(new URL('../../golden/gguf-quantized.json', import.meta.url), 'utf8'),
) as Record<string, string>;
const bytes = (name: string) => Buffer.from(golden[name] as string, 'base64');

it.each(QUANTIZED)('%s has the bytes of the gguf package', (name) => {
  const values = new Float32Array(new Uint8Array(bytes('values')).buffer);
  expect(Buffer.from(quantize(values, name)).equals(bytes(name))).toBe(true);
});

it.each([
  ['Q8_0', 127 * 65504, 127 * 65600],
  ['Q4_0', 8 * 65504, 8 * 65600],
] as const)('%s refuses a scale that a half cannot hold', (name, largest, larger) => {
  const block = (value: number) =>
    Float32Array.of(...Array.from({ length: 32 }, () => 0), value, ...Array.from({ length: 31 }, () => 1));
  expect(quantize(block(largest), name)).toHaveLength(name === 'Q8_0' ? 68 : 36);
  for (const value of [larger, -larger])
    expect(() => quantize(block(value), name, "weight 'w'")).toThrow(
      `weight 'w' has values too large for ${name}, whose scales are halves (from value 32 on); write another dtype, such as bf16`,
    );
});
