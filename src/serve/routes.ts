/** The routes of the server. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { answer, type Exchange, type Job } from './answer.js';
import { readJson } from './body.js';
import { chatJob } from './chat-completions.js';
import { completionJob } from './completions.js';
import type { Engine } from './engine.js';
import { RequestFields } from './request-fields.js';
import { score } from './score.js';

export interface Route {
  readonly method: 'GET' | 'POST';
  /** Needs no key: for health checks. */
  readonly open?: boolean;
  handle(engine: Engine, request: IncomingMessage, exchange: Exchange): Promise<void> | void;
}

export const ROUTES: ReadonlyMap<string, Route> = new Map<string, Route>([
  ['/health', { method: 'GET', open: true, handle: health }],
  ['/metrics', { method: 'GET', handle: metrics }],
  [
    '/v1/models',
    {
      method: 'GET',
      handle: ({ models, served }, _, { response }) =>
        sendJson(response, models.list(Object.keys(served.scorers ?? {}))),
    },
  ],
  ['/v1/completions', generation(completionJob)],
  ['/v1/chat/completions', generation(chatJob)],
  ['/score', { method: 'POST', handle: score }],
  ['/v1/load_lora_adapter', { method: 'POST', handle: loadAdapter }],
  ['/v1/unload_lora_adapter', { method: 'POST', handle: unloadAdapter }],
]);

export function sendJson(response: ServerResponse, body: object, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8' });
  response.end(JSON.stringify(body));
}

function generation(job: (engine: Engine, fields: RequestFields) => Job): Route {
  return {
    method: 'POST',
    handle: async (engine, request, exchange) => {
      const fields = await fieldsOf(engine, request, exchange);
      await answer(engine, job(engine, fields), exchange);
    },
  };
}

function health({ failed }: Engine, _: IncomingMessage, { response }: Exchange): void {
  sendJson(response, { status: failed ? 'failed' : 'ok' }, failed ? 503 : 200);
}

function metrics({ metrics, generator }: Engine, _: IncomingMessage, { response }: Exchange): void {
  response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' });
  response.end(metrics.text(generator.load));
}

async function loadAdapter(engine: Engine, request: IncomingMessage, exchange: Exchange): Promise<void> {
  const fields = await fieldsOf(engine, request, exchange);
  const name = fields.requiredText('lora_name');
  const path = fields.requiredText('lora_path');
  const replace = fields.flag('load_inplace') ?? false;
  fields.end();
  engine.models.loadRequested(name, path, replace);
  sendText(exchange.response, `Success: LoRA adapter '${name}' added successfully.`);
}

async function unloadAdapter(engine: Engine, request: IncomingMessage, exchange: Exchange): Promise<void> {
  const fields = await fieldsOf(engine, request, exchange);
  const name = fields.requiredText('lora_name');
  fields.ignore('lora_int_id');
  fields.end();
  engine.models.unload(name);
  sendText(exchange.response, `Success: LoRA adapter '${name}' removed successfully.`);
}

async function fieldsOf(
  { limits }: Engine,
  request: IncomingMessage,
  { signal }: Exchange,
): Promise<RequestFields> {
  return new RequestFields(await readJson(request, limits.bodyBytes, signal));
}

function sendText(response: ServerResponse, text: string): void {
  response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' });
  response.end(text);
}
