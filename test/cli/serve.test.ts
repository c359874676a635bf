// steptrain serve: what it refuses, and its life from the first line to SIGTERM.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { changedAdapter } from '../models/changed-model.js';
import { goldenDirectory } from '../models/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { cli } from './run-cli.js';

it.each([
  [['--port', '1.5'], '--port expects a whole number from 0 to 65535, found 1.5'],
  [['--max-rows', '0'], '--max-rows expects a whole number of at least 1, found 0'],
  [['--cache-gb', '0'], '--cache-gb expects a number above 0, found 0'],
  [['--lora', 'x'], '--lora expects NAME=DIRECTORY, found "x"'],
])('refuses %j', async (args, message) => {
  expect(await cli('serve', ...args)).toMatchObject({ code: 1, stderr: message });
});

it('refuses other machines without a key', async () => {
  const { code, stderr } = await cli(
    'serve',
    '--device',
    'cpu',
    '--host',
    '0.0.0.0',
    '--key-env',
    'NO_SUCH_KEY',
  );
  expect([code, stderr]).toEqual([
    1,
    '--host 0.0.0.0 can be reached from other machines: set NO_SUCH_KEY to a key that clients must send, or listen on 127.0.0.1',
  ]);
});

it('refuses an adapter of another model under another name', async () => {
  const own = goldenDirectory('llama3');
  const other = join(temporaryDirectory(), 'other');
  cpSync(own, other, { recursive: true });
  writeFileSync(join(other, 'config.json'), `${readFileSync(join(own, 'config.json'), 'utf8')} `);
  const adapter = changedAdapter('llama3', { base_model_name_or_path: other });
  const args = ['--device', 'cpu', '--port', '0', '--model', own, '--tokenizer', 'bytes'];
  const { code, stderr } = await cli('serve', ...args, '--lora', `judge=${adapter}`);
  expect([code, stderr]).toEqual([
    1,
    `serve: adapter judge: ${adapter} was trained on ${other}, and ${own} is another model; load it where that one is served, or start this server with --other-base`,
  ]);
});

it("says at the start what the judge's run found wrong with it", async () => {
  const judge = changedAdapter('llama3', { base_model_name_or_path: goldenDirectory('llama3') });
  const prompt = { template: 'compact', pos_word: '+', neg_word: '-' };
  writeFileSync(
    join(judge, 'steptrain.json'),
    JSON.stringify({
      method: 'sft',
      dtype: 'f32',
      judge: { kind: 'verdict', prompt, max_length: 64, threshold: 'greedy', warnings: ['it is chance'] },
    }),
  );
  const command = resolve('dist/cli/main.js');
  const args = [command, 'serve', judge, '--device', 'cpu', '--port', '0', '--tokenizer', 'bytes'];
  const server = spawn(process.execPath, args);
  let told = '';
  server.stderr.on('data', (data) => {
    told += data;
  });
  await once(server.stdout, 'data');
  expect(told).toMatch(
    /^warning: of what answers \/score, it is chance\nSteps are scored on http:\S+\/score, by \S+\.\n$/,
  );
  server.kill('SIGTERM');
  expect(await once(server, 'exit')).toEqual([0, null]);
});

it('answers until SIGTERM, which lets what runs end', async () => {
  const command = resolve('dist/cli/main.js');
  const args = [
    command,
    'serve',
    'embedded',
    '--device',
    'cpu',
    '--port',
    '0',
    '--cache-gb',
    '0.01',
    '--key-env',
    'TEST_KEY',
  ];
  const server = spawn(process.execPath, args, { env: { ...process.env, TEST_KEY: 'secret' } });
  const [line] = await once(server.stdout, 'data');
  const [, name, url] = /^(\S+) is served on (\S+); Ctrl-C ends it\.\n$/.exec(String(line)) ?? [];
  expect(name).toBe('embedded');
  const asked = fetch(`${url}/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer secret' },
    body: JSON.stringify({ prompt: '12-6=', max_tokens: 400, ignore_eos: true, stream: true }),
  });
  const response = await asked;
  server.kill('SIGTERM');
  const events = (await response.text()).trim().split('\n\n');
  expect(events.at(-1)).toBe('data: [DONE]');
  expect(events.at(-2)).toContain('"finish_reason":"length"');
  expect(await once(server, 'exit')).toEqual([0, null]);
});
