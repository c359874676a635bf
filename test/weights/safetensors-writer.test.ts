import fs, { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { type TensorSource, writeSafetensors } from '../../src/weights/safetensors-writer.js';
import { temporaryDirectory } from './temporary-directory.js';

const mixed = fileURLToPath(new URL('../golden/safetensors/mixed.safetensors', import.meta.url));

const tensor = (name: string, values: number[]): TensorSource => ({
  name,
  dtype: 'F32',
  shape: [values.length],
  data: () => new Uint8Array(new Float32Array(values).buffer),
});

afterEach(() => vi.restoreAllMocks());

describe('writeSafetensors', () => {
  it('writes the bytes of the Python library, for any order of the input', async () => {
    const file = openSafetensors(mixed);
    const sources = [...file.tensors].map(([name, { dtype, shape }], index): TensorSource => {
      const whole = () => file.read(name);
      const later = async () => file.read(name);
      return { name, dtype, shape, data: [whole, later][index % 2]! };
    });
    const path = join(temporaryDirectory(), 'copy.safetensors');
    await writeSafetensors(path, sources.reverse(), { format: 'pt' });
    expect(readFileSync(path).equals(readFileSync(mixed))).toBe(true);
    file.close();
  });

  it('sorts metadata, escapes names and reads them back', async () => {
    const path = join(temporaryDirectory(), 'names.safetensors');
    await writeSafetensors(path, [tensor('a"b\\c/\u2028', [1]), tensor('__proto__', [2])], {
      b: '1',
      a: 'x\n"',
    });
    const file = openSafetensors(path);
    expect([...file.tensors.keys()]).toEqual(['__proto__', 'a"b\\c/\u2028']);
    expect([...file.metadata]).toEqual([
      ['a', 'x\n"'],
      ['b', '1'],
    ]);
    file.close();
  });

  it('requests one tensor at a time', async () => {
    let held = 0;
    const sources = [1, 2, 3].map(
      (index): TensorSource => ({
        name: `t${index}`,
        dtype: 'U8',
        shape: [4],
        async data() {
          held++;
          expect(held).toBe(1);
          await new Promise(setImmediate);
          held--;
          return new Uint8Array(4).fill(index);
        },
      }),
    );
    const path = join(temporaryDirectory(), 'streamed.safetensors');
    await writeSafetensors(path, sources);
    const file = openSafetensors(path);
    expect([...file.read('t3')]).toEqual([3, 3, 3, 3]);
    file.close();
  });

  it.each([
    [
      'fewer bytes than the shape needs',
      [{ ...tensor('a', [1]), shape: [2] }],
      /'a': expected 8 bytes for F32 × \[2\], found 4/,
    ],
    [
      'more bytes than the shape needs',
      [{ ...tensor('a', [1, 2]), shape: [1] }],
      /expected 4 bytes .*, found 8/,
    ],
    ['a name given twice', [tensor('a', [1]), tensor('a', [2])], /tensor "a" is given twice/],
    ['a reserved name', [tensor('__metadata__', [1])], /reserved/],
    ['a fractional extent', [{ ...tensor('a', [1]), shape: [0.5, 2] }], /shape \[0.5,2\] is not valid/],
  ])('refuses %s and leaves the old file', async (_, tensors, message) => {
    const directory = temporaryDirectory();
    const path = join(directory, 'model.safetensors');
    writeFileSync(path, 'old');
    await expect(writeSafetensors(path, tensors)).rejects.toThrow(message);
    expect(readFileSync(path, 'utf8')).toBe('old');
    expect(readdirSync(directory)).toEqual(['model.safetensors']);
  });

  it.each(['write', 'sync'] as const)(
    'says in one sentence that the disk is full (at %s) and leaves the old file',
    async (call) => {
      const directory = temporaryDirectory();
      const path = join(directory, 'model.safetensors');
      writeFileSync(path, 'old');
      const open = fs.promises.open;
      const full = Object.assign(new Error('ENOSPC: write'), { code: 'ENOSPC' });
      if (call === 'sync') vi.spyOn(fs, 'fsync').mockImplementation((_, done) => done(full));
      else
        vi.spyOn(fs.promises, 'open').mockImplementation(async (...args) => {
          const file = await open(...args);
          vi.spyOn(file, call).mockRejectedValue(full);
          return file;
        });
      await expect(writeSafetensors(path, [tensor('a', [1])])).rejects.toThrow(
        `cannot write ${path}: no space left on the disk; free some, or write elsewhere`,
      );
      expect(readFileSync(path, 'utf8')).toBe('old');
      expect(readdirSync(directory)).toEqual(['model.safetensors']);
    },
  );

  it('reports a missing directory', async () => {
    const path = join(temporaryDirectory(), 'absent', 'model.safetensors');
    await expect(writeSafetensors(path, [tensor('a', [1])])).rejects.toThrow(
      `cannot write ${path}: no such file or directory`,
    );
    expect(existsSync(path)).toBe(false);
  });
});
