// Ctrl-C in commands that do not listen for it, as a user presses it: the compiled program gets the signal.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const MAIN = join(import.meta.dirname, '../../../dist/cli/main.js');
const SENTENCE = 'files that were not finished are removed.\n';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-quit-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function start(...args: readonly string[]) {
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: 'pipe' });
  let err = '';
  child.stderr.on('data', (chunk) => {
    err += chunk;
  });
  const ended = new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal, err })));
  return { child, ended };
}

describe.skipIf(!existsSync(MAIN))('an interrupted command (needs dist/: npm run build)', () => {
  it.each([
    ['SIGINT', `Stopped; ${SENTENCE}`],
    ['SIGTERM', `Stopped by SIGTERM; ${SENTENCE}`],
  ] as const)('that writes a file removes what there is of it (%s)', async (signal, err) => {
    const { child, ended } = start('data', 'problems', join(folder, 'out.jsonl'), '--count', '100000000');
    while (readdirSync(folder).length === 0 && child.exitCode === null) await setTimeout(5);
    expect(readdirSync(folder)).toEqual([expect.stringMatching(/^out\.jsonl\.tmp-/)]);
    child.kill(signal);
    expect(await ended).toEqual({ code: 130, signal: null, err });
    expect(readdirSync(folder)).toEqual([]);
  });

  it('that talks says no more than that', async () => {
    const { child, ended } = start('chat', '--device', 'cpu', '--max-new-tokens', '100000');
    // The model of the package that talks is the usual one.
    child.stdin.write('Hello.\n');
    await new Promise((begun) => child.stdout.once('data', begun));
    child.stdout.resume();
    child.kill('SIGINT');
    expect(await ended).toEqual({ code: 130, signal: null, err: 'Stopped.\n' });
  });

  it('that reads ends in the middle of its input', async () => {
    const { child, ended } = start('grade', '-');
    const row = `${JSON.stringify({ prediction: '2'.repeat(1000), answer: '2' })}\n`;
    // More than a pipe holds: it is taken only by a command that reads.
    await new Promise((taken) => child.stdin.write(row.repeat(1000), taken));
    child.kill('SIGINT');
    expect(await ended).toEqual({ code: 130, signal: null, err: 'Stopped.\n' });
  });
});
