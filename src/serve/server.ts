/**
 * An HTTP server with OpenAI's completions and chat completions over one generator: requests of all clients run together and
 * do not affect each other.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { Model } from '../api/model.js';
import type { GeneratorOptions } from '../generate/generator.js';
import { defined, type OptionsOf } from '../native/defined.js';
import { checkOptions, invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import { checkAccess, isLoopback } from './access.js';
import { Engine, type Served } from './engine.js';
import { RequestError } from './errors.js';
import { DEFAULT_LIMITS, type ServeLimits } from './limits.js';
import { listenReason } from './listen-reason.js';
import { ROUTES, routeOf, sendJson } from './routes.js';

export interface ServeOptions extends GeneratorOptions {
  /** Address to listen on. Default 127.0.0.1. */
  readonly host?: string | undefined;
  /** Default 8000; 0 takes a free one. */
  readonly port?: number | undefined;
  /** The key that clients send as `Authorization: Bearer …`. Required unless the address is local. */
  readonly key?: string | undefined;
  /** Folder from which /v1/load_lora_adapter may load adapters; without it, none. */
  readonly adapterRoot?: string | undefined;
  /** Adapters to begin with: PEFT directories by the name that requests give as `model`. */
  readonly adapters?: Readonly<Record<string, string>> | undefined;
  /** Takes adapters that were trained on another base too. Default false. */
  readonly otherBase?: boolean | undefined;
  readonly limits?: OptionsOf<ServeLimits> | undefined;
  /** Aborted: running requests are aborted too, and the server closes; before it listens, the promise rejects with the reason. */
  readonly signal?: AbortSignal | undefined;
  /** Called with errors that no client has caused. */
  readonly onError?: ((error: unknown) => void) | undefined;
  /** Called with a sentence, such as for an adapter of a base that is not here. */
  readonly onWarning?: ((warning: string) => void) | undefined;
}

const SERVE_OPTIONS: Record<keyof ServeOptions, true> = {
  host: true,
  port: true,
  key: true,
  adapterRoot: true,
  adapters: true,
  otherBase: true,
  limits: true,
  signal: true,
  onError: true,
  onWarning: true,
  cacheBytes: true,
  maxRows: true,
  maxTokens: true,
};

export interface RunningServer {
  /** `http://127.0.0.1:8000` */
  readonly url: string;
  /** Resolves with the error, should the device fail; the server then answers 503 until it is closed. */
  readonly failure: Promise<unknown>;
  /**
   * Accepts no more requests, waits this many seconds for running ones, then aborts them. Frees the server's memory; the
   * caller keeps the model.
   */
  close(graceSeconds?: number): Promise<void>;
}

const GRACE_SECONDS = 30;

/** Time for clients to read the end of an aborted answer. */
const LAST_WORDS_MS = 2000;

/**
 * Starts a server. The model must outlive it.
 *
 * @throws StepTrainError for an address beyond this machine without a key, one that cannot be listened on, an adapter that
 * cannot be loaded
 */
export async function serve(served: Served, options: ServeOptions = {}): Promise<RunningServer> {
  checkOptions('serve', options, SERVE_OPTIONS);
  if (options.limits !== undefined) checkOptions('serve: limits', options.limits, DEFAULT_LIMITS);
  checkServed(served);
  const { host = '127.0.0.1', port = 8000, key, adapters = {}, signal, onError = () => {} } = options;
  signal?.throwIfAborted();
  const { adapterRoot, otherBase, onWarning, cacheBytes, maxRows, maxTokens } = options;
  if (key === undefined && !isLoopback(host))
    throw invalid(`serve: ${host} can be reached from other machines: give a key, or listen on 127.0.0.1`);
  if (key === '') throw invalid('serve: the key is empty; give one, or none');
  const limits = { ...DEFAULT_LIMITS, ...defined(options.limits ?? {}) };
  const tokenizer = served.tokenizer ?? (await served.model.tokenizer());
  const engine = new Engine({ ...served, tokenizer }, limits, {
    adapters: { root: adapterRoot, otherBase, onWarning },
    cacheBytes,
    maxRows,
    maxTokens,
  });
  const http = new HttpServer(engine, key, onError);
  try {
    for (const [name, directory] of Object.entries(adapters))
      await engine.models.load(name, directory).catch((error: unknown) => {
        if (!(error instanceof RequestError)) throw error;
        const reason = error.message.replace(/^lora_\w+: /, '');
        throw invalid(`serve: adapter ${name}: ${reason}`);
      });
    const url = await http.listen(host, port);
    const end = () => void http.close(0).catch(onError);
    if (signal?.aborted) end();
    else signal?.addEventListener('abort', end, { once: true });
    const close = (grace = GRACE_SECONDS) => {
      signal?.removeEventListener('abort', end);
      return http.close(grace);
    };
    return { url, failure: engine.failure, close };
  } catch (error) {
    engine.dispose();
    throw error;
  }
}

const SERVED: Record<keyof Served, true> = {
  name: true,
  model: true,
  tokenizer: true,
  eosTokenIds: true,
  scorers: true,
};

function checkServed(served: Served): void {
  checkOptions('serve', served, SERVED);
  const { name, model } = served;
  if (typeof name !== 'string' || name === '')
    throw invalid(`serve: name: expected the model's name in requests, found ${shown(name)}`);
  if (!(model instanceof Model))
    throw invalid(`serve: model: expected what loadModel gives, found ${shown(model)}`);
}

class HttpServer {
  private readonly server: Server;
  private readonly active = new Set<Promise<void>>();
  /**
   * Signals of requests being answered: each is aborted where the client goes away, all of them when the time is over.
   */
  private readonly signals = new Set<AbortController>();
  private ending = false;
  private closing: Promise<void> | undefined;

  constructor(
    private readonly engine: Engine,
    private readonly key: string | undefined,
    private readonly onError: (error: unknown) => void,
  ) {
    const milliseconds = engine.limits.requestSeconds * 1000;
    this.server = createServer({
      headersTimeout: milliseconds,
      requestTimeout: milliseconds,
      connectionsCheckingInterval: Math.min(1000, milliseconds / 4),
      // Longer than clients keep idle connections (aiohttp 15 s, httpx 5 s): else one ends while a request comes.
      keepAliveTimeout: 20_000,
    });
    this.server.maxConnections = engine.limits.connections;
    this.server.on('request', (request, response) => this.take(request, response));
    this.server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => refuseRaw(error, socket));
  }

  async listen(host: string, port: number): Promise<string> {
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', (error) =>
        reject(invalid(`serve: cannot listen on ${host}:${port}: ${listenReason(error)}`)),
      );
      this.server.listen(port, host, resolve);
    });
    this.server.on('error', this.onError);
    const address = this.server.address() as AddressInfo;
    return `http://${host.includes(':') ? `[${host}]` : host}:${address.port}`;
  }

  /** A second call may shorten the wait. */
  close(graceSeconds: number): Promise<void> {
    this.closing ??= this.shutDown();
    const timer = setTimeout(() => this.endAll(), graceSeconds * 1000);
    return this.closing.finally(() => clearTimeout(timer));
  }

  private endAll(): void {
    this.ending = true;
    for (const signal of this.signals) signal.abort();
    // Clients that do not read the end of an answer by then are disconnected.
    setTimeout(() => this.server.closeAllConnections(), LAST_WORDS_MS).unref();
  }

  private async shutDown(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    await Promise.all(this.active);
    this.server.closeAllConnections();
    await closed;
    this.engine.dispose();
  }

  private take(request: IncomingMessage, response: ServerResponse): void {
    const done = this.respond(request, response).catch(this.onError);
    this.active.add(done);
    void done.then(() => this.active.delete(done));
  }

  private async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const arrived = performance.now();
    const signals = this.signals;
    const stop = new AbortController();
    signals.add(stop);
    let isGone = false;
    response.on('close', () => {
      isGone = !response.writableFinished;
      stop.abort();
    });
    // A write to a disconnected client is not an error.
    response.on('error', () => {});
    const path = (request.url ?? '').split('?', 1)[0] as string;
    const { metrics } = this.engine;
    const { route, name, rest } = routeOf(path);
    try {
      if (!route?.open) checkAccess(request, this.key);
      if (!route)
        throw new RequestError(
          404,
          `there is no ${path.slice(0, 80)}; known are ${[...ROUTES.keys()].join(', ')}`,
        );
      if (request.method !== route.method)
        throw new RequestError(405, `${path} is asked with ${route.method}, not ${request.method}`);
      if (this.closing)
        throw new RequestError(503, 'the server is going down', { retryAfter: 5, closes: true });
      if (this.ending) stop.abort();
      await route.handle(this.engine, request, { response, signal: stop.signal, arrived, rest });
    } catch (error) {
      if (response.destroyed) return;
      this.refuse(request, response, error);
    } finally {
      signals.delete(stop);
      if (isGone) metrics.cancelledRequests++;
      metrics.responded(name, response.statusCode);
    }
  }

  private refuse(request: IncomingMessage, response: ServerResponse, error: unknown): void {
    const known = error instanceof RequestError;
    if (!known) this.onError(error);
    const refusal = known ? error : new RequestError(500, 'the server failed; see its log');
    if (response.headersSent) {
      response.destroy();
      return;
    }
    const { retryAfter, closes } = refusal.details;
    if (retryAfter !== undefined) response.setHeader('retry-after', retryAfter);
    // An unread body would be parsed as the next request.
    if (closes || !request.complete) response.setHeader('connection', 'close');
    if (request.complete) {
      sendJson(response, refusal.body, refusal.status);
      return;
    }
    const body = Buffer.from(JSON.stringify(refusal.body));
    response.writeHead(refusal.status, {
      'content-type': 'application/json; charset=utf-8',
      'content-length': body.length,
    });
    response.write(body);
    // Closing a connection with unread data resets it, and the client may lose the answer.
    request.resume();
    const end = () => response.end();
    request.once('end', end).once('close', end);
    setTimeout(end, LAST_WORDS_MS).unref();
  }
}

/** Answers invalid HTTP and requests that arrive too slowly. */
function refuseRaw({ code }: NodeJS.ErrnoException, socket: Socket): void {
  if (!socket.writable || code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const [status, reason, message] =
    code === 'ERR_HTTP_REQUEST_TIMEOUT'
      ? [408, 'Request Timeout', 'the request came too slowly']
      : code === 'HPE_HEADER_OVERFLOW'
        ? [431, 'Request Header Fields Too Large', 'the headers have more than 16 KiB']
        : [400, 'Bad Request', 'this is not an HTTP request'];
  const body = JSON.stringify(new RequestError(status as number, message as string).body);
  socket.end(
    `HTTP/1.1 ${status} ${reason}\r\nContent-Type: application/json; charset=utf-8\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
    () => socket.destroy(),
  );
}
