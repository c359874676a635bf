import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { TrialReply, TrialRequest } from './trial.js';

/** A child that answers requests one at a time; started by the first request, ended by `close`. */
export class TrialProcess {
  private child: ChildProcess | undefined;
  private replies: AsyncIterator<string> | undefined;
  private complaints = '';

  constructor(
    private readonly command: string,
    private readonly args: readonly string[],
    private readonly env: Readonly<Record<string, string>> = {},
  ) {}

  async request(request: TrialRequest): Promise<TrialReply> {
    const child = this.child ?? this.start();
    child.stdin?.write(`${JSON.stringify(request)}\n`);
    const line = await this.replies?.next();
    if (line && !line.done) return JSON.parse(line.value) as TrialReply;
    const [code, signal] =
      child.exitCode === null && child.signalCode === null
        ? await once(child, 'exit')
        : [child.exitCode, child.signalCode];
    const lines = this.complaints.trim().split('\n');
    const last = lines.findLast((text) => /error/i.test(text)) ?? lines.at(-1);
    return { error: `the trial ended with ${signal ?? `code ${code}`}${last ? `: ${last}` : ''}` };
  }

  async close(): Promise<void> {
    const { child } = this;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.stdin?.end();
    await once(child, 'exit');
  }

  private start(): ChildProcess {
    const child = spawn(this.command, this.args, {
      env: { ...process.env, ...this.env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    child.stdin.on('error', () => undefined); // a child that died is reported by its missing reply
    child.stderr.on('data', (text) => {
      this.complaints = `${this.complaints}${text}`.slice(-4000);
    });
    this.replies = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    this.child = child;
    return child;
  }
}

/** Our side, in a fresh process. */
export function ourTrial(env: Readonly<Record<string, string>> = {}): TrialProcess {
  return new TrialProcess(process.execPath, [fileURLToPath(new URL('trial.js', import.meta.url))], env);
}
