// The directory of a run: config.yaml, metrics.jsonl, samples.jsonl, artefacts/, checkpoints/, and the results.

import { existsSync, mkdirSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, rmdir, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { TEMPORARY, writeFileAtomically } from '../files/atomic-file.js';
import { makeDirectories } from '../files/directory.js';
import { systemReason } from '../files/error.js';
import { readJson, writeJson } from '../files/json-file.js';
import { LOCK, lockDirectory, tryLock, type Unlock } from '../files/lock.js';
import { StepTrainError } from '../native/errors.js';
import { typedCommand } from '../native/typed-command.js';
import {
  type Checkpoint,
  type FoundCheckpoint,
  findCheckpoint,
  pruneCheckpoints,
  saveCheckpoint,
} from './checkpoint.js';
import { type Draws, openDraws } from './draws.js';
import { RunError } from './error.js';
import { type RunInputs, runInputs } from './inputs.js';
import { type LogFile, openLogFile } from './log-file.js';
import { openSession, SESSIONS } from './sessions.js';
import { wallTimesIn, withTensorBoard } from './tensorboard.js';

const CONFIG = 'config.yaml';
const INPUTS = 'inputs.json';
const ARTEFACTS = 'artefacts';
const DRAWS = 'draws.jsonl';
const LOGS = ['metrics.jsonl', 'samples.jsonl'];
/** A config.yaml that a killed run did not come to rename. */
const UNFINISHED = /^config\.yaml\.tmp-/;
/** Files that a run writes before its first step. */
const OF_A_NEW_RUN = [
  CONFIG,
  INPUTS,
  'memory.json',
  'progress.json',
  'metrics.jsonl',
  'samples.jsonl',
  SESSIONS,
  'tensorboard',
  ARTEFACTS,
  DRAWS,
  'ranks',
];

/** Files that a run continues from, apart from its checkpoints. */
export const GOES_ON_FROM = [CONFIG, INPUTS, ...LOGS, ARTEFACTS, DRAWS];

export interface RunDirectory {
  /** Absolute path. */
  readonly path: string;
  /** Absolute path of `name` inside. */
  file(name: string): string;
  readonly metrics: LogFile;
  readonly samples: LogFile;
  /** Draws of the step under way. */
  readonly draws: Draws;
  /** artefacts/`name`.jsonl, created if missing. */
  artefact(name: string): LogFile;
  hasArtefact(name: string): boolean;
  /** A log by its name in `Checkpoint.logs`: metrics.jsonl, samples.jsonl or artefacts/NAME.jsonl. */
  log(name: string): LogFile;
  /** Atomically replaces `name` by `value` as JSON. */
  writeJson(name: string, value: unknown): Promise<void>;
  writeConfig(yaml: string): Promise<void>;
  /** inputs.json; undefined where there is none. */
  readInputs(): Promise<RunInputs | undefined>;
  writeInputs(inputs: RunInputs): Promise<void>;
  /**
   * Writes checkpoints/step-`step` with the files that `write` puts into the given folder, then removes all but the
   * `keep` newest. It records the current lengths of logs and artefacts.
   */
  saveCheckpoint(
    step: number,
    write: (folder: string) => Promise<void>,
    options: { readonly keep: number },
  ): Promise<Checkpoint>;
  /** The newest complete checkpoint; undefined where none was written. Throws RunError where all are damaged. */
  findCheckpoint(): Promise<FoundCheckpoint | undefined>;
  /** Truncates logs and artefacts to their lengths at `checkpoint`, or to 0 without one. */
  rewind(checkpoint: Checkpoint | undefined): void;
  /** Releases the lock of the directory; a second time does nothing. */
  close(): Promise<void>;
  /** Closes the directory of a run that failed before it logged anything, and removes it if this process created it. */
  discard(): Promise<void>;
}

export interface CreateOptions {
  /** If `path` already holds files: take the next free `path-2`, `path-3`, …, or refuse. */
  readonly onExisting: 'number' | 'refuse';
}

/** Creates a directory for a new run and locks it. Never writes to an existing run. */
export async function createRunDirectory(path: string, { onExisting }: CreateOptions): Promise<RunDirectory> {
  const wanted = resolve(path);
  try {
    await makeDirectories(dirname(wanted));
    for (let number = 1; ; number++) {
      const candidate = number === 1 ? wanted : `${wanted}-${number}`;
      const created = await make(candidate);
      const unlock = await claim(candidate).catch(async (error) => {
        if (created) await rmdir(candidate).catch(() => {});
        throw error;
      });
      if (unlock) return open(candidate, unlock, created);
      if (onExisting === 'number') continue;
      if (!(await stat(wanted)).isDirectory())
        throw new RunError(`${path} is no directory; name another one for the run`);
      throw new RunError(
        `${path} already holds files; choose another directory, or continue its run: ${typedCommand(`run --resume ${path}`)}, or resume(directory) in a program`,
      );
    }
  } catch (error) {
    if (error instanceof StepTrainError) throw error;
    throw new RunError(`cannot make the run directory ${path}: ${systemReason(error)}`, { cause: error });
  }
}

/** Opens the directory of an earlier run to continue it, and locks it. */
export async function openRunDirectory(path: string): Promise<RunDirectory> {
  await readRunConfig(path);
  const unlock = await lockDirectory(path);
  // A killed run may leave temporary files; with the lock, nobody else writes here.
  for (const name of await readdir(path, { recursive: true }))
    if (TEMPORARY.test(name)) await rm(join(path, name), { force: true });
  return open(resolve(path), unlock, false);
}

/** @throws RunError where the directory is one of a run: results of a command would mix with its own */
export function refuseRun(path: string): void {
  if ([CONFIG, LOGS[0] as string].every((name) => existsSync(join(path, name))))
    throw new RunError(`${path} is the directory of a run; choose another one for results`);
}

/** Makes the directory of a command's results. @throws RunError where the system refuses */
export async function makeResultsDirectory(path: string): Promise<void> {
  await makeDirectories(path).catch((cause: unknown) => {
    throw new RunError(`cannot make the directory ${path}: ${systemReason(cause)}`, { cause });
  });
}

/** The text of the run's config.yaml. */
export async function readRunConfig(path: string): Promise<string> {
  try {
    return await readFile(join(path, CONFIG), 'utf8');
  } catch (error) {
    throw new RunError(
      `${path} is not a run directory: ${CONFIG} in it cannot be read: ${systemReason(error)}`,
      {
        cause: error,
      },
    );
  }
}

/** Whether there was no directory at `path`, which this then created. */
async function make(path: string): Promise<boolean> {
  try {
    await mkdir(path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Locks `path` if no run has begun in it; if two processes try, one gets the lock. */
async function claim(path: string): Promise<Unlock | undefined> {
  if (!(await isUnbegun(path))) return undefined;
  const lock = await tryLock(path);
  if (typeof lock !== 'function') return undefined;
  if (await isUnbegun(path)) {
    for (const name of await readdir(path))
      if (TEMPORARY.test(name)) await rm(join(path, name), { force: true });
    return lock;
  }
  await lock(); // another process filled it in the meantime
  return undefined;
}

/** Whether `path` is empty, except for files of a run that was killed before it had written config.yaml. */
async function isUnbegun(path: string): Promise<boolean> {
  try {
    for (const name of await readdir(path)) {
      if (name.startsWith(LOCK) || UNFINISHED.test(name)) continue;
      if (!LOGS.includes(name) || (await stat(join(path, name))).size > 0) return false;
    }
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOTDIR') return false;
    throw error;
  }
}

function open(path: string, unlock: Unlock, created: boolean): RunDirectory {
  const events = join(path, 'tensorboard');
  const session = openSession(join(path, SESSIONS), wallTimesIn(events).at(-1));
  const metrics = withTensorBoard(openLogFile(join(path, 'metrics.jsonl')), events, {
    onAppend: session.begin,
  });
  const samples = openLogFile(join(path, 'samples.jsonl'));
  const logs = new Map<string, LogFile>([
    ['metrics.jsonl', metrics],
    ['samples.jsonl', samples],
  ]);
  const artefactPath = (name: string) => {
    if (!/^\w[\w.-]*$/.test(name))
      throw new RunError(
        `an artefact is named by letters, digits, dots and dashes, found ${JSON.stringify(name)}`,
      );
    return `${ARTEFACTS}/${name}.jsonl`;
  };
  const logAt = (name: string): LogFile => {
    let log = logs.get(name);
    if (!log) {
      mkdirSync(join(path, ARTEFACTS), { recursive: true });
      log = openLogFile(join(path, name));
      logs.set(name, log);
    }
    return log;
  };
  const draws = openDraws(join(path, DRAWS));
  const checkpoints = join(path, 'checkpoints');
  // Reading every file of a checkpoint takes seconds; several ask which is the newest.
  let found: Promise<FoundCheckpoint | undefined> | undefined;
  let isClosed = false;
  const close = async () => {
    if (isClosed) return;
    isClosed = true;
    for (const log of logs.values()) log.close();
    draws.close();
    session.end();
    await unlock();
  };

  return {
    path,
    metrics,
    samples,
    draws,
    file: (name) => join(path, name),
    artefact: (name) => logAt(artefactPath(name)),
    log: logAt,
    hasArtefact: (name) => existsSync(join(path, artefactPath(name))),
    writeJson: (name, value) => writeJson(join(path, name), value),
    writeConfig: (yaml) => writeFileAtomically(join(path, CONFIG), [Buffer.from(yaml)]),
    async readInputs() {
      if (!existsSync(join(path, INPUTS))) return undefined;
      const parsed = runInputs.safeParse(await readJson(join(path, INPUTS)));
      if (parsed.success) return parsed.data;
      throw new RunError(`${join(path, INPUTS)} is not as the run wrote it; restore it, or start a new run`);
    },
    writeInputs: (inputs) => writeJson(join(path, INPUTS), inputs),
    async saveCheckpoint(step, write, { keep }) {
      for (const log of logs.values()) log.sync();
      const lengths = Object.fromEntries([...logs].map(([name, { length }]) => [name, length]));
      found = undefined;
      const checkpoint = await saveCheckpoint(checkpoints, step, { write, logs: lengths });
      await pruneCheckpoints(checkpoints, checkpoint, keep);
      return checkpoint;
    },
    findCheckpoint() {
      found ??= findCheckpoint(checkpoints);
      return found;
    },
    rewind(checkpoint) {
      const lengths = checkpoint?.logs ?? {};
      for (const name of new Set([...logs.keys(), ...Object.keys(lengths)])) {
        const log = logAt(name);
        const length = lengths[name] ?? 0;
        if (name.startsWith(ARTEFACTS) && log.length < length)
          throw new RunError(
            `${log.path} has ${log.length} bytes, and the run had written ${length}: rows were lost since; restore the ` +
              'file or start a new run',
          );
        log.cutTo(length);
      }
    },
    close,
    async discard() {
      const isEmpty = [...logs.values()].every(({ length }) => length === 0);
      await close();
      if (!created || !isEmpty || existsSync(checkpoints)) return;
      for (const name of OF_A_NEW_RUN) await rm(join(path, name), { force: true, recursive: true });
      await rmdir(path).catch(() => {}); // somebody has put another file there
    },
  };
}
