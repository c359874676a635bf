import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, inject, it } from 'vitest';
import { startUi } from '../../src/ui/server.js';
import { makeRun } from '../report/run-fixture.js';
import { cli } from './run-cli.js';

it('begins in a folder without runs/, but not in one that is named and absent', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const port = String((server.address() as AddressInfo).port);
  const before = process.cwd();
  process.chdir(mkdtempSync(join(inject('folder'), 'ui-')));
  try {
    // As far as its port, which is taken.
    expect((await cli('ui', '--port', port)).stderr).toContain(`cannot listen on 127.0.0.1:${port}`);
    expect((await cli('ui', 'gone', '--port', port)).stderr).toBe(
      'there is no folder gone; name the one that holds the runs',
    );
  } finally {
    process.chdir(before);
    server.close();
  }
});

it('shows a run that begins later', async () => {
  const root = join(mkdtempSync(join(inject('folder'), 'ui-')), 'runs');
  const ui = await startUi({ root, port: 0, program: [] });
  try {
    const list = async () => (await fetch(ui.url)).text();
    expect(await list()).toContain('There is no run below');
    makeRun(join(root, 'first'));
    expect(await list()).toContain('/run?name=first');
  } finally {
    await ui.close();
  }
});
