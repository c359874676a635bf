import { createHash } from 'node:crypto';
import { statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { contentHash } from '../../src/files/content-hash.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

it('sees a change that leaves length and time, in a file whose hash is known', async () => {
  const path = join(temporaryDirectory(), 'rows.jsonl');
  const sha = (text: string) => createHash('sha256').update(text).digest('hex');
  // Files are settled, so that their hashes are kept.
  const now = vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 60_000);
  writeFileSync(path, 'one');
  const { atime, mtime } = statSync(path);
  for (const text of ['one', 'two', 'six']) {
    writeFileSync(path, text);
    utimesSync(path, atime, mtime);
    expect(await contentHash(path)).toBe(sha(text));
    expect(await contentHash(path)).toBe(sha(text));
    await new Promise((done) => setTimeout(done, 20));
  }
  now.mockRestore();
});
