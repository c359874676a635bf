// Groups of columns that lie elsewhere in a GGUF file, of quantised weights too.
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { fromF32, toF32 } from '../../../src/weights/convert.js';
import { openGgufCheckpoint } from '../../../src/weights/gguf/checkpoint.js';
import { dequantize } from '../../../src/weights/gguf/dequantize.js';
import { reordered } from '../../../src/weights/gguf/form.js';
import { quantize } from '../../../src/weights/gguf/quantize.js';
import { blockType } from '../../../src/weights/gguf/types.js';
import { type Typed, writeGguf } from '../../../src/weights/gguf/writer.js';
import type { QuantizedWeight } from '../../../src/weights/quantized/format.js';
import { random } from '../../ops/numbers.js';
import { temporaryDirectory } from '../temporary-directory.js';

const ROWS = 3;
const NAME = 'model.layers.0.linear_attn.out_proj.weight';

/** A file with the output projection of four value heads of `width`, two for each key head. */
async function fileOf(width: number) {
  const path = join(temporaryDirectory(), 'x.gguf');
  // The checkpoint's heads 0 1 2 3 are 0 2 1 3 in the file.
  const own = random(ROWS * 4 * width, 7);
  const stored = Float32Array.from({ length: own.length }, (_, at) => {
    const [row, column] = [Math.floor(at / (4 * width)), at % (4 * width)];
    const head = [0, 2, 1, 3][Math.floor(column / width)]!;
    return own[row * 4 * width + head * width + (column % width)]!;
  });
  const bytes = quantize(stored, 'Q8_0');
  const key = (name: string, u32: number): [string, Typed] => [`qwen35.${name}`, { u32 }];
  const sizes = [key('ssm.state_size', width), key('ssm.group_count', 2), key('ssm.time_step_rank', 4)];
  const metadata = new Map<string, Typed>([
    ['general.architecture', { text: 'qwen35' }],
    ...[key('attention.key_length', 32), key('block_count', 4), key('ssm.inner_size', 4 * width), ...sizes],
  ]);
  const tensor = { name: 'blk.0.ssm_out.weight', type: 'Q8_0', shape: [ROWS, 4 * width], data: () => bytes };
  await writeGguf(path, metadata, [tensor]);
  return { path, own, file: dequantize(bytes, blockType(8)!) };
}

describe('columns of heads', () => {
  it('stay quantised where a head is whole blocks', async () => {
    const { path, own } = await fileOf(64);
    const checkpoint = openGgufCheckpoint(path, 'x');
    const { format, bytes } = { ...checkpoint.quantized?.(NAME) } as QuantizedWeight;
    expect(format).toBe(checkpoint.format?.(NAME));
    expect(bytes).toEqual(quantize(Float32Array.from(own), 'Q8_0'));
    expect(new Uint8Array(dequantize(bytes, blockType(8)!).buffer)).toEqual(checkpoint.read(NAME));
    checkpoint.close();
  });

  it('are read in f32 where a block has parts of two heads', async () => {
    const { path, own, file } = await fileOf(16);
    const checkpoint = openGgufCheckpoint(path, 'x');
    expect(checkpoint.format?.(NAME)).toBeUndefined();
    expect(checkpoint.quantized?.(NAME)).toBeUndefined();
    const read = toF32(checkpoint.read(NAME), 'F32');
    const largest = Math.max(...own.map(Math.abs));
    read.forEach((value, at) => {
      expect(Math.abs(value - own[at]!)).toBeLessThan(largest / 120);
    });
    // Exactly the values of the file, moved.
    expect([...read].sort()).toEqual([...file].sort());
    checkpoint.close();
  });

  it('come back to their place, and rows that stay do', () => {
    const place = (group: number) => [2, 0, 1][group]!;
    const bytes = fromF32(Float32Array.from(random(5 * 6, 3)), 'F32');
    for (const order of [
      { axis: 'columns', size: 2, skip: 0, place },
      { axis: 'rows', size: 1, skip: 2, place },
    ] as const) {
      const moved = reordered(bytes, [5, 6], order, 'file');
      expect(moved).not.toEqual(bytes);
      expect(reordered(moved, [5, 6], order, 'checkpoint')).toEqual(bytes);
      const [before, after] = [toF32(bytes, 'F32'), toF32(moved, 'F32')];
      if (order.axis === 'columns') expect([...after.slice(4, 6)]).toEqual([...before.slice(0, 2)]);
      else {
        expect([...after.slice(0, 12)]).toEqual([...before.slice(0, 12)]);
        expect([...after.slice(24, 30)]).toEqual([...before.slice(12, 18)]);
      }
    }
  });
});
