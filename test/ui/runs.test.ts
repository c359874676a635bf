import { mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Runs } from '../../src/ui/runs.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

it('a run that rests is read again only when one of its files changes', async () => {
  const root = temporaryDirectory();
  const path = join(root, 'a');
  mkdirSync(path);
  writeFileSync(join(path, 'config.yaml'), 'method: sft\n');
  writeFileSync(join(path, 'metrics.jsonl'), '{"phase":"sft","step":1,"loss":2}\n');
  const runs = new Runs(root);
  const first = await runs.read('a');
  expect(first?.status).toBe('stopped');
  expect(await runs.read('a')).toBe(first);
  writeFileSync(join(path, 'memory.json'), '{"planned_bytes":{"base":1},"held_bytes":{}}');
  const second = await runs.read('a');
  expect(second?.memory?.planned_bytes).toEqual({ base: 1 });
  expect(await runs.read('a')).toBe(second);
  // Of the same size, at another time.
  writeFileSync(join(path, 'memory.json'), '{"planned_bytes":{"base":2},"held_bytes":{}}');
  utimesSync(join(path, 'memory.json'), 1, 1);
  expect((await runs.read('a'))?.memory?.planned_bytes).toEqual({ base: 2 });
});
