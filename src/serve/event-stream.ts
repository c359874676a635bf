/** Answers to clients that may read slowly: each delays only its own, up to a time limit. */
import type { ServerResponse } from 'node:http';

/** Bytes that a client has to take within the time limit. */
const PIECE = 1 << 16;

/** Ends a whole answer; `close` instead of it for a client that does not read. */
export async function endWithin(response: ServerResponse, text: string, stallSeconds: number): Promise<void> {
  const bytes = Buffer.from(text);
  response.setHeader('content-length', bytes.length);
  for (let at = 0; at < bytes.length && !response.destroyed; at += PIECE)
    await write(response, bytes.subarray(at, at + PIECE), stallSeconds);
  if (!response.destroyed) response.end();
}

/** Server-sent events. */
export class EventStream {
  constructor(
    private readonly response: ServerResponse,
    private readonly stallSeconds: number,
  ) {
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
    });
    // The client learns at once that its request is taken, also where it has to wait for its turn.
    response.flushHeaders();
  }

  async send(event: object): Promise<void> {
    await this.write(`data: ${JSON.stringify(event)}\n\n`);
  }

  /** The end that clients wait for. */
  async end(): Promise<void> {
    await this.write('data: [DONE]\n\n');
    if (!this.response.destroyed) this.response.end();
  }

  private write(text: string): Promise<void> {
    return write(this.response, text, this.stallSeconds);
  }
}

/** Waits while the client does not read; closes its connection after the time limit. */
async function write(response: ServerResponse, data: string | Buffer, stallSeconds: number): Promise<void> {
  if (response.destroyed || response.write(data)) return;
  await new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(timer);
      response.off('drain', done).off('close', done);
      resolve();
    };
    const timer = setTimeout(() => response.destroy(), stallSeconds * 1000);
    response.on('drain', done).on('close', done);
  });
}
