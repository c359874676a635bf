// What is read of an addon's code for GPUs.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

const { gpuCode } = await import(new URL('../../../scripts/build/cubins.mjs', import.meta.url).href);

/** As nvcc 13 lays one out: a header of 16 bytes, then for each target one of 64 and `bytes` of code. */
function fatbin(...targets: [kind: 1 | 2, capability: number, bytes: number][]) {
  const entries = targets.map(([kind, capability, bytes]) => {
    const entry = Buffer.alloc(64 + bytes, 0xcc);
    entry.writeUInt16LE(kind, 0);
    entry.writeUInt32LE(64, 4);
    entry.writeBigUInt64LE(BigInt(bytes), 8);
    entry.writeUInt32LE(capability, 28);
    return entry;
  });
  const header = Buffer.alloc(16);
  header.writeUInt32LE(0xba55ed50, 0);
  header.writeUInt16LE(1, 4);
  header.writeUInt16LE(16, 6);
  header.writeBigUInt64LE(BigInt(entries.reduce((sum, { length }) => sum + length, 0)), 8);
  return Buffer.concat([header, ...entries]);
}

it('machine code and PTX of every fatbin in the file are found', () => {
  const path = join(temporaryDirectory(), 'steptrain.node');
  const parts = [
    Buffer.from('\x7fELF and other things'),
    fatbin([2, 90, 984], [2, 100, 1368], [1, 80, 280]),
    Buffer.alloc(40),
    fatbin([2, 120, 8], [2, 90, 16]),
    Buffer.from('the rest'),
  ];
  writeFileSync(path, Buffer.concat(parts));
  expect(gpuCode(path)).toEqual({ cubins: [90, 100, 120], ptx: [80] });
});

it('a file without any, or one that is cut off, has none', () => {
  const path = join(temporaryDirectory(), 'steptrain.node');
  writeFileSync(path, '\x7fELF');
  expect(gpuCode(path)).toEqual({ cubins: [], ptx: [] });
  writeFileSync(path, fatbin([2, 90, 984]).subarray(0, 20));
  expect(gpuCode(path)).toEqual({ cubins: [], ptx: [] });
});
