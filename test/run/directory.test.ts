import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { createRunDirectory, openRunDirectory } from '../../src/run/directory.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

/** The id of a process that has ended. */
const GONE = execFileSync(process.execPath, ['-p', 'process.pid'], { encoding: 'utf8' }).trim();

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

const create = (onExisting: 'number' | 'refuse' = 'number') =>
  createRunDirectory(join(folder, 'runs/a'), { onExisting });

describe('a new run directory', () => {
  it('is created with its parents and holds the files of a run', async () => {
    const run = await create();
    await run.writeConfig('method: sft\n');
    await run.writeJson('eval.json', { f1: 0.5 });
    run.metrics.append({ step: 1, loss: 0.25 });
    await run.close();
    expect(run.path).toBe(join(folder, 'runs/a'));
    expect(readFileSync(run.file('config.yaml'), 'utf8')).toBe('method: sft\n');
    expect(JSON.parse(readFileSync(run.file('eval.json'), 'utf8'))).toEqual({ f1: 0.5 });
    expect(readFileSync(run.file('metrics.jsonl'), 'utf8')).toBe('{"step":1,"loss":0.25}\n');
    expect(existsSync(run.file('.lock'))).toBe(false);
  });

  it('gets the next number instead of overwriting another run', async () => {
    const runs = [await create(), await create(), await create()];
    expect(runs.map((run) => run.path.slice(folder.length))).toEqual(['/runs/a', '/runs/a-2', '/runs/a-3']);
  });

  it('is a different one for each of many concurrent processes', async () => {
    const runs = await Promise.all(Array.from({ length: 8 }, () => create()));
    expect(new Set(runs.map((run) => run.path)).size).toBe(8);
  });

  it('is refused if the given directory holds files', async () => {
    mkdirSync(join(folder, 'runs/a'), { recursive: true });
    const run = await create('refuse');
    expect(run.path).toBe(join(folder, 'runs/a'));
    await run.writeConfig('x');
    await run.close();
    await expect(create('refuse')).rejects.toThrow(
      /already holds files; choose another directory, or continue its run: npx steptrain run --resume .*, or resume\(directory\) in a program$/,
    );
  });

  it('is taken over from a run that was killed before it had written config.yaml, but not while that one lives', async () => {
    const path = join(folder, 'runs/a');
    const first = await create('refuse');
    writeFileSync(join(path, 'config.yaml.tmp-1-0123456789ab'), 'half of it');
    await expect(create('refuse')).rejects.toThrow(/already holds files/);
    await first.close();
    writeFileSync(join(path, '.lock'), `${GONE} ${hostname()}`);
    await (await create('refuse')).close();
    expect(readdirSync(path).sort()).toEqual(['metrics.jsonl', 'samples.jsonl']);
    writeFileSync(join(path, 'metrics.jsonl'), '{}\n');
    await expect(create('refuse')).rejects.toThrow(/already holds files/);
  });

  it('is refused in one sentence if it cannot be created', async () => {
    writeFileSync(join(folder, 'file'), '');
    const inFile = createRunDirectory(join(folder, 'file/run'), { onExisting: 'number' });
    await expect(inFile).rejects.toThrow(/^cannot make the run directory .*file\/run: /);
    // Node 20's own recursive mkdir never returns here.
    if (existsSync('/proc/self'))
      await expect(createRunDirectory('/proc/none/run', { onExisting: 'refuse' })).rejects.toThrow(
        'cannot make the run directory /proc/none/run: no such file or directory',
      );
  });
});

describe('a run directory', () => {
  it('belongs to one process at a time', async () => {
    const run = await create();
    await run.writeConfig('x');
    await expect(openRunDirectory(run.path)).rejects.toThrow(
      `is in use by process ${process.pid} on ${hostname()}`,
    );
    await run.close();
    await (await openRunDirectory(run.path)).close();
  });

  it('is taken over from a process that has ended', async () => {
    const run = await create();
    await run.writeConfig('x');
    await run.close();
    for (const owner of [`${GONE} ${hostname()}`, `${process.pid} ${hostname()}`, '']) {
      writeFileSync(run.file('.lock'), owner);
      if (owner === '') utimesSync(run.file('.lock'), 0, 0);
      await (await openRunDirectory(run.path)).close();
    }
    writeFileSync(run.file('.lock'), '12 elsewhere');
    await expect(openRunDirectory(run.path)).rejects.toThrow('is in use by process 12 on elsewhere');
    utimesSync(run.file('.lock'), 0, 0);
    await (await openRunDirectory(run.path)).close();
  });

  it('must contain a config.yaml', async () => {
    await expect(openRunDirectory(folder)).rejects.toThrow(
      `${folder} is not a run directory: config.yaml in it cannot be read: no such file or directory`,
    );
  });

  it('refuses NaN in JSON and names its key', async () => {
    const run = await create();
    await expect(run.writeJson('eval.json', { metrics: { f1: Number.NaN } })).rejects.toThrow(
      /eval\.json: metrics: f1: NaN is not a number that a JSON file can hold/,
    );
    expect(existsSync(run.file('eval.json'))).toBe(false);
  });
});

describe('resuming', () => {
  it('truncates metrics and samples to the checkpoint and ends with the same bytes', async () => {
    const train = (run: Awaited<ReturnType<typeof create>>, from: number, to: number) => {
      for (let step = from; step <= to; step++) {
        run.metrics.append({ step, loss: 1 / step });
        if (step % 2 === 0) run.samples.append({ step, text: 'é\n'.repeat(step) });
      }
    };
    const save = (run: Awaited<ReturnType<typeof create>>, step: number) =>
      run.saveCheckpoint(step, async (path) => writeFileSync(join(path, 'state.json'), String(step)), {
        keep: 2,
      });

    const whole = await create();
    train(whole, 1, 9);
    const broken = await create();
    await broken.writeConfig('x');
    train(broken, 1, 4);
    await save(broken, 4);
    train(broken, 5, 7);
    await broken.close();
    writeFileSync(broken.file('metrics.jsonl'), '{"step": 8, "lo', { flag: 'a' });

    const resumed = await openRunDirectory(broken.path);
    const checkpoint = (await resumed.findCheckpoint())?.checkpoint;
    expect(checkpoint?.step).toBe(4);
    resumed.rewind(checkpoint);
    train(resumed, 5, 9);
    for (const name of ['metrics.jsonl', 'samples.jsonl']) {
      expect(readFileSync(resumed.file(name), 'utf8')).toBe(readFileSync(whole.file(name), 'utf8'));
    }
  });

  it('empties the files if there is no checkpoint', async () => {
    const run = await create();
    run.metrics.append({ step: 1 });
    run.rewind((await run.findCheckpoint())?.checkpoint);
    expect(run.metrics.length).toBe(0);
    expect(readFileSync(run.file('metrics.jsonl'), 'utf8')).toBe('');
  });
});
