import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { completeRunConfig } from '../../src/methods/config.js';
import { acceptedChanges, readRunInputs } from '../../src/run/inputs.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
  for (const name of ['a.jsonl', 'b.jsonl']) writeFileSync(join(folder, name), name);
});

const inputs = (b: string, weight: number) =>
  readRunInputs(
    completeRunConfig({
      method: 'sft',
      data: { train: [join(folder, 'a.jsonl'), { path: join(folder, b), weight }] },
      model: { base: 'embedded' },
    }),
  );

it('a resumed run keeps the content of every training file and its weight', async () => {
  const before = await inputs('b.jsonl', 2);
  expect(acceptedChanges('run', before, await inputs('b.jsonl', 2))).toEqual([]);
  const other = await inputs('b.jsonl', 3);
  expect(() => acceptedChanges('run', before, other)).toThrow(
    /data\.train\.weight is \[1,3\] and was \[1,2\]/,
  );
  writeFileSync(join(folder, 'b.jsonl'), 'changed');
  const changed = await inputs('b.jsonl', 2);
  expect(() => acceptedChanges('run', before, changed)).toThrow(
    /content of data\.train\.1: b\.jsonl was changed/,
  );
  renameSync(join(folder, 'b.jsonl'), join(folder, 'c.jsonl'));
  const moved = await inputs('c.jsonl', 2);
  expect(() => acceptedChanges('run', before, moved)).toThrow(/b\.jsonl is missing/);
});
