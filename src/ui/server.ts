/**
 * A server on this machine alone: pages of the runs in a folder, their updates as events, and stopping and resuming its
 * own runs.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { invalid } from '../native/errors.js';
import { type PageOptions, page } from '../report/page.js';
import { listenReason } from '../serve/listen-reason.js';
import { refusal } from './access.js';
import { Children } from './children.js';
import { follow } from './follow.js';
import { comparedPage, listPage, liveRunPage } from './pages.js';
import { Runs } from './runs.js';

export interface UiOptions {
  /** Folder of the runs. */
  readonly root: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** The command line itself, which resumes runs. */
  readonly program: readonly string[];
  /** Milliseconds between looks at the files. */
  readonly interval?: number;
}

export interface RunningUi {
  /** `http://127.0.0.1:7000` */
  readonly url: string;
  /** Stops the runs that it resumed, with their checkpoints, and all connections. */
  close(): Promise<void>;
}

const HOST = '127.0.0.1';

/** @throws StepTrainError where the port is taken */
export async function startUi({ root, port, program, interval = 1000 }: UiOptions): Promise<RunningUi> {
  const ui = new Ui(new Runs(root), new Children(program), interval);
  return ui.listen(port);
}

class Ui {
  private readonly server: Server;
  private port = 0;

  constructor(
    private readonly runs: Runs,
    private readonly children: Children,
    private readonly interval: number,
  ) {
    this.server = createServer({ requestTimeout: 30_000, headersTimeout: 10_000 }, (request, response) => {
      response.on('error', () => {}); // the reader went away
      this.answer(request, response).catch((error: Error) => {
        if (response.headersSent) response.destroy();
        else send(response, 500, `this page cannot be made: ${error.message}`);
      });
    });
  }

  async listen(port: number): Promise<RunningUi> {
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', (error) =>
        reject(invalid(`ui: cannot listen on ${HOST}:${port}: ${listenReason(error)}`)),
      );
      this.server.listen(port, HOST, resolve);
    });
    this.port = (this.server.address() as AddressInfo).port;
    return { url: `http://${HOST}:${this.port}`, close: () => this.close() };
  }

  private async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeAllConnections();
    await this.children.close();
    await closed;
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const refused = refusal(request, this.port);
    if (refused !== undefined) return send(response, 403, refused);
    const { pathname, searchParams } = new URL(`http://${HOST}${request.url ?? '/'}`);
    const name = searchParams.get('name');
    const route = `${request.method} ${pathname}`;
    if (route === 'GET /') return show(response, await listPage(this.runs));
    if (route === 'GET /compare') {
      const compared = await comparedPage(this.runs, searchParams.getAll('run').slice(0, 64));
      return compared ? show(response, compared) : send(response, 404, 'choose runs in the list first');
    }
    if (route === 'GET /events' && name === null)
      return follow(response, () => listPage(this.runs), this.interval * 2);
    const path = name === null ? undefined : this.runs.path(name);
    if (name === null || path === undefined) return send(response, 404, 'there is no such run or page');
    const made = async () => {
      const run = await this.runs.read(name);
      return run && liveRunPage(name, run, this.children);
    };
    if (route === 'GET /run') {
      const found = await made();
      return found ? show(response, found) : send(response, 404, 'there is no such run');
    }
    if (route === 'GET /events') return follow(response, made, this.interval);
    if (route === 'POST /resume') {
      this.children.resume(path);
      return send(response, 200, 'it goes on');
    }
    if (route === 'POST /stop')
      return this.children.stop(path)
        ? send(response, 200, 'it stops after the current step')
        : send(response, 409, 'it was not resumed here; stop it where it runs');
    return send(response, 405, 'this is asked in another way');
  }
}

const HEADERS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
};

function show(response: ServerResponse, options: PageOptions): void {
  response.writeHead(200, { ...HEADERS, 'content-type': 'text/html; charset=utf-8' });
  response.end(page({ ...options, isLive: true }));
}

function send(response: ServerResponse, status: number, sentence: string): void {
  response.writeHead(status, { ...HEADERS, 'content-type': 'text/plain; charset=utf-8' });
  response.end(sentence);
}
