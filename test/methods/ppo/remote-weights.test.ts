// Rollouts of a server that reads the weights of a whole policy anew: a stand-in that asks for them as vLLM is asked.
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { loadModel } from '../../../src/api/model.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import { train } from '../../../src/methods/run.js';
import { openDevice } from '../../../src/runtime/device.js';
import { serve } from '../../../src/serve/server.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { metrics } from '../../e2e/program.js';
import { goldenDirectory } from '../../models/golden.js';
import { remoteConfig } from './remote-config.js';

let folder: string;
const at = (...names: string[]) => join(folder, ...names);

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-served-weights-'));
  cpSync(goldenDirectory('llama3'), at('served'), { recursive: true });
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const config = (server: object) => remoteConfig('none', { server });

/** Answers by steptrain serve on what lay in the directory when it was last told to read it; `reads` false: it then goes on with what it has. */
async function standIn(directory: string, reads = true) {
  const device = openDevice('cpu', { threads: 1 });
  const asked: string[] = [];
  const begin = async () => {
    const model = await loadModel(device, directory);
    const own = await serve(
      { name: 'base', model, tokenizer: byteTokenizer() },
      { port: 0, cacheBytes: 32_000_000 },
    );
    return { url: own.url, end: () => own.close(0).then(() => model.dispose()) };
  };
  let current = await begin();
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const path = request.url as string;
    const body = Buffer.concat(chunks).toString();
    if (path === '/collective_rpc' || path === '/reset_prefix_cache') {
      asked.push(`${path} ${body}`);
      if (path === '/collective_rpc' && reads) {
        await current.end();
        current = await begin();
      }
      return response.end('{}');
    }
    const given = await fetch(current.url + path, {
      method: request.method ?? 'GET',
      headers: { 'content-type': 'application/json' },
      ...(body ? { body } : {}),
    });
    response.writeHead(given.status, { 'content-type': given.headers.get('content-type') ?? 'text/plain' });
    response.end(Buffer.from(await given.arrayBuffer()));
  };
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    async close() {
      server.close();
      server.closeAllConnections();
      await current.end();
      device.dispose();
    },
  };
}

async function differences(name: string, reads: boolean) {
  const server = await standIn(at('served'), reads);
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  try {
    const own = { url: server.url, kind: 'vllm', model: 'base', weights: at('served') };
    await train(config(own) as never, { output: at(name) });
  } finally {
    said.mockRestore();
    await server.close();
  }
  const steps = (await metrics(at(name))).filter(({ loss }) => loss !== undefined);
  return { asked: server.asked, by: steps.map(({ sampler_difference }) => Number(sampler_difference)) };
}

it('samples from the policy as it is in each iteration', async () => {
  // What a file of an earlier model leaves there.
  writeFileSync(at('served', 'model-00002-of-00002.safetensors'), 'old');
  const before = readFileSync(at('served', 'model.safetensors'));
  const { asked, by } = await differences('read', true);
  expect(by).toEqual([0, 0, 0].map((zero) => expect.closeTo(zero, 5)));
  expect(asked.slice(0, 2)).toEqual([
    '/collective_rpc {"method":"reload_weights"}',
    '/reset_prefix_cache {}',
  ]);
  expect(asked).toHaveLength(6);
  expect(readdirSync(at('served')).filter((name) => /safetensors|steptrain/.test(name))).toEqual([
    'model.safetensors',
  ]);
  const after = readFileSync(at('served', 'model.safetensors'));
  expect([after.length === before.length, after.equals(before)]).toEqual([true, false]);
});

it('ends where a server did not read them', async () => {
  await expect(differences('unread', false)).rejects.toThrow(
    /^rollout\.server: the log-probs of its samples differ by .* more than rollout\.server\.max_difference 0\.5/,
  );
});

it('is refused in a sentence by a server that reads no weights anew', async () => {
  const device = openDevice('cpu', { threads: 1 });
  const model = await loadModel(device, at('served'));
  const server = await serve(
    { name: 'base', model, tokenizer: byteTokenizer() },
    { port: 0, cacheBytes: 32_000_000 },
  );
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const own = { url: server.url, kind: 'vllm', model: 'base', weights: at('served') };
  await expect(train(config(own) as never, { output: at('refused') })).rejects.toThrow(
    /^rollout\.server: the server reads no weights anew \(.*404.*\); start vLLM with VLLM_SERVER_DEV_MODE=1; when/,
  );
  const gone = { ...own, weights: at('nowhere') };
  await expect(train(config(gone) as never, { output: at('gone') })).rejects.toThrow(
    /^rollout\.server: cannot write the weights that the server reads, .*nowhere: .*; when/,
  );
  expect(existsSync(at('nowhere'))).toBe(false);
  said.mockRestore();
  await server.close(0);
  model.dispose();
  device.dispose();
});

it.each([
  [{ kind: 'steptrain', weights: 'x' }, 'steptrain serve takes the policy as an adapter alone'],
  [{ kind: 'vllm' }, 'name the model directory that it was started on'],
  [{ kind: 'vllm', weights: goldenDirectory('llama3') }, 'is model.base; start the server on a copy'],
  [{ kind: 'sglang', weights: 'x', max_staleness: 1 }, 'nothing is drawn ahead'],
])('refuses %j beside lora none', (server, message) => {
  expect(() => completeRunConfig(config({ url: 'http://127.0.0.1:1', ...server }))).toThrow(message);
});

it('needs a folder for adapters with lora', () => {
  const own = { ...config({ url: 'http://127.0.0.1:1' }), lora: {} };
  expect(() => completeRunConfig(own)).toThrow('name a folder that both see as rollout.server.adapters');
});
