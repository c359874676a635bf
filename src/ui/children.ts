/** Runs that this page resumed: only these can be stopped from it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { withoutLauncher } from '../cluster/environment.js';

export class Children {
  private readonly running = new Map<string, ChildProcess>();
  private readonly ended = new Map<string, string>();

  /** @param program the command line itself, which resumes each run */
  constructor(private readonly program: readonly string[]) {}

  isOwn(path: string): boolean {
    return this.running.has(path);
  }

  /** The last line of one that failed. */
  failure(path: string): string | undefined {
    return this.ended.get(path);
  }

  resume(path: string): void {
    if (this.running.has(path)) return;
    this.ended.delete(path);
    const child = spawn(process.execPath, [...this.program, 'run', '--resume', path], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: withoutLauncher(process.env),
    });
    this.running.set(path, child);
    let said = '';
    child.stderr?.on('data', (chunk: Buffer) => {
      said = (said + chunk.toString('utf8')).slice(-4000);
    });
    const end = (failed: boolean) => {
      this.running.delete(path);
      if (failed) this.ended.set(path, said.trim().split('\n').at(-1) || 'it ended without a word');
    };
    child.on('error', ({ message }) => {
      said = message;
      end(true);
    });
    // 130: stopped, with a checkpoint.
    child.on('close', (code) => end(code !== 0 && code !== 130));
  }

  /**
   * Stops a run after its current step, with a checkpoint, as Ctrl-C does. False for a path that is not one of these
   * runs.
   */
  stop(path: string): boolean {
    return this.running.get(path)?.kill('SIGINT') ?? false;
  }

  /** Stops all and waits until their checkpoints are written. */
  async close(): Promise<void> {
    const all = [...this.running.values()];
    for (const child of all) child.kill('SIGINT');
    await Promise.all(
      all.map((child) => child.exitCode === null && new Promise((resolve) => child.once('close', resolve))),
    );
  }
}
