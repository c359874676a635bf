// The worked example of docs/concepts/evaluation.md runs as it is written, and prints tables of the shape that stands there.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { compiled, MAIN } from '../e2e/program.js';

const [, section = ''] =
  /^## A worked example\n(.*?)^## /ms.exec(readFileSync('docs/concepts/evaluation.md', 'utf8')) ?? [];
const [, commands = ''] = /^```sh\n(.*?)^```/ms.exec(section) ?? [];

const folder = mkdtempSync(join(tmpdir(), 'steptrain-example-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.skipIf(!compiled)('the worked example (needs dist/: npm run build)', () => {
  it('runs as it is written', () => {
    const shim = 'npx() { shift; "$STEPTRAIN_NODE" "$STEPTRAIN_MAIN" "$@"; }\nset -e\n';
    const { status, stdout, stderr } = spawnSync('bash', ['-c', shim + commands], {
      cwd: folder,
      encoding: 'utf8',
      env: { ...process.env, STEPTRAIN_NODE: process.execPath, STEPTRAIN_MAIN: MAIN },
    });
    expect(status, stderr).toBe(0);
    const words = (line: string) => line.trim().replace(/\s{2,}.*$/, '');
    const table = section.split('\n').filter((line) => /^ {4}\S/.test(line));
    expect(table).toHaveLength(6);
    const printed = stdout.split('\n').map(words);
    for (const line of table) expect(printed, line).toContain(words(line));
    const verdicts = stdout
      .trim()
      .split('\n')
      .slice(-4)
      .map((line) => JSON.parse(line));
    expect(verdicts.map(({ text, label }) => [text, label])).toEqual([
      ['4+20=24', 1],
      ['24-1=23', 1],
      ['7+5=13', 0],
      ['13-3=10', 0],
    ]);
  });
});
