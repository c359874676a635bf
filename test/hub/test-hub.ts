// A local hub: the used part of huggingface.co's interface, with faults on demand.
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

export interface TestRepository {
  readonly kind: 'model' | 'dataset';
  readonly name: string;
  readonly files: Readonly<Record<string, Buffer>>;
  /** Branches and tags. Default `main`. */
  readonly revisions?: readonly string[];
  readonly refusal?: { readonly status: number; readonly code: string };
}

/** Faults of a file, one per request for it, in order; later requests succeed. */
export type Fault =
  | { readonly cutAfter: number }
  | { readonly status: number }
  | { readonly content: Buffer }
  | { readonly ignoreRange: true };

const NO_FAULT: Fault = { cutAfter: Number.POSITIVE_INFINITY };

export interface TestHub {
  readonly endpoint: string;
  /** `METHOD path`, with the range where there is one, in order. */
  readonly requests: string[];
  /** Authorization headers that the storage behind redirects has received. */
  readonly leaked: string[];
  /** Tokens that the hub itself has received. */
  readonly tokens: Set<string>;
  readonly faults: Map<string, Fault[]>;
  readonly commit: (repository: TestRepository) => string;
  close(): Promise<void>;
}

/** Files of at least this size are behind a redirect to another host and named by their SHA-256, like large files. */
const LARGE = 100_000;

export async function startHub(repositories: readonly TestRepository[]): Promise<TestHub> {
  const requests: string[] = [];
  const leaked: string[] = [];
  const tokens = new Set<string>();
  const faults = new Map<string, Fault[]>();
  const storage = await listen((request, response) => {
    const { authorization } = request.headers;
    if (authorization !== undefined) leaked.push(authorization);
    const path = decodeURIComponent((request.url ?? '').slice(1));
    const content = repositories
      .flatMap(({ files }) => Object.entries(files))
      .find(([name]) => name === path);
    send(request, response, path, content?.[1] ?? Buffer.alloc(0));
  });
  const hub = await listen((request, response) => {
    const { authorization } = request.headers;
    if (authorization !== undefined) tokens.add(authorization);
    const url = request.url ?? '';
    requests.push(`${request.method} ${url}${request.headers.range ? ` ${request.headers.range}` : ''}`);
    for (const repository of repositories) {
      if (answer(repository, url, request, response)) return;
    }
    response.writeHead(401, { 'x-error-code': 'RepoNotFound' }).end();
  });

  function answer(
    repository: TestRepository,
    url: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): boolean {
    const { kind, name, files, revisions = ['main'], refusal } = repository;
    const api = `/api/${kind}s/${name}/revision/`;
    const resolve = `/${kind === 'model' ? '' : 'datasets/'}${name}/resolve/${commitOf(repository)}/`;
    const isApi = url.startsWith(api);
    if (!isApi && !url.startsWith(resolve)) return false;
    if (refusal) {
      response.writeHead(refusal.status, { 'x-error-code': refusal.code }).end();
    } else if (isApi) {
      const revision = decodeURIComponent(url.slice(api.length).split('?')[0] as string);
      if (!revisions.includes(revision) && revision !== commitOf(repository)) {
        response.writeHead(404, { 'x-error-code': 'RevisionNotFound' }).end();
        return true;
      }
      const siblings = Object.entries(files).map(([rfilename, content]) => ({
        rfilename,
        size: content.length,
        blobId: gitHash(content),
        ...(content.length < LARGE ? {} : { lfs: { sha256: sha256(content), size: content.length } }),
      }));
      response.writeHead(200).end(JSON.stringify({ sha: commitOf(repository), siblings }));
    } else {
      const path = decodeURIComponent(url.slice(resolve.length));
      const content = files[path];
      if (content === undefined) response.writeHead(404, { 'x-error-code': 'EntryNotFound' }).end();
      else if (content.length < LARGE) send(request, response, path, content);
      else
        response
          .writeHead(302, { location: `${urlOf(storage, 'localhost')}/${encodeURIComponent(path)}` })
          .end();
    }
    return true;
  }

  function send(request: IncomingMessage, response: ServerResponse, path: string, content: Buffer): void {
    const fault = faults.get(path)?.shift() ?? NO_FAULT;
    if ('status' in fault) {
      response.writeHead(fault.status).end();
      return;
    }
    const whole = 'content' in fault ? fault.content : content;
    const [, from] = /^bytes=(\d+)-$/.exec(request.headers.range ?? '') ?? [];
    const start = from === undefined || 'ignoreRange' in fault ? 0 : Number(from);
    const body = whole.subarray(start);
    response.writeHead(start > 0 ? 206 : 200, {
      'content-length': body.length,
      ...(start > 0 ? { 'content-range': `bytes ${start}-${whole.length - 1}/${whole.length}` } : {}),
    });
    if ('cutAfter' in fault && fault !== NO_FAULT) {
      // Lets the bytes arrive before the connection breaks.
      response.write(body.subarray(0, fault.cutAfter), () => setTimeout(() => response.destroy(), 50));
    } else response.end(body);
  }

  const close = async () => {
    for (const server of [hub, storage]) {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    }
  };
  onTestFinished(close);
  return { endpoint: urlOf(hub, '127.0.0.1'), requests, leaked, tokens, faults, commit: commitOf, close };
}

/** Changes with the content, as a commit does. */
function commitOf({ name, files }: TestRepository): string {
  const hash = createHash('sha1').update(name);
  for (const [path, content] of Object.entries(files)) hash.update(path).update(content.subarray(0, 1000));
  return hash.digest('hex');
}

function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

function gitHash(content: Buffer): string {
  return createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex');
}

async function listen(
  handler: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<Server> {
  const server = createServer(handler);
  await new Promise<void>((ready) => server.listen(0, ready));
  return server;
}

function urlOf(server: Server, host: string): string {
  return `http://${host}:${(server.address() as AddressInfo).port}`;
}
