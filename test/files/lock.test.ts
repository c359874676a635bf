// The lock of a directory: one holder, however many want it, also where it was left by a process that is gone.
import { spawn } from 'node:child_process';
import fs, { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { isLocked, LOCK, lockDirectory, tryLock, type Unlock } from '../../src/files/lock.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-lock-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const left = (content: string) => writeFile(join(folder, LOCK), content);
/** Reads a file until its input ends, and says how often it held something and how often nothing. */
const READER = `
  import { readFileSync } from 'node:fs';
  let [whole, empty, over] = [0, 0, false];
  process.stdin.on('end', () => { over = true; }).resume();
  process.stdout.write('ready');
  while (!over) {
    for (let i = 0; i < 1000; i++) {
      try {
        if (readFileSync(process.argv[1], 'utf8') === '') empty++;
        else whole++;
      } catch {}
    }
    await new Promise(setImmediate);
  }
  process.stdout.write(\` \${whole} whole, \${empty} empty\`);`;
/** No process has so large an id. */
const GONE = `4999999 ${hostname()}\n`;
const unlocks = (locks: readonly (Unlock | object)[]) =>
  locks.filter((lock): lock is Unlock => typeof lock === 'function');

describe('the lock of a directory', () => {
  test('is held by one of many openers, whether there was none or one without an owner', async () => {
    for (let round = 0; round < 50; round++) {
      if (round % 2 === 1) await left(GONE);
      const holders = unlocks(await Promise.all(Array.from({ length: 8 }, () => tryLock(folder))));
      expect(holders).toHaveLength(1);
      await expect(lockDirectory(folder)).rejects.toThrow(
        `in use by process ${process.pid} on ${hostname()}`,
      );
      await holders[0]?.();
      expect(existsSync(join(folder, LOCK))).toBe(false);
    }
  });

  test('is seen while its owner works there, and not where nobody does', async () => {
    expect(await isLocked(folder)).toBe(false);
    const unlock = await lockDirectory(folder);
    expect(await isLocked(folder)).toBe(true);
    await unlock();
    expect(await isLocked(folder)).toBe(false);
    await left(GONE);
    expect(await isLocked(folder)).toBe(false);
    await left('4999999 another-machine\n');
    expect(await isLocked(folder)).toBe(true);
    const before = new Date(Date.now() - 180_000);
    await utimes(join(folder, LOCK), before, before);
    expect(await isLocked(folder)).toBe(false);
  });

  test('is taken over where the one that took it over before was killed meanwhile', async () => {
    await left(GONE);
    await writeFile(join(folder, `${LOCK}.taking`), GONE);
    const unlock = await lockDirectory(folder);
    expect((await readdir(folder)).sort()).toEqual([LOCK]);
    await unlock();
  });

  test('is never there without the name of its owner', async () => {
    // A process reads beside this one: what it sees is what a kill at that moment would leave.
    const reader = spawn(process.execPath, ['--input-type=module', '-e', READER, join(folder, LOCK)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    let said = '';
    reader.stdout.on('data', (chunk) => {
      said += chunk;
    });
    await expect.poll(() => said).toBe('ready');
    for (let round = 0; round < 3_000; round++) await (await lockDirectory(folder))();
    await new Promise((ended) => reader.once('close', ended).stdin.end());
    const [, whole, empty] = /(\d+) whole, (\d+) empty/.exec(said) ?? [];
    expect(Number(whole)).toBeGreaterThan(100);
    expect(Number(empty)).toBe(0);
    expect(await readdir(folder)).toEqual([]);
  });

  test('is taken where a file system has no hard links', async () => {
    const { link } = fs.promises;
    for (const code of ['EPERM', 'ENOSYS']) {
      fs.promises.link = () => Promise.reject(Object.assign(new Error(code), { code, syscall: 'link' }));
      syncBuiltinESMExports();
      try {
        const unlock = await lockDirectory(folder);
        expect(await readdir(folder)).toEqual([LOCK]);
        expect(await tryLock(folder)).toMatchObject({ owner: expect.stringContaining(hostname()) });
        await unlock();
        expect(await readdir(folder)).toEqual([]);
      } finally {
        fs.promises.link = link;
        syncBuiltinESMExports();
      }
    }
  });

  const compiled = new URL('../../dist/files/lock.js', import.meta.url);
  test.skipIf(!existsSync(compiled))(
    'the same with openers in processes of their own (needs dist/)',
    async () => {
      await left(GONE);
      const program = `
      const { tryLock } = await import(${JSON.stringify(compiled.href)});
      process.stdout.write('ready');
      process.stdin.once('data', async () => {
        const lock = await tryLock(${JSON.stringify(folder)});
        process.stdout.write(typeof lock === 'function' ? ' took it' : ' in use');
        process.stdin.resume();
      });
      process.stdin.on('end', () => process.exit());`;
      const openers = Array.from({ length: 4 }, () => {
        const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
          stdio: ['pipe', 'pipe', 'inherit'],
        });
        const opener = { child, said: '' };
        child.stdout.on('data', (chunk) => {
          opener.said += chunk;
        });
        return opener;
      });
      const all = (what: RegExp) =>
        expect.poll(() => openers.every(({ said }) => what.test(said))).toBe(true);
      await all(/ready/);
      for (const { child } of openers) child.stdin.write('go');
      await all(/took it|in use/);
      expect(openers.filter(({ said }) => said.includes('took it'))).toHaveLength(1);
      await Promise.all(
        openers.map(({ child }) => new Promise((ended) => child.once('close', ended).stdin?.end())),
      );
    },
  );

  test.skipIf(!existsSync(compiled))('is held by one of two threads of a process (needs dist/)', async () => {
    const program = `
      const { parentPort } = require('node:worker_threads');
      let unlock;
      parentPort.on('message', async (what) => {
        const { tryLock } = await import(${JSON.stringify(compiled.href)});
        if (what === 'unlock') await unlock();
        else unlock = await tryLock(${JSON.stringify(folder)});
        parentPort.postMessage(what === 'unlock' ? 'given back' : typeof unlock === 'function' ? 'took it' : unlock.owner);
      });`;
    const worker = new Worker(program, { eval: true });
    const ask = (what: string) =>
      new Promise((resolve, reject) => {
        worker.once('message', resolve).once('error', reject).postMessage(what);
      });
    const self = `${process.pid} on ${hostname()}`;
    const unlock = await lockDirectory(folder);
    expect(await ask('lock')).toBe(self);
    await unlock();
    expect(await ask('lock')).toBe('took it');
    await expect(lockDirectory(folder)).rejects.toThrow(`in use by process ${self}`);
    expect(await ask('unlock')).toBe('given back');
    expect(await ask('lock')).toBe('took it');
    await worker.terminate();
    // A terminated thread gives nothing back; the lock names it, and it is gone.
    expect(existsSync(join(folder, LOCK))).toBe(true);
    await (await lockDirectory(folder))();
  });

  test('of an earlier process with the id of this one, or of another that lives, is taken over', async () => {
    for (const pid of [process.pid, process.ppid, 1]) {
      await left(`${pid} ${hostname()} 1234567890123\n`);
      await (await lockDirectory(folder))();
    }
    await left(`${process.pid} ${hostname()}\n`);
    await (await lockDirectory(folder))();
  });

  test('of a living process, or of another machine that still touches it, is left alone', async () => {
    await left(`1 ${hostname()}\n`);
    await expect(lockDirectory(folder)).rejects.toThrow(`in use by process 1 on ${hostname()}`);
    await left('77 elsewhere\n');
    await expect(lockDirectory(folder)).rejects.toThrow('in use by process 77 on elsewhere');
    const long = new Date(Date.now() - 600_000);
    await utimes(join(folder, LOCK), long, long);
    const unlock = await lockDirectory(folder);
    expect(await readFile(join(folder, LOCK), 'utf8')).toMatch(`${process.pid} ${hostname()} `);
    await unlock();
  });
});
