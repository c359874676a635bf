/** A run directory under attack: full and read-only disks, others in it, links, a clock that goes back. What was there stays. */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { writeFileAtomically } from '../../src/files/atomic-file.js';
import { createRunDirectory, openRunDirectory, type RunDirectory } from '../../src/run/directory.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

async function started(): Promise<RunDirectory> {
  const run = await createRunDirectory(join(temporaryDirectory(), 'run'), { onExisting: 'refuse' });
  await run.writeConfig('method: sft\n');
  return run;
}

const save = (run: RunDirectory, step: number) =>
  run.saveCheckpoint(step, async (folder) => writeFileSync(join(folder, 'state.json'), `{"step":${step}}`), {
    keep: 3,
  });

describe('a new run directory', () => {
  it.each<[string, (path: string) => void, RegExp]>([
    ['a file', (path) => writeFileSync(path, 'mine'), /is no directory; name another one/],
    ['a link to itself', (path) => symlinkSync(path, path), /cannot make the run directory/],
    ['a link to nothing', (path) => symlinkSync('/nowhere/run', path), /cannot make the run directory/],
    [
      'below a file',
      (path) => writeFileSync(dirname(path).concat('/run'), ''),
      /is no directory; name another one/,
    ],
    [
      'a folder with a file of another',
      (path) => {
        mkdirSync(path);
        writeFileSync(join(path, 'mine.txt'), 'mine');
      },
      /already holds files; choose another directory/,
    ],
    [
      'a folder with metrics',
      (path) => {
        mkdirSync(path);
        writeFileSync(join(path, 'metrics.jsonl'), '{}\n');
      },
      /already holds files/,
    ],
    ['a device', (path) => symlinkSync('/dev/full', path), /is no directory; name another one/],
  ])('that is %s is refused, and nothing in it changes', async (_, make, message) => {
    const path = join(temporaryDirectory(), 'run');
    make(path);
    const before = readdirSync(dirname(path));
    await expect(createRunDirectory(path, { onExisting: 'refuse' })).rejects.toThrow(message);
    expect(readdirSync(dirname(path))).toEqual(before);
  });

  it.each([
    ...(existsSync('/proc/self') ? ['/proc/self/run'] : []),
    '/dev/null/run',
    `/tmp/${'x'.repeat(300)}`,
    'a\0b',
  ])('in %j is refused', async (path) => {
    await expect(createRunDirectory(path, { onExisting: 'refuse' })).rejects.toThrow(
      /cannot make the run directory/,
    );
  });
});

it('what a killed run did not come to rename goes when it is resumed', async () => {
  const run = await started();
  await run.close();
  mkdirSync(join(run.path, 'adapter'));
  writeFileSync(join(run.path, 'adapter/adapter_config.json.tmp-123-0123456789ab'), '{');
  writeFileSync(join(run.path, 'adapter/notes.tmp-1'), 'mine');
  await (await openRunDirectory(run.path)).close();
  expect(readdirSync(join(run.path, 'adapter'))).toEqual(['notes.tmp-1']);
});

describe('two runs', () => {
  it('in one directory: the second is refused, and the first goes on', async () => {
    const run = await started();
    await expect(openRunDirectory(run.path)).rejects.toThrow(
      /is in use by process \d+ on .*; stop that one first/,
    );
    run.metrics.append({ step: 1 });
    await save(run, 1);
    await run.close();
    const again = await openRunDirectory(run.path);
    expect((await again.findCheckpoint())?.checkpoint.step).toBe(1);
    await again.close();
  });

  it.each([
    ['nothing', ''],
    ['no number', 'x y\n'],
    ['many bytes', 'z'.repeat(1e6)],
    ['a process of another machine', '12 elsewhere\n'],
  ])('a lock of %s holds until it was silent for minutes', async (_, owner) => {
    const run = await started();
    await run.close();
    const lock = join(run.path, '.lock');
    writeFileSync(lock, owner);
    await expect(openRunDirectory(run.path)).rejects.toThrow(/is in use by/);
    utimesSync(lock, 0, 0);
    await (await openRunDirectory(run.path)).close();
  });

  it('a lock from the future, as when the clock went back, still counts', async () => {
    const run = await started();
    await run.close();
    const lock = join(run.path, '.lock');
    writeFileSync(lock, '12 elsewhere\n');
    utimesSync(lock, 4e9, 4e9);
    await expect(openRunDirectory(run.path)).rejects.toThrow(/in use by process 12 on elsewhere/);
  });
});

describe('checkpoints', () => {
  it.each<[string, (folder: string) => void]>([
    ['a file that was cut', (folder) => truncateSync(join(folder, 'state.json'), 3)],
    [
      'a file with one bit changed',
      (folder) => writeFileSync(join(folder, 'state.json'), '{"step":3}'.replace('3', '7')),
    ],
    ['no description', (folder) => writeFileSync(join(folder, 'checkpoint.json'), '')],
    ['a description that is a list', (folder) => writeFileSync(join(folder, 'checkpoint.json'), '[]')],
    [
      'a description with a prototype',
      (folder) => writeFileSync(join(folder, 'checkpoint.json'), '{"__proto__":{}}'),
    ],
    [
      'a description with a path upwards',
      (folder) =>
        writeFileSync(
          join(folder, 'checkpoint.json'),
          readFileSync(join(folder, 'checkpoint.json'), 'utf8').replace('state.json', '../../x'),
        ),
    ],
  ])('with %s give way to the one before, which is named', async (_, damage) => {
    const run = await started();
    for (const step of [1, 2, 3]) await save(run, step);
    damage(join(run.path, 'checkpoints/step-3'));
    await run.close();
    const again = await openRunDirectory(run.path);
    expect((await again.findCheckpoint())?.checkpoint.step).toBe(2);
    await again.close();
  });

  it('are ordered by step, whatever the clock said', async () => {
    const run = await started();
    for (const step of [9, 10]) await save(run, step);
    utimesSync(join(run.path, 'checkpoints/step-10'), 0, 0);
    expect((await run.findCheckpoint())?.checkpoint.step).toBe(10);
    await run.close();
  });

  it.each(['ENOSPC', 'EROFS', 'EIO', 'EDQUOT'])(
    'whose write fails by %s leave the last one',
    async (code) => {
      const run = await started();
      await save(run, 1);
      const failing = run.saveCheckpoint(
        2,
        async () => {
          throw Object.assign(new Error(`${code}: no`), { code });
        },
        { keep: 2 },
      );
      await expect(failing).rejects.toThrow(
        /the checkpoint of step 2 was not written .*; the checkpoint of step 1 is kept/,
      );
      expect((await run.findCheckpoint())?.checkpoint.step).toBe(1);
      expect(readdirSync(join(run.path, 'checkpoints'))).toEqual(['step-1']);
      await run.close();
    },
  );
});

describe('a file that is written', () => {
  it('over a link to a full device replaces the link', async () => {
    const path = join(temporaryDirectory(), 'x.json');
    symlinkSync('/dev/full', path);
    await writeFileAtomically(path, [Buffer.from('{}')]);
    expect(readFileSync(path, 'utf8')).toBe('{}');
  });

  it.each([['/proc/x'], ['/dev/full/x'], ['/nowhere/x']])('as %s gives a sentence', async (path) => {
    await expect(writeFileAtomically(path, [Buffer.from('a')])).rejects.toThrow(`cannot write ${path}: `);
  });

  it('from chunks that fail in between leaves the old one alone', async () => {
    const path = join(temporaryDirectory(), 'x.json');
    writeFileSync(path, 'old');
    const chunks = function* () {
      yield Buffer.alloc(1 << 20);
      throw new Error('half way');
    };
    await expect(writeFileAtomically(path, chunks())).rejects.toThrow('half way');
    expect([readFileSync(path, 'utf8'), readdirSync(dirname(path))]).toEqual(['old', ['x.json']]);
  });
});
