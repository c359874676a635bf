import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { TableFile } from '../../src/data/table-file.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

it('reads any row in any order, more of them than stay in memory', () => {
  const path = join(temporaryDirectory(), 'table.bin');
  const rows = 600_001;
  const width = 2;
  writeFileSync(
    path,
    Float64Array.from({ length: rows * width }, (_, i) => i * 1.5),
  );
  const table = TableFile.open(path, width, Float64Array);
  expect(table.length).toBe(rows);
  const wrong: number[] = [];
  const look = (row: number) => {
    for (let column = 0; column < width; column++)
      if (table.at(row, column) !== (row * width + column) * 1.5) wrong.push(row);
  };
  for (let row = 0; row < rows; row++) look(row);
  for (let i = 0; i < 30_000; i++) look((i * 7_919) % rows);
  for (let row = rows - 1; row >= 0; row -= 97) look(row);
  expect(wrong).toEqual([]);
  table.close();
});
