// The live page: what it shows, what it refuses, what it sends as a run goes on, stop and resume.
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunningUi, startUi } from '../../src/ui/server.js';
import { makeRun } from '../report/run-fixture.js';

// A busy machine needs time to answer.

let folder: string;
let ui: RunningUi;
const HOSTILE = '"><script>alert(1)</script>';

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-ui-'));
  makeRun(join(folder, 'runs', 'first'));
  makeRun(join(folder, 'runs', 'sweep', 'stopped'), { isFinished: false, steps: 15 });
  writeFileSync(
    join(folder, 'runs', 'sweep', 'stopped', 'progress.json'),
    '{"stages":["sft","ppo"],"stage":1,"steps":30}',
  );
  makeRun(join(folder, 'runs', 'sweep', 'whole'));
  makeRun(join(folder, 'runs', HOSTILE.replaceAll('/', '_')), { text: HOSTILE });
  makeRun(join(folder, 'secret'));
  // Stands for the command line: waits until it is interrupted.
  const program = join(folder, 'program.cjs');
  writeFileSync(
    program,
    `const fs = require('fs'); const run = process.argv[4];
     fs.writeFileSync(run + '/resumed', process.argv.slice(2).join(' '));
     process.on('SIGINT', () => { fs.writeFileSync(run + '/interrupted', ''); process.exit(130); });
     setInterval(() => {}, 1000);`,
  );
  ui = await startUi({ root: join(folder, 'runs'), port: 0, program: [program], interval: 50 });
});
afterAll(async () => {
  await ui.close();
  rmSync(folder, { recursive: true, force: true });
});

/** A request with headers that fetch would not send. */
function ask(
  path: string,
  { method = 'GET', headers = {} }: { method?: string; headers?: Record<string, string> } = {},
): Promise<{ status: number; text: string; headers: Record<string, unknown> }> {
  const { hostname, port } = new URL(ui.url);
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path, method, headers, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, text, headers: response.headers }),
      );
    });
    sent.on('error', reject);
    sent.end();
  });
}

const own = () => ({ origin: ui.url, 'content-type': 'application/json' });

async function until(met: () => boolean): Promise<void> {
  while (!met()) await new Promise((resolve) => setTimeout(resolve, 20));
}

describe('pages', () => {
  it('list every run with its state', async () => {
    const { status, text, headers } = await ask('/');
    expect(status).toBe(200);
    expect(text).toContain('<a href="/run?name=first">first</a>');
    expect(text).toContain('<a href="/run?name=sweep%2Fstopped">stopped</a>');
    expect(text).not.toContain('secret');
    // How far it is, and its curve.
    expect(text).toMatch(
      /<progress max="1" value="0\.750"[^>]*><\/progress> <span class="hint">ppo 15\/30, stage 2 of 2/,
    );
    expect(text).toMatch(/aria-label="loss of policy, from 1 to 0\.0\d+"/);
    expect(text).toMatch(/<summary><b>sweep<\/b> <span class="hint">2 runs, 1 finished, 1 stopped/);
    expect(headers).toMatchObject({ 'x-frame-options': 'DENY', 'x-content-type-options': 'nosniff' });
  });

  it('show a run, and compare several', async () => {
    expect((await ask('/run?name=first')).text).toContain('<section id="judgement"');
    const { status, text } = await ask('/compare?run=first&run=sweep%2Fstopped&run=nowhere');
    expect(status).toBe(200);
    expect(text).toContain('<h1>2 runs</h1>');
    expect(text).toContain('data-plot="ppo/kl/kl_k3"');
  });

  it('take a hostile name for a name', async () => {
    const name = HOSTILE.replaceAll('/', '_');
    for (const path of [
      '/',
      `/run?name=${encodeURIComponent(name)}`,
      `/compare?run=${encodeURIComponent(name)}`,
    ]) {
      const { status, text } = await ask(path);
      expect(status).toBe(200);
      expect(text.match(/<script/g)).toHaveLength(2);
    }
  });

  it('are offered only for runs in the folder', async () => {
    symlinkSync(join(folder, 'secret'), join(folder, 'runs', 'link'));
    for (const name of [
      '../secret',
      '..%2Fsecret',
      '%2e%2e/secret',
      join(folder, 'secret'),
      'link',
      'first/../../secret',
      '',
      'first%00',
    ])
      expect((await ask(`/run?name=${name}`)).status, name).toBe(404);
    for (const path of [
      '/run',
      '/../secret/config.yaml',
      '/first/config.yaml',
      '/events?name=nowhere',
      '//evil',
      '/%',
    ])
      expect((await ask(path)).status, path).not.toBe(200);
  });
});

describe('requests that this page did not make', () => {
  it.each<[string, string, string, () => Record<string, string>]>([
    ['a foreign host name', 'GET', '/', () => ({ host: 'evil.example' })],
    ['another port', 'GET', '/', () => ({ host: '127.0.0.1:1' })],
    [
      'a name that begins like ours',
      'GET',
      '/',
      () => ({ host: `localhost.evil.example:${new URL(ui.url).port}` }),
    ],
    ['a foreign origin', 'GET', '/', () => ({ origin: 'http://evil.example' })],
    ['a foreign site', 'GET', '/events', () => ({ 'sec-fetch-site': 'cross-site' })],
    ['no origin', 'POST', '/resume?name=sweep/stopped', () => ({ 'content-type': 'application/json' })],
    [
      'a foreign origin that resumes',
      'POST',
      '/resume?name=sweep/stopped',
      () => ({ ...own(), origin: 'null' }),
    ],
    ['a form', 'POST', '/resume?name=sweep/stopped', () => ({ ...own(), 'content-type': 'text/plain' })],
  ])('are refused: %s', async (_, method, path, headers) => {
    const { status, text } = await ask(path, { method, headers: headers() });
    expect(status).toBe(403);
    expect(text).not.toContain('<');
    expect(existsSync(join(folder, 'runs', 'sweep', 'stopped', 'resumed'))).toBe(false);
  });
});

it('sends what is new while a run goes on', async () => {
  const path = makeRun(join(folder, 'runs', 'goes-on'), { isFinished: false });
  const response = await fetch(`${ui.url}/events?name=goes-on`);
  const reader = response.body?.getReader() as ReadableStreamDefaultReader<Uint8Array>;
  let text = '';
  const readUntil = async (sign: string) => {
    while (!text.includes(sign)) text += Buffer.from((await reader.read()).value ?? []).toString('utf8');
  };
  await readUntil('retry');
  appendFileSync(
    join(path, 'metrics.jsonl'),
    `${JSON.stringify({ step: 51, phase: 'ppo', phase_step: 31, loss: 0.125, tokens: 99_000 })}\n`,
  );
  await readUntil('\n\nevent: update');
  await readUntil('0.125');
  await reader.cancel();
  const data = JSON.parse(/data: (.*)/.exec(text)?.[1] ?? '{}') as {
    head: string;
    plots: { id: string; series: { y: number[] }[] }[];
  };
  expect(data.head).toContain('99,000');
  expect(data.plots.find(({ id }) => id === 'ppo/loss')?.series[0]?.y.at(-1)).toBe(0.125);
});

it('resumes a stopped run and stops what it resumed, nothing else', async () => {
  const path = join(folder, 'runs', 'sweep', 'stopped');
  expect(await ask('/stop?name=first', { method: 'POST', headers: own() })).toMatchObject({ status: 409 });
  expect((await ask('/run?name=sweep/stopped')).text).toContain('data-post="/resume?name=sweep%2Fstopped"');
  expect(await ask('/resume?name=sweep/stopped', { method: 'POST', headers: own() })).toMatchObject({
    status: 200,
  });
  await until(() => existsSync(join(path, 'resumed')));
  expect((await ask('/run?name=sweep/stopped')).text).toContain('data-post="/stop?name=sweep%2Fstopped"');
  expect(await ask('/stop?name=sweep/stopped', { method: 'POST', headers: own() })).toMatchObject({
    status: 200,
  });
  await until(() => existsSync(join(path, 'interrupted')));
});

it('an empty folder has a page too', async () => {
  const root = join(folder, 'empty');
  mkdirSync(root);
  const other = await startUi({ root, port: 0, program: [], interval: 50 });
  const text = await (await fetch(other.url)).text();
  expect(text).toContain('There is no run below');
  await other.close();
});

it('a port that is taken is told in a sentence', async () => {
  const port = Number(new URL(ui.url).port);
  await expect(startUi({ root: folder, port, program: [], interval: 50 })).rejects.toThrow(
    `ui: cannot listen on 127.0.0.1:${port}: another program has this port; name another one, or 0 for any that is free`,
  );
});
