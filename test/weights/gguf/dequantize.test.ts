import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { dequantize } from '../../../src/weights/gguf/dequantize.js';
import { blockType, blockTypeNumber } from '../../../src/weights/gguf/types.js';

/** Made by test/golden/make_gguf.py with the `gguf` package. */
const golden = JSON.parse(
  readFileSync(new URL('../../golden/gguf-blocks.json', import.meta.url), 'utf8'),
) as Record<string, { bytes: string; values: string }>;

describe('blocks of GGUF files', () => {
  it.each(Object.keys(golden))('%s has the bits of the gguf package', (name) => {
    const { bytes, values } = golden[name] as { bytes: string; values: string };
    const got = dequantize(Buffer.from(bytes, 'base64'), blockType(blockTypeNumber(name))!);
    expect(Buffer.from(got.buffer).equals(Buffer.from(values, 'base64'))).toBe(true);
  });
});
