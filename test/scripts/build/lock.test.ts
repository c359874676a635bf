// One build at a time in a checkout, also after one that was killed.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';

const script = new URL('../../../scripts/build/lock.mjs', import.meta.url).href;
const { lockBuild } = await import(script);

let folder: string;
let lock: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-lock-'));
  lock = join(folder, 'build/.lock');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Takes the lock, notes that it has it, and gives it back a little later. */
const BUILDER = `
  import { appendFileSync } from 'node:fs';
  import { lockBuild } from '${script}';
  const [lock, log] = process.argv.slice(1);
  const unlock = await lockBuild(lock, (line) => appendFileSync(log, line.startsWith('waiting') ? 'w' : '?'));
  appendFileSync(log, '(');
  await new Promise((done) => setTimeout(done, 50));
  appendFileSync(log, ')');
  unlock();`;

it('is held by one of several processes at a time, and those that wait say so', async () => {
  const log = join(folder, 'log');
  const ends = Array.from({ length: 4 }, () => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', BUILDER, lock, log]);
    return new Promise((done) => child.on('close', done));
  });
  expect(await Promise.all(ends)).toEqual([0, 0, 0, 0]);
  const said = readFileSync(log, 'utf8');
  expect(said.replaceAll('w', '')).toBe('()'.repeat(4));
  expect(existsSync(lock)).toBe(false);
});

it('says once for whom it waits', async () => {
  const first = await lockBuild(lock, () => {});
  const said: string[] = [];
  const second = lockBuild(lock, (line: string) => said.push(line));
  // Until it has looked again at least once.
  await new Promise((done) => setTimeout(done, 700));
  expect(said).toEqual([
    `waiting for process ${process.pid} ${hostname()}, which builds here (if none does, delete ${lock})`,
  ]);
  first();
  (await second)();
});

it('is taken over from a process that is gone', async () => {
  (await lockBuild(lock, () => {}))();
  writeFileSync(lock, `4999999 ${hostname()}`);
  const said: string[] = [];
  const unlock = await lockBuild(lock, (line: string) => said.push(line));
  expect(readFileSync(lock, 'utf8')).toBe(`${process.pid} ${hostname()}`);
  expect(said).toEqual([]);
  unlock();
});
