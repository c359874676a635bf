// The directory of a rank that is not the first: what it takes of the run, and that nothing of it stays.
import { spawn } from 'node:child_process';
import fs, { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { createRunDirectory } from '../../src/run/directory.js';
import { shadowRunDirectory } from '../../src/run/shadow.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const shadows = () => readdirSync(tmpdir()).filter((name) => name.startsWith('steptrain-rank-'));

it('has what a run goes on from, and nothing that it has trained', async () => {
  const path = join(temporaryDirectory(), 'run');
  const run = await createRunDirectory(path, { onExisting: 'refuse' });
  await run.writeConfig('method: sft\n');
  run.metrics.append({ step: 1 });
  run.artefact('base').append({ row: 1 });
  run.draws.keep('a', 1);
  await run.close();
  writeFileSync(join(path, 'inputs.json'), '{}');
  for (const name of ['model', 'adapter', 'policy-1', 'checkpoints/step-1', 'ranks']) {
    mkdirSync(join(path, name), { recursive: true });
    writeFileSync(join(path, name, 'model.safetensors'), 'weights');
  }
  const before = new Set(shadows());
  const shadow = await shadowRunDirectory(path);
  const [own] = shadows().filter((name) => !before.has(name)) as [string];
  // What it has for its own: a lock, events.
  const names = readdirSync(join(tmpdir(), own)).filter((name) => !/^(\.lock|tensorboard)/.test(name));
  expect(names.sort()).toEqual([
    'artefacts',
    'config.yaml',
    'draws.jsonl',
    'inputs.json',
    'metrics.jsonl',
    'samples.jsonl',
  ]);
  expect(shadow.metrics.length).toBe('{"step":1}\n'.length);
  await shadow.close();
  expect(existsSync(join(tmpdir(), own))).toBe(false);
});

it('is refused where this machine does not see the run', async () => {
  const path = join(temporaryDirectory(), 'elsewhere');
  const before = shadows();
  await expect(shadowRunDirectory(path)).rejects.toThrow(
    `${path} of rank 0 cannot be read here: the run directory must be on a file system that all machines share`,
  );
  expect(shadows()).toEqual(before);
});

it('removes what one that was killed has left, and not that of one that runs', async () => {
  const path = join(temporaryDirectory(), 'run');
  const run = await createRunDirectory(path, { onExisting: 'refuse' });
  await run.writeConfig('method: sft\n');
  await run.close();
  const killed = spawn(process.execPath, ['-e', ''], { stdio: 'ignore' });
  await new Promise((resolve) => killed.once('close', resolve));
  const [gone, lives] = [killed.pid, process.pid].map((pid) => {
    const folder = mkdtempSync(join(tmpdir(), 'steptrain-rank-'));
    writeFileSync(
      join(folder, '.lock'),
      `${pid} ${pid === process.pid ? `not-${hostname()}` : hostname()}\n`,
    );
    return folder;
  }) as [string, string];
  const first = await shadowRunDirectory(path);
  const second = await shadowRunDirectory(path);
  expect([existsSync(gone), existsSync(lives)]).toEqual([false, true]);
  expect([first, second].every(({ path: own }) => existsSync(own))).toBe(true);
  await first.close();
  await second.close();
  rmSync(lives, { recursive: true });
});

it('goes on where the temporary folder may not be listed', async () => {
  const path = join(temporaryDirectory(), 'run');
  const run = await createRunDirectory(path, { onExisting: 'refuse' });
  await run.writeConfig('method: sft\n');
  await run.close();
  const list = fs.readdirSync;
  const listing = vi.spyOn(fs, 'readdirSync').mockImplementation(((folder: string, ...rest: []) => {
    if (folder !== tmpdir()) return list(folder, ...rest);
    throw Object.assign(new Error(`EACCES: permission denied, scandir '${folder}'`), { code: 'EACCES' });
  }) as never);
  syncBuiltinESMExports();
  try {
    const shadow = await shadowRunDirectory(path);
    expect(listing).toHaveBeenCalledWith(tmpdir());
    expect(existsSync(shadow.path)).toBe(true);
    await shadow.close();
  } finally {
    listing.mockRestore();
    syncBuiltinESMExports();
  }
});
