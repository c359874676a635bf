/** The routes of the server. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { attempt } from '../native/attempt.js';
import { answer, type Exchange } from './answer.js';
import { readJson } from './body.js';
import { chatJob } from './chat-completions.js';
import { completionJob } from './completions.js';
import type { Engine } from './engine.js';
import type { Job } from './job.js';
import { RequestFields } from './request-fields.js';
import { score } from './score.js';
import { classify, pooling } from './whole-scores.js';

export interface Route {
  readonly method: 'GET' | 'POST';
  /** Needs no key: for health checks. */
  readonly open?: boolean;
  /** Takes paths inside its own too. */
  readonly inner?: boolean;
  handle(engine: Engine, request: IncomingMessage, exchange: Exchange): Promise<void> | void;
}

export const ROUTES: ReadonlyMap<string, Route> = new Map<string, Route>([
  ['/health', { method: 'GET', open: true, handle: health }],
  ['/metrics', { method: 'GET', handle: metrics }],
  [
    '/v1/models',
    {
      method: 'GET',
      inner: true,
      handle: ({ models, served }, _, { response, rest }) =>
        sendJson(
          response,
          rest === undefined ? models.list(Object.keys(served.scorers ?? {})) : models.card(rest),
        ),
    },
  ],
  ['/v1/completions', generation(completionJob)],
  ['/v1/chat/completions', generation(chatJob)],
  ['/score', { method: 'POST', handle: score }],
  ['/pooling', { method: 'POST', handle: pooling }],
  ['/classify', { method: 'POST', handle: classify }],
  ['/v1/load_lora_adapter', { method: 'POST', handle: loadAdapter }],
  ['/v1/unload_lora_adapter', { method: 'POST', handle: unloadAdapter }],
]);

/** The route of a path, the name of it for metrics, and what of the path is after it. */
export function routeOf(path: string): {
  readonly route: Route | undefined;
  readonly name: string;
  readonly rest?: string | undefined;
} {
  const own = ROUTES.get(path);
  if (own) return { route: own, name: path };
  for (const [name, route] of ROUTES)
    if (route.inner && path.length > name.length + 1 && path.startsWith(`${name}/`))
      return { route, name, rest: decoded(path.slice(name.length + 1)) };
  return { route: undefined, name: 'other' };
}

/** Clients escape the slashes of names, or do not. */
function decoded(text: string): string {
  return attempt(() => decodeURIComponent(text), text);
}

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
  await engine.models.loadRequested(name, path, replace);
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
