/** An environment in a process of its own, which reads requests and writes answers as lines of JSON. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { exactText } from '../files/exact-json.js';
import {
  type AgentTurn,
  type Environment,
  failure,
  type Opening,
  type Task,
  type TurnReply,
} from './environment.js';

/** A request as a line; the answer has its `id`, or an `error` in one sentence. */
type Request =
  | { readonly op: 'tools' }
  | { readonly op: 'reset'; readonly episode: string; readonly task: Task }
  | { readonly op: 'step'; readonly episode: string; readonly turn: AgentTurn }
  | { readonly op: 'close'; readonly episode: string };

interface Waiting {
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

/** The longest line of an answer, in characters. */
const LONGEST = 1 << 22;

/**
 * Starts `command` in a shell and asks it for its tools. Where the process ends, the episodes that it had fail with what it wrote last,
 * and the next one starts it again.
 *
 * @throws StepTrainError where the process does not start or gives no tools
 */
export async function processEnvironment(command: string): Promise<Environment> {
  let child = new EnvironmentProcess(command);
  const owners = new Map<string, EnvironmentProcess>();
  const ask = (episode: string, request: Request) => {
    const owner = owners.get(episode);
    if (!owner) throw failure(`there is no episode ${episode}`);
    return owner.ask(request);
  };
  const { tools } = (await child.ask({ op: 'tools' })) as { tools?: unknown };
  return {
    tools: Array.isArray(tools) ? tools : [],
    async reset(task, episode) {
      if (child.ended !== undefined) child = new EnvironmentProcess(command);
      owners.set(episode, child);
      return (await ask(episode, { op: 'reset', episode, task })) as Opening;
    },
    async step(turn, episode) {
      return (await ask(episode, { op: 'step', episode, turn })) as TurnReply;
    },
    close(episode) {
      const owner = owners.get(episode);
      owners.delete(episode);
      if (owner?.ended === undefined) owner?.tell({ op: 'close', episode });
    },
    dispose: () => child.end(),
  };
}

class EnvironmentProcess {
  /** The reason, once it has ended. */
  ended: string | undefined;
  private readonly child: ChildProcessWithoutNullStreams;
  private readonly waiting = new Map<number, Waiting>();
  private next = 0;
  private lastWords = '';

  constructor(private readonly command: string) {
    this.child = spawn(command, { shell: true, stdio: 'pipe' });
    this.child.stdin.on('error', () => {});
    this.child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.lastWords = (this.lastWords + text).slice(-2000);
    });
    createInterface({ input: this.child.stdout }).on('line', (line) => this.answered(line));
    this.child.on('error', (error) => this.stopped(`cannot be started (${error.message})`));
    this.child.on('close', (code, signal) => {
      const last = this.lastWords.trim().split('\n').at(-1) ?? '';
      this.stopped(
        `ended with ${signal ?? `exit code ${code}`}${last === '' ? '' : `: ${last.slice(0, 300)}`}`,
      );
    });
  }

  ask(request: Request): Promise<unknown> {
    if (this.ended !== undefined) return Promise.reject(this.death());
    return new Promise((resolve, reject) => {
      this.waiting.set(this.next, { resolve, reject });
      this.tell(request);
    });
  }

  tell(request: Request): void {
    this.child.stdin.write(`${exactText({ id: this.next++, ...request })}\n`);
  }

  end(): void {
    this.child.stdin.end();
    this.child.kill();
  }

  private answered(line: string): void {
    let answer: { id?: unknown; error?: unknown };
    try {
      if (line.length > LONGEST) throw new Error();
      answer = JSON.parse(line) as typeof answer;
    } catch {
      // Nobody knows whose answer it was.
      this.stopped(`wrote a line that is no answer in JSON: ${JSON.stringify(line.slice(0, 120))}`);
      this.end();
      return;
    }
    const waits = this.waiting.get(answer?.id as number);
    if (!waits) return;
    this.waiting.delete(answer.id as number);
    if (typeof answer.error === 'string') waits.reject(failure(answer.error));
    else waits.resolve(answer);
  }

  private stopped(reason: string): void {
    this.ended ??= reason;
    for (const { reject } of this.waiting.values()) reject(this.death());
    this.waiting.clear();
  }

  private death() {
    return failure(`the environment ${JSON.stringify(this.command)} ${this.ended}`);
  }
}
