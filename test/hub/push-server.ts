// A hub that takes commits: the requests that huggingface_hub makes for an upload, and a storage on another origin behind them.
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

export interface PushServer {
  readonly endpoint: string;
  /** `METHOD path` to the hub, in order. */
  readonly requests: string[];
  /** Repositories with the files of their commits, and what was asked when they were made. */
  readonly repositories: Map<string, Record<string, Buffer>>;
  readonly made: Record<string, unknown>[];
  readonly messages: string[];
  /** Objects by their SHA-256. */
  readonly stored: Map<string, Buffer>;
  /** Authorization headers that the storage has received. */
  readonly leaked: string[];
  /** The status for the next request whose path contains the key. */
  readonly refusals: Map<string, number>;
}

export const TOKEN = 'hf_secret';

/** Files of at least this size are to be stored. */
const LARGE = 2000;

export async function startPushServer(): Promise<PushServer> {
  const requests: string[] = [];
  const repositories = new Map<string, Record<string, Buffer>>();
  const made: Record<string, unknown>[] = [];
  const messages: string[] = [];
  const stored = new Map<string, Buffer>();
  const leaked: string[] = [];
  const refusals = new Map<string, number>();
  const storage = await listen(async (request, response) => {
    if (request.headers.authorization !== undefined) leaked.push(request.headers.authorization);
    const content = await bodyOf(request);
    const oid = (request.url ?? '').slice(1);
    if (createHash('sha256').update(content).digest('hex') !== oid || request.headers['x-part'] !== '1') {
      response.writeHead(400).end();
      return;
    }
    stored.set(oid, content);
    response.writeHead(200).end();
  });
  const hub = await listen(async (request, response) => {
    const path = decodeURIComponent(request.url ?? '');
    requests.push(`${request.method} ${path}`);
    const body = (await bodyOf(request)).toString();
    const send = (value: unknown, status = 200) => response.writeHead(status).end(JSON.stringify(value));
    const [refused, status] = [...refusals].find(([part]) => path.includes(part)) ?? [];
    if (refused !== undefined && status !== undefined) {
      refusals.delete(refused);
      send({ error: 'refused for a test' }, status);
    } else if (request.method === 'GET') send({ cardData: { license: 'apache-2.0' } });
    else if (request.headers.authorization !== `Bearer ${TOKEN}`) send({ error: 'Invalid token' }, 401);
    else if (path === '/api/repos/create') {
      const asked = JSON.parse(body) as Record<string, unknown>;
      const name = `${asked.organization}/${asked.name}`;
      if (repositories.has(name)) send({ error: 'exists' }, 409);
      else {
        repositories.set(name, {});
        made.push(asked);
        send({ url: name });
      }
    } else if (path.includes('/preupload/')) {
      const { files } = JSON.parse(body) as { files: { path: string; size: number; sample: string }[] };
      send({
        files: files.map(({ path, size }) => ({
          path,
          uploadMode: size < LARGE ? 'regular' : 'lfs',
          shouldIgnore: false,
        })),
      });
    } else if (path.endsWith('.git/info/lfs/objects/batch')) {
      const { objects } = JSON.parse(body) as { objects: { oid: string; size: number }[] };
      const action = (oid: string) => ({
        upload: { href: `${urlOf(storage)}/${oid}`, header: { 'x-part': '1' } },
      });
      send({
        objects: objects.map(({ oid, size }) => ({
          oid,
          size,
          ...(stored.has(oid) ? {} : { actions: action(oid) }),
        })),
      });
    } else if (path.includes('/commit/')) {
      const [, , , owner, name] = path.split('/');
      const files = { ...repositories.get(`${owner}/${name}`) };
      for (const line of body.split('\n')) {
        const { key, value } = JSON.parse(line) as { key: string; value: Record<string, string> };
        if (key === 'header') messages.push(value.summary as string);
        else {
          const large = key === 'lfsFile' ? stored.get(value.oid as string) : undefined;
          files[value.path as string] = large ?? Buffer.from(value.content as string, 'base64');
        }
      }
      repositories.set(`${owner}/${name}`, files);
      send({ commitUrl: `${urlOf(hub)}/${owner}/${name}/commit/abc` });
    } else send({}, 404);
  });
  return { endpoint: urlOf(hub), requests, repositories, made, messages, stored, leaked, refusals };
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

type Answer = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

async function listen(answer: Answer) {
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return server;
}

function urlOf(server: ReturnType<typeof createServer>): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
