/** Server-sent events. A client that reads slowly delays only its own stream, up to a time limit. */
import type { ServerResponse } from 'node:http';

/** Ends a whole response; closes the connection of a client that does not read it within the time limit. */
export function endWithin(response: ServerResponse, text: string, stallSeconds: number): void {
  let last = response.socket?.bytesWritten ?? 0;
  const timer = setInterval(() => {
    const written = response.socket?.bytesWritten ?? last;
    // What the system took since then the client reads, or will.
    if (written === last) response.destroy();
    last = written;
  }, stallSeconds * 1000);
  response.on('finish', () => clearInterval(timer)).on('close', () => clearInterval(timer));
  response.end(text);
}

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

  /** Waits while the client does not read; closes its connection after the time limit. */
  private async write(text: string): Promise<void> {
    const { response } = this;
    if (response.destroyed || response.write(text)) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        response.off('drain', done).off('close', done);
        resolve();
      };
      const timer = setTimeout(() => response.destroy(), this.stallSeconds * 1000);
      response.on('drain', done).on('close', done);
    });
  }
}
