/** The runs below a folder, read once and then as they grow. Requests name them; nothing else can be reached. */
import { readdirSync, statSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { type CollectedRun, collectRun, runsBelow } from '../report/collect.js';
import { MetricLog } from '../report/metric-log.js';

export class Runs {
  readonly root: string;
  private readonly logs = new Map<string, MetricLog>();
  /** Runs without a process, with the state of their files when they were read. */
  private readonly resting = new Map<string, { readonly state: string; readonly run: CollectedRun }>();

  constructor(root: string) {
    this.root = resolve(root);
  }

  /** Paths below the folder, `.` where the folder is a run itself. */
  names(): string[] {
    return runsBelow(this.root).map((path) => relative(this.root, path) || '.');
  }

  /** Undefined where there is no such run. */
  path(name: string): string | undefined {
    return this.names().includes(name) ? resolve(this.root, name) : undefined;
  }

  /** Undefined where there is no such run, or not any more. */
  async read(name: string): Promise<CollectedRun | undefined> {
    const path = this.path(name);
    if (path === undefined) return undefined;
    const log = this.logs.get(path) ?? new MetricLog(`${path}/metrics.jsonl`);
    this.logs.set(path, log);
    try {
      // Taken before reading: later changes are read the next time.
      const state = stateOf(path);
      const known = this.resting.get(path);
      if (known?.state === state) return known.run;
      const run = await collectRun(path, log);
      // A process may end without touching a file, so a running one is always read.
      if (run.status === 'running') this.resting.delete(path);
      else this.resting.set(path, { state, run });
      return run;
    } catch {
      return undefined;
    }
  }
}

/** Names, sizes and times of the entries of a run directory. */
function stateOf(path: string): string {
  const entries = readdirSync(path).sort();
  return entries
    .map((name) => {
      const { mtimeMs, size } = statSync(join(path, name));
      return `${name} ${mtimeMs} ${size}`;
    })
    .join('\n');
}
