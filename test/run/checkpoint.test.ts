import { mkdirSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { findCheckpoint, pruneCheckpoints, saveCheckpoint } from '../../src/run/checkpoint.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let root: string;
beforeEach(() => {
  root = join(temporaryDirectory(), 'checkpoints');
});

async function save(step: number, content = `weights of ${step}`) {
  return saveCheckpoint(root, step, {
    logs: { 'metrics.jsonl': 10 * step },
    write: async (folder) => {
      writeFileSync(join(folder, 'model.safetensors'), content);
      writeFileSync(join(folder, 'state.json'), '{}');
    },
  });
}

const latestCheckpoint = async (at: string) => (await findCheckpoint(at))?.checkpoint;

const file = (step: number, name: string) => join(root, `step-${step}`, name);

describe('a checkpoint', () => {
  it('is found with its files and log lengths', async () => {
    await save(5);
    const saved = await save(10);
    expect(saved.path).toBe(join(root, 'step-10'));
    expect(await latestCheckpoint(root)).toEqual({
      step: 10,
      path: saved.path,
      logs: { 'metrics.jsonl': 100 },
    });
    expect(readFileSync(file(10, 'model.safetensors'), 'utf8')).toBe('weights of 10');
    const marker = JSON.parse(readFileSync(file(10, 'checkpoint.json'), 'utf8'));
    // sha256sum of the text "{}"
    expect(marker.files['state.json']).toEqual({
      bytes: 2,
      sha256: '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a',
    });
  });

  it('is ordered by number, not by name', async () => {
    for (const step of [9, 100, 20]) await save(step);
    expect((await latestCheckpoint(root))?.step).toBe(100);
  });

  it('is undefined if none was written', async () => {
    expect(await latestCheckpoint(root)).toBeUndefined();
  });

  it.each([
    ['a cut file', () => truncateSync(file(2, 'model.safetensors'), 4)],
    ['a changed file', () => writeFileSync(file(2, 'model.safetensors'), 'the weights of bots')],
    ['a missing file', () => rmSync(file(2, 'state.json'))],
    ['a missing marker', () => rmSync(file(2, 'checkpoint.json'))],
    ['a cut marker', () => truncateSync(file(2, 'checkpoint.json'), 30)],
    ['an empty marker', () => truncateSync(file(2, 'checkpoint.json'), 0)],
    [
      'a marker of another step',
      () => writeFileSync(file(2, 'checkpoint.json'), readFileSync(file(1, 'checkpoint.json'))),
    ],
  ])('with %s is skipped and reported', async (_, harm) => {
    await save(1, 'the weights of both');
    await save(2, 'the weights of both');
    harm();
    const found = await findCheckpoint(root);
    expect(found?.checkpoint.step).toBe(1);
    expect(found?.damaged).toEqual([
      { step: 2, reason: expect.stringMatching(/model\.safetensors|state\.json|checkpoint\.json/) },
    ]);
  });

  it('is refused with the reasons if all are damaged', async () => {
    await save(1);
    await save(2);
    rmSync(file(1, 'checkpoint.json'));
    truncateSync(file(2, 'model.safetensors'), 4);
    await expect(findCheckpoint(root)).rejects.toThrow(
      /every checkpoint is damaged: step 2 \(model\.safetensors has 4 bytes instead of 12\), step 1 \(checkpoint\.json is missing/,
    );
  });

  it('that is half-written is skipped', async () => {
    await save(1);
    mkdirSync(join(root, 'step-2.partial'));
    mkdirSync(join(root, 'step-3'));
    expect((await latestCheckpoint(root))?.step).toBe(1);
  });

  it('of the same step is replaced once the new one is complete', async () => {
    await save(3, 'old');
    await save(3, 'new');
    expect(readFileSync(file(3, 'model.safetensors'), 'utf8')).toBe('new');
    expect(readdirSync(root)).toEqual(['step-3']);
  });
});

describe('a write that fails', () => {
  it('keeps the old checkpoint and says why in one sentence', async () => {
    await save(1);
    const full = saveCheckpoint(root, 2, {
      logs: {},
      write: async (folder) => {
        writeFileSync(join(folder, 'model.safetensors'), 'half');
        throw Object.assign(new Error('ENOSPC: no space left on device, write'), {
          code: 'ENOSPC',
          errno: -28,
        });
      },
    });
    await expect(full).rejects.toThrow(
      'the checkpoint of step 2 was not written (no space left on the disk; free some, or write elsewhere); the checkpoint of step 1 is kept',
    );
    expect(readdirSync(root)).toEqual(['step-1']);
    expect((await latestCheckpoint(root))?.step).toBe(1);
  });

  it('keeps the old checkpoint of the same step', async () => {
    await save(1, 'old');
    const failing = saveCheckpoint(root, 1, {
      logs: {},
      write: () => Promise.reject(new Error('loss is NaN')),
    });
    await expect(failing).rejects.toThrow('was not written (loss is NaN); the checkpoint of step 1 is kept');
    expect(readFileSync(file(1, 'model.safetensors'), 'utf8')).toBe('old');
  });

  it('refuses subfolders, which have no checksums', async () => {
    const nested = saveCheckpoint(root, 1, {
      logs: {},
      write: async (folder) => mkdirSync(join(folder, 'sub')),
    });
    await expect(nested).rejects.toThrow(/sub is not a file; .*there is no older checkpoint/);
  });
});

describe('keeping the newest', () => {
  it('removes older checkpoints and partial ones', async () => {
    for (const step of [1, 2, 3]) await save(step);
    mkdirSync(join(root, 'step-9.partial'));
    await pruneCheckpoints(root, await save(4), 2);
    expect(readdirSync(root).sort()).toEqual(['step-3', 'step-4']);
  });

  it('does not count torn checkpoints', async () => {
    for (const step of [1, 2, 3]) await save(step);
    rmSync(file(3, 'checkpoint.json'));
    await pruneCheckpoints(root, await save(4), 2);
    expect(readdirSync(root).sort()).toEqual(['step-2', 'step-4']);
  });

  it('keeps the one just written even if torn newer ones exist', async () => {
    await save(50);
    rmSync(file(50, 'state.json'));
    await pruneCheckpoints(root, await save(4), 1);
    expect(readdirSync(root)).toEqual(['step-4']);
  });
});
