import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

it('prints the tables of docs/kernels/decode.md', () => {
  const printed = execFileSync(process.execPath, ['scripts/decode-plan.mjs'], { encoding: 'utf8' }).trim();
  expect(readFileSync('docs/kernels/decode.md', 'utf8')).toContain(printed);
});
