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
