import { onTestFinished } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import type { Served } from '../../src/serve/engine.js';
import { type RunningServer, type ServeOptions, serve } from '../../src/serve/server.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';
import { chatModel } from '../generate/chat-model.js';

export interface TestServer extends RunningServer {
  readonly device: Device;
  readonly model: Model;
  readonly served: Served & { readonly tokenizer: Tokenizer };
  /** Errors passed to `onError`. */
  readonly errors: unknown[];
}

/** A server of a model with random weights, a token for each byte, and a chat template. It is closed after the running test. */
export async function testServer(options: ServeOptions = {}, template?: string): Promise<TestServer> {
  const directory = await chatModel(template);
  const device = openDevice('cpu');
  const model = await loadModel(device, directory);
  const served = { name: 'pupil', model, tokenizer: await loadTokenizer(directory) };
  const errors: unknown[] = [];
  const server = await serve(served, {
    port: 0,
    cacheBytes: 8_000_000,
    onError: (error) => errors.push(error),
    ...options,
  });
  onTestFinished(async () => {
    await server.close(0);
    model.dispose();
    device.dispose();
  });
  return { ...server, device, model, served, errors };
}

/** The part of a response that tests read. */
export interface Answer {
  readonly choices: readonly {
    readonly text: string;
    readonly token_ids: readonly number[];
    readonly finish_reason: string;
    readonly logprobs: unknown;
    readonly prompt_logprobs: unknown;
  }[];
  readonly usage: { readonly completion_tokens: number };
  readonly error: { readonly message: string; readonly type: string };
}

/** Posts JSON, or a body unchanged. */
export async function post(
  url: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ readonly status: number; readonly headers: Headers; readonly json: Answer }> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
  });
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    json: text.startsWith('{') ? JSON.parse(text) : text,
  };
}

/** Resolves once `holds` gives true; the test's own timeout ends it otherwise. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** A value of /metrics. */
export async function metric(url: string, name: string): Promise<number> {
  // A kept connection may end while this process is busy, just before it is used again.
  const text = await (await fetch(`${url}/metrics`, { headers: { connection: 'close' } })).text();
  const line = text.split('\n').find((each) => each.startsWith(`${name} `));
  return Number(line?.slice(name.length + 1));
}
