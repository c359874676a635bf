import { readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { temporaryDirectory } from './temporary-directory.js';

const golden = (path: string) => fileURLToPath(new URL(`../golden/${path}`, import.meta.url));
const mixed = golden('safetensors/mixed.safetensors');

describe('openSafetensors', () => {
  it('lists the tensors of a file of the Python library, in the order of the data', () => {
    const file = openSafetensors(mixed);
    expect(file.metadata).toEqual(new Map([['format', 'pt']]));
    expect(
      [...file.tensors].map(([name, { dtype, shape, begin, end }]) => [name, dtype, shape, end - begin]),
    ).toEqual([
      ['ids', 'I64', [1, 3], 24],
      ['b.scale', 'F64', [], 8],
      ['empty', 'F32', [0, 4], 0],
      ['w.f32', 'F32', [2, 3], 24],
      ['é', 'F32', [1], 4],
      ['i32', 'I32', [1], 4],
      ['w.bf16', 'BF16', [3, 2], 12],
      ['w.f16', 'F16', [5], 10],
      ['bytes', 'U8', [3], 3],
      ['mask', 'BOOL', [3], 3],
    ]);
    file.close();
  });

  it('reads values', () => {
    const file = openSafetensors(mixed);
    expect([...new Float32Array(file.read('w.f32').buffer)]).toEqual([0, 0.25, 0.5, 0.75, 1, 1.25]);
    expect([...new BigInt64Array(file.read('ids').buffer)]).toEqual([1n, -2n, 3n]);
    expect(file.read('empty')).toHaveLength(0);
    file.close();
  });

  it('reads the right bytes for every tensor of a real model', () => {
    const path = golden('stories260k/model.safetensors');
    const file = openSafetensors(path);
    const bytes = readFileSync(path);
    expect(file.tensors.size).toBe(47);
    for (const [name, { begin, end }] of file.tensors) {
      expect(bytes.subarray(begin, end).equals(file.read(name))).toBe(true);
    }
    file.close();
  });

  it('reports a file that became shorter while it was open', () => {
    const path = join(temporaryDirectory(), 'model.safetensors');
    writeFileSync(path, readFileSync(mixed));
    const file = openSafetensors(path);
    truncateSync(path, 680);
    expect(() => file.read('w.f32')).toThrow(
      `${path}: the file became shorter while it was read: expected data up to byte 688, found 680`,
    );
    file.close();
  });

  it('refuses unknown names and use after close', () => {
    const file = openSafetensors(mixed);
    expect(() => file.read('toString')).toThrow(/there is no tensor "toString"/);
    file.close();
    file.close();
    expect(() => file.read('w.f32')).toThrow(/has been closed/);
  });

  it('refuses anything but a file', () => {
    const directory = temporaryDirectory();
    expect(() => openSafetensors(join(directory, 'absent'))).toThrow(/cannot read .*absent: no such file/);
    expect(() => openSafetensors(directory)).toThrow(/expected a safetensors file, found something else/);
  });
});
