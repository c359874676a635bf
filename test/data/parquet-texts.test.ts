// Texts of Parquet beside what pyarrow wrote (test/golden/make_parquet_numbers.py).
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { fileRows } from '../../src/data/files.js';
import { exactText } from '../../src/files/exact-json.js';

const golden = (name: string) => join(import.meta.dirname, '../golden/parquet-numbers', name);

async function rowsOf(name: string): Promise<object[]> {
  const found: object[] = [];
  for await (const { value } of fileRows(golden(name))) found.push(value as object);
  return found;
}

describe('texts of Parquet', () => {
  it('keep a byte order mark, and bytes that are no text stay bytes', async () => {
    expect(await rowsOf('texts.parquet')).toMatchObject([
      { text: '\ufeffA mark', list: ['\ufeffa'], empty: null, bytes: new Uint8Array([0xff, 0xfe]) },
      { text: 'none', list: [], empty: null, bytes: '\ufeffé' },
      { text: '\ufeff', list: null, empty: null, bytes: null },
    ]);
  });

  it('are copied beside bytes, which JSON has as base64', async () => {
    const [row] = await rowsOf('texts.parquet');
    expect(exactText(row)).toContain('"bytes":"//4="');
  });

  it('stand beside numbers that are infinite, which JSON writes as too large for a double', async () => {
    const numbers = (await rowsOf('texts.parquet')).map(
      (row) => /"infinite":(.*)}/.exec(exactText(row))?.[1],
    );
    expect(numbers).toEqual(['1e999', '-1e999', '2.0']);
  });

  it('and numbers of a repeated column without LIST are an empty list where there is none', async () => {
    expect((await rowsOf('repeated.parquet')).map(exactText)).toEqual([
      '{"text":"a","list":[],"steps":[]}',
      '{"text":"b","list":[1,2],"steps":[{"text":"c","marks":[]},{"text":"d","marks":[true]}]}',
    ]);
  });

  it('are refused where they are not UTF-8', async () => {
    await expect(rowsOf('not-utf8.parquet')).rejects.toThrow(
      'not-utf8.parquet: rows 1 to 1 cannot be decoded (a text is not UTF-8)',
    );
  });
});
