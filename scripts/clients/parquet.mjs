// Rows that polars, DuckDB, pyarrow, pandas and `datasets` write as Parquet, with every compression that each has, read back.
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { fileRows } from '../../dist/data/files.js';
import { exactText, parseExact } from '../../dist/files/exact-json.js';
import { CACHE, parquetPython, run } from './environment.mjs';

/** The checks, one for each file that `write_parquet.py` wrote. */
export async function parquet() {
  const folder = join(CACHE, 'parquet-files');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const program = fileURLToPath(new URL('write_parquet.py', import.meta.url));
  const { versions, files } = JSON.parse(await run(await parquetPython(), [program, folder]));
  console.log(`parquet: ${versions}`);
  // As texts, so that a float stays one: 1.0 is not 1.
  const rows = parseExact(readFileSync(join(folder, 'rows.json'), 'utf8')).map(exactText);
  const checks = [];
  for (const file of files) checks.push({ name: file, ...(await compared(join(folder, file), rows)) });
  return checks;
}

async function compared(file, rows) {
  let at = 0;
  try {
    for await (const { value } of fileRows(file)) {
      const row = exactText({ ...value });
      if (row !== rows[at])
        return {
          ok: false,
          detail: `row ${at + 1} is ${row}, written ${rows[at]}`,
        };
      at++;
    }
  } catch (error) {
    return { ok: false, detail: error.message };
  }
  return { ok: at === rows.length, detail: at === rows.length ? '' : `${at} rows of ${rows.length}` };
}
