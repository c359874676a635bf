/** One HTTP request with a time limit for the connection and for every silence, and its response as it comes. */
import { setMaxListeners } from 'node:events';
import { Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest, Agent as SecureAgent } from 'node:https';
import { exactText } from '../files/exact-json.js';
import { attempt } from '../native/attempt.js';
import { invalid } from '../native/errors.js';
import { PassingFailure, RemoteError } from './errors.js';

export interface Endpoint {
  readonly base: URL;
  /** Sent as `Authorization: Bearer …`, to this server alone: redirects are not followed. */
  readonly key: string | undefined;
  readonly agent: Agent;
  /** Milliseconds until there is a connection, and between bytes. */
  readonly connectMs: number;
  readonly idleMs: number;
}

export interface EndpointOptions {
  readonly url: string;
  readonly key: string | undefined;
  /** Requests at a time. */
  readonly concurrency: number;
  readonly connectSeconds: number;
  readonly idleSeconds: number;
}

/**
 * @param of the name of the caller, for the message
 * @throws StepTrainError for an invalid address
 */
export function endpointOf({ url, key, concurrency, ...limits }: EndpointOptions, of: string): Endpoint {
  const base = URL.canParse(url) ? new URL(url) : undefined;
  if (!base || !/^https?:$/.test(base.protocol))
    throw invalid(
      `${of}: url: expected an address such as http://127.0.0.1:8000, found ${JSON.stringify(url)}`,
    );
  const agent = { keepAlive: true, maxSockets: concurrency };
  return {
    base,
    key,
    agent: base.protocol === 'https:' ? new SecureAgent(agent) : new Agent(agent),
    connectMs: 1000 * limits.connectSeconds,
    idleMs: 1000 * limits.idleSeconds,
  };
}

/** A response with status 200. */
export interface Answer {
  readonly type: string;
  /** Bytes as they come. Leaving the loop closes the connection. */
  readonly chunks: AsyncIterable<Buffer>;
}

/** An error message is not read further. */
const MAX_ERROR_BYTES = 64 << 10;

/**
 * @throws PassingFailure for failures that may pass (no connection, silence, 408, 425, 429, 5xx), RemoteError for any
 *   other status
 */
export async function send(
  endpoint: Endpoint,
  path: string,
  body: object | undefined,
  signal: AbortSignal,
): Promise<Answer> {
  // As many requests at once listen to it as its owner likes.
  setMaxListeners(0, signal);
  const url = new URL(endpoint.base.href.replace(/\/$/, '') + path);
  const response = await respond(endpoint, url, body, signal);
  const { statusCode = 0, headers } = response;
  const chunks = awake(response);
  if (statusCode === 200) return { type: headers['content-type'] ?? '', chunks };
  const reason = `${url.host} answers ${statusCode}: ${await errorMessage(chunks)}`;
  if (statusCode === 408 || statusCode === 425 || statusCode === 429 || statusCode >= 500)
    throw new PassingFailure(reason, 1000 * (Number(headers['retry-after']) || 0));
  throw new StatusError(statusCode, reason);
}

/** The whole body of a response with status 200. */
export async function received(...request: Parameters<typeof send>): Promise<string> {
  const { chunks } = await send(...request);
  const parts: Buffer[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts).toString();
}

/** A refusal that a second try would not change. */
export class StatusError extends RemoteError {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

function respond(
  { key, agent, connectMs, idleMs }: Endpoint,
  url: URL,
  body: object | undefined,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const text = body === undefined ? undefined : exactText(body);
  const secure = url.protocol === 'https:';
  return new Promise((resolve, reject) => {
    const request: ClientRequest = (secure ? httpsRequest : httpRequest)(url, {
      method: text === undefined ? 'GET' : 'POST',
      agent,
      signal,
      headers: {
        'user-agent': 'steptrain',
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        ...(text === undefined
          ? {}
          : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
      },
    });
    let open: { destroy(error: Error): unknown } = request;
    const limit = (milliseconds: number, what: string) =>
      setTimeout(
        () => open.destroy(new PassingFailure(`${url.host}: ${what} for ${milliseconds / 1000} s`)),
        milliseconds,
      );
    let timer = limit(connectMs, 'no connection');
    const restart = () => {
      clearTimeout(timer);
      timer = limit(idleMs, 'no byte came');
    };
    request.on('socket', (socket) => {
      if (!socket.connecting) restart();
      else socket.once(secure ? 'secureConnect' : 'connect', restart);
    });
    request.on('response', (response) => {
      open = response;
      restart();
      response.on('data', restart);
      response.on('close', () => clearTimeout(timer));
      response.pause();
      resolve(response);
    });
    request.on('error', (error: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      reject(error instanceof PassingFailure ? error : new PassingFailure(`${url.host}: ${reasonOf(error)}`));
    });
    request.end(text);
  });
}

/** The bytes of a response; a connection that breaks is a failure that may pass. */
async function* awake(response: IncomingMessage): AsyncGenerator<Buffer> {
  try {
    yield* response as AsyncIterable<Buffer>;
  } catch (error) {
    throw error instanceof PassingFailure
      ? error
      : new PassingFailure(`the connection broke: ${reasonOf(error as NodeJS.ErrnoException)}`);
  }
}

function reasonOf({ code, message }: NodeJS.ErrnoException): string {
  return code ?? message;
}

/** The message of OpenAI's or vLLM's error object, or the beginning of any other body. */
async function errorMessage(chunks: AsyncIterable<Buffer>): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of chunks) {
      parts.push(chunk);
      bytes += chunk.length;
      if (bytes > MAX_ERROR_BYTES) break;
    }
  } catch {
    // The status says enough.
  }
  const text = Buffer.concat(parts).toString();
  const { error, message, detail }: Record<string, unknown> = attempt(() => JSON.parse(text)) ?? {};
  const inner = (error as { message?: unknown } | undefined)?.message ?? error ?? message ?? detail;
  if (typeof inner === 'string') return inner;
  return text.slice(0, 200).replaceAll(/\s+/g, ' ') || 'nothing';
}
