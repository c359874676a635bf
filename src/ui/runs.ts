/** The runs below a folder, read once and then as they grow. Requests name them; nothing else can be reached. */
import { relative, resolve } from 'node:path';
import { type CollectedRun, collectRun, runsBelow } from '../report/collect.js';
import { MetricLog } from '../report/metric-log.js';

export class Runs {
  readonly root: string;
  private readonly logs = new Map<string, MetricLog>();

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
      return await collectRun(path, log);
    } catch {
      return undefined;
    }
  }
}
