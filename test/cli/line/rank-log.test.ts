// The words of other processes: in a file of the run, and nowhere near it once rank 0 has removed the run.
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { wordsInto } from '../../../src/cli/line/rank-log.js';
import { createRunDirectory } from '../../../src/run/directory.js';

it('lie in the run, which is removed with them where nothing was trained', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-ranks-'));
  const path = join(folder, 'run');
  const run = await createRunDirectory(path, { onExisting: 'refuse' });
  const log = wordsInto(path, 1);
  process.stderr.write('sft step 1/2\n');
  log.end();
  expect(readFileSync(join(path, 'ranks', '1.log'), 'utf8')).toBe('sft step 1/2\n');
  await run.discard();
  expect(existsSync(path)).toBe(false);
  // One that comes later does not bring it back.
  wordsInto(path, 2).end();
  expect(existsSync(path)).toBe(false);
  rmSync(folder, { recursive: true });
});
