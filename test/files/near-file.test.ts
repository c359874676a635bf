import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { orNearFile } from '../../src/files/near-file.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-near-'));
  for (const name of ['problem.txt', 'rows.jsonl']) writeFileSync(join(folder, name), 'x');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('names the file that was meant, as it was typed', () => {
  expect(orNearFile('prblem.txt', folder)).toBe('; did you mean problem.txt?');
  expect(orNearFile('./rwos.jsonl', folder)).toBe('; did you mean ./rows.jsonl?');
  expect(orNearFile(join(folder, 'problm.txt'))).toBe(`; did you mean ${join(folder, 'problem.txt')}?`);
});

it('says nothing where no file is near, the file is there, or its folder is not', () => {
  for (const path of ['other.csv', 'problem.txt', 'no/problem.txt', 'rows.jsonl/rows.jsonl'])
    expect(orNearFile(path, folder), path).toBe('');
});
