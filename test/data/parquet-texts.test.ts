// Texts of Parquet beside what pyarrow wrote (test/golden/make_parquet_numbers.py).
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { fileRows } from '../../src/data/files.js';

const golden = (name: string) => join(import.meta.dirname, '../golden/parquet-numbers', name);

async function rowsOf(name: string): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const { value } of fileRows(golden(name))) found.push(value);
  return found;
}

describe('texts of Parquet', () => {
  it('keep a byte order mark, and bytes that are no text stay bytes', async () => {
    expect(await rowsOf('texts.parquet')).toEqual([
      { text: '\ufeffA mark', list: ['\ufeffa'], empty: null, bytes: new Uint8Array([0xff, 0xfe]) },
      { text: 'none', list: [], empty: null, bytes: '\ufeffé' },
      { text: '\ufeff', list: null, empty: null, bytes: null },
    ]);
  });

  it('are refused where they are not UTF-8', async () => {
    await expect(rowsOf('not-utf8.parquet')).rejects.toThrow(
      'not-utf8.parquet: rows 1 to 1 cannot be decoded (a text is not UTF-8)',
    );
  });
});
