/** Exports a run to other trackers: writes its log to one file, which their own Python package uploads. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { dotted } from '../config/dotted.js';
import type { Tracker } from '../config/trackers.js';
import { writeJson } from '../files/json-file.js';
import { RunError } from '../run/error.js';
import { readLog } from '../run/log-file.js';
import { scalarsOf } from '../run/tensorboard.js';

export interface ExportOptions {
  /** Default `steptrain`. */
  readonly project?: string;
  /** Whether to send it where the package's own variables say. Default: nothing leaves this machine. */
  readonly online?: boolean;
  /** The interpreter that has the package. Default `python3`. */
  readonly python?: string;
}

/** The file in the directory of the run. */
const EXPORT = 'export.json';
const BRIDGE = fileURLToPath(new URL('../../assets/report_to.py', import.meta.url));

/** Variables that keep a package from sending anything. */
const OFFLINE: Readonly<Record<Tracker, Readonly<Record<string, string | undefined>>>> = {
  wandb: { WANDB_MODE: 'offline' },
  trackio: { TRACKIO_SPACE_ID: undefined },
  mlflow: { MLFLOW_TRACKING_URI: 'sqlite:///mlflow.db' },
};

/**
 * Logs a run by the Python package of a tracker.
 *
 * @param run its directory
 * @throws RunError for a directory that is no run, and where Python or the package is missing or fails
 */
export async function exportRun(
  run: string,
  to: Tracker,
  { project = 'steptrain', online = false, python = 'python3' }: ExportOptions = {},
): Promise<void> {
  const path = join(run, EXPORT);
  await writeJson(path, exported(run, project));
  const env = { ...process.env, ...(online ? {} : OFFLINE[to]) };
  const { code, said } = await ended(python, [BRIDGE, path, to], env, run);
  if (code === undefined)
    throw new RunError(
      `there is no ${python} here, which has to log ${path} by the package ${to}: name one with --python, or run ${BRIDGE} where there is one`,
    );
  if (code === 0) return;
  const missing = /No module named '(\w+)'/.exec(said)?.[1];
  if (missing === to) throw new RunError(`${python} has no package ${to}: ${python} -m pip install ${to}`);
  throw new RunError(`${to} did not take ${path}: ${said.trim().split('\n').at(-1) ?? `exit code ${code}`}`);
}

interface ExportedRow {
  readonly step: number;
  /** Milliseconds since 1970 of the file: lines have no time of their own. */
  readonly time: number;
  readonly values: Readonly<Record<string, number>>;
}

/** The content of the file that report_to.py reads. */
function exported(run: string, project: string) {
  const config = join(run, 'config.yaml');
  const log = join(run, 'metrics.jsonl');
  if (!existsSync(config) || !existsSync(log))
    throw new RunError(`${run} is no run directory: it has no config.yaml with metrics.jsonl beside it`);
  const { birthtimeMs, mtimeMs } = statSync(log);
  const made = createHash('sha256')
    .update(`${resolve(run)} ${birthtimeMs}`)
    .digest('hex');
  return {
    project,
    name: basename(resolve(run)),
    id: made.slice(0, 12),
    config: Object.fromEntries(dotted(parse(readFileSync(config, 'utf8')))),
    rows: readLog(log).flatMap((line): ExportedRow[] => {
      const { step } = line;
      if (typeof step !== 'number') return [];
      const values = scalarsOf(line);
      return values.length === 0
        ? []
        : [{ step, time: Math.round(mtimeMs), values: Object.fromEntries(values) }];
    }),
  };
}

function ended(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  cwd: string,
): Promise<{ readonly code: number | null | undefined; readonly said: string }> {
  return new Promise((settle) => {
    const child = spawn(
      command.includes('/') ? resolve(command) : command,
      args.map((arg) => resolve(arg)).with(-1, args.at(-1) as string),
      {
        env,
        cwd,
        stdio: ['ignore', 'inherit', 'pipe'],
      },
    );
    let said = '';
    child.stderr.on('data', (text) => {
      said += text;
    });
    child.on('error', () => settle({ code: undefined, said }));
    child.on('close', (code) => settle({ code, said }));
  });
}
