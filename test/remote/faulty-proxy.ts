import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

/** What goes wrong with one request. */
export type Fault =
  | 'refused connection'
  | '429'
  | '500'
  | 'no answer'
  | 'cut stream'
  | 'silence'
  | 'slow bytes'
  | 'garbage'
  | 'duplicated event'
  | 'lost event'
  | 'error event'
  | 'no end'
  | 'half a prompt'
  | 'other type'
  | 'ignored adapter';

export interface FaultyProxy {
  readonly url: string;
  /** Requests that came, by path. */
  readonly asked: string[];
  close(): Promise<void>;
}

/** Passes requests to a server that works, now; `faultOf` says what goes wrong with the i-th to a path. It goes with the test. */
export async function faultyProxy(
  target: string | (() => string),
  faultOf: (request: number, path: string) => Fault | undefined,
): Promise<FaultyProxy> {
  const asked: string[] = [];
  const counts = new Map<string, number>();
  const server = createServer((request, response) => {
    const path = request.url as string;
    const number = counts.get(path) ?? 0;
    counts.set(path, number + 1);
    asked.push(path);
    const to = typeof target === 'string' ? target : target();
    void pass(to, faultOf(number, path), request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const proxy = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  onTestFinished(() => proxy.close());
  return proxy;
}

async function pass(
  target: string,
  fault: Fault | undefined,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (fault === 'refused connection') return void request.socket.destroy();
  if (fault === 'no answer') return;
  const body: Buffer[] = [];
  for await (const chunk of request) body.push(chunk as Buffer);
  if (fault === 'ignored adapter') {
    const asked = JSON.parse(Buffer.concat(body).toString());
    body.splice(0, body.length, Buffer.from(JSON.stringify({ ...asked, model: 'base' })));
  }
  if (fault === '429' || fault === '500') {
    response.writeHead(Number(fault), { 'retry-after': '0' });
    response.end('{"error": {"message": "not now"}}');
    return;
  }
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const headers = { 'content-type': 'application/json' };
    httpRequest(`${target}${request.url}`, { method: request.method ?? 'GET', headers }, resolve)
      .on('error', reject)
      .end(Buffer.concat(body));
  });
  const parts: Buffer[] = [];
  for await (const chunk of answer) parts.push(chunk as Buffer);
  const text = Buffer.concat(parts).toString();
  // An adapter may be loaded and the answer lost.
  if (fault === 'cut stream' && !text.startsWith('data:')) return void request.socket.destroy();
  response.writeHead(answer.statusCode ?? 500, { 'content-type': answer.headers['content-type'] ?? '' });
  const events = text.split('\n\n').filter((event) => event !== '');
  const middle = Math.floor(events.length / 2);
  const first = events.slice(0, middle).map((event) => `${event}\n\n`);
  const rest = events.slice(middle).map((event) => `${event}\n\n`);
  switch (fault) {
    case 'cut stream':
      response.write(first.join('') + rest[0]?.slice(0, 20), () => response.destroy());
      return;
    case 'silence':
      response.write(first.join(''));
      return;
    case 'slow bytes':
      for (const event of [...first, ...rest]) {
        for (const half of [event.slice(0, 30), event.slice(30)]) {
          response.write(half);
          await new Promise((resolve) => setTimeout(resolve, 2));
        }
      }
      return void response.end();
    case 'garbage':
      return void response.end(`${first.join('')}data: {"choices": [{"ind\n\n${rest.join('')}`);
    case 'duplicated event':
      return void response.end([...first, rest[0], ...rest].join(''));
    case 'lost event':
      return void response.end([...first, ...rest.slice(1)].join(''));
    case 'error event':
      return void response.end(`${first.join('')}data: {"error": {"message": "broken"}}\n\ndata: [DONE]\n\n`);
    case 'no end':
      return void response.end([...first, ...rest.slice(0, -1)].join(''));
    case 'half a prompt':
      return void response.end(text.replace(/"prompt_tokens":\d+/, '"prompt_tokens":1'));
    case 'other type':
      return void response.end('<html>welcome</html>');
    default:
      response.end(text);
  }
}
