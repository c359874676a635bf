import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { createRunDirectory, openRunDirectory } from '../../src/run/directory.js';
import { openSession, readSessions } from '../../src/run/sessions.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let path: string;
let clock: number;
const now = () => 1000 * clock;
beforeEach(() => {
  path = join(temporaryDirectory(), 'sessions.jsonl');
  clock = 100;
});

it('begin when their process opened the run, and only where that logs something', () => {
  const session = openSession(path, undefined, { now });
  session.end();
  expect(existsSync(path)).toBe(false);
  const logging = openSession(path, undefined, { now });
  clock = 130;
  logging.begin();
  logging.begin();
  clock = 200;
  logging.end();
  logging.end();
  expect(readFileSync(path, 'utf8')).toBe('{"begun":100}\n{"ended":200}\n');
});

it('that were killed ended with the last line that they logged', () => {
  openSession(path, undefined, { now }).begin();
  expect(readSessions(path)).toEqual([{ begun: 100 }]);
  clock = 500;
  const next = openSession(path, 180, { now });
  next.begin();
  clock = 600;
  next.end();
  expect(readSessions(path)).toEqual([
    { begun: 100, ended: 180 },
    { begun: 500, ended: 600 },
  ]);
});

it('are unknown where their file is damaged, and end no run', async () => {
  writeFileSync(path, '{"begun":\n');
  expect(readSessions(path)).toEqual([]);
  const run = await createRunDirectory(join(path, '..', 'run'), { onExisting: 'refuse' });
  await run.writeConfig('x');
  run.metrics.append({ step: 1 });
  await run.close();
  expect(readSessions(run.file('sessions.jsonl'))).toEqual([
    { begun: expect.any(Number), ended: expect.any(Number) },
  ]);
  writeFileSync(run.file('sessions.jsonl'), '{"begun":\n');
  const again = await openRunDirectory(run.path);
  again.metrics.append({ step: 2 });
  await again.close();
  expect(readFileSync(run.file('metrics.jsonl'), 'utf8')).toBe('{"step":1}\n{"step":2}\n');
});
