import { closeSync, existsSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { makeDirectories, syncFile } from '../../src/files/directory.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

it('directories with the same parents are made at the same time', async () => {
  const folder = temporaryDirectory();
  for (let round = 0; round < 50; round++) {
    const paths = Array.from({ length: 8 }, (_, i) => join(folder, `${round}`, 'a', `${i % 2}`, 'b', `${i}`));
    await Promise.all(paths.map(makeDirectories));
    for (const path of paths) expect(existsSync(path)).toBe(true);
  }
});

it('a file in the way is an error, and so is a folder that can hold none', async () => {
  const folder = temporaryDirectory();
  writeFileSync(join(folder, 'file'), '');
  await expect(makeDirectories(join(folder, 'file'))).rejects.toMatchObject({ code: 'EEXIST' });
  await expect(makeDirectories(join(folder, 'file', 'in'))).rejects.toMatchObject({ code: 'ENOTDIR' });
  await expect(makeDirectories('/proc/steptrain/in')).rejects.toMatchObject({ code: 'ENOENT' });
});

it("needs nothing of a file but its descriptor, as the handles of Yarn's Plug'n'Play have no sync", async () => {
  const fd = openSync(join(temporaryDirectory(), 'file'), 'w');
  await syncFile({ fd });
  closeSync(fd);
  await expect(syncFile({ fd: 1_000_000 })).rejects.toMatchObject({ code: 'EBADF' });
  const own = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  );
  expect(
    own.filter((name) => /await \w+\.(?:sync|datasync)\(/.test(readFileSync(join('src', name), 'utf8'))),
  ).toEqual([]);
});
