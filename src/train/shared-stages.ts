/**
 * Stages that several runs have in common, such as the warm-up of every arm of a sweep, are trained once. The checkpoint
 * at the end of the stage is kept in a folder of its own, named by everything that the stage read; another run that reads
 * the same begins with it. On the CPU the result is the same to the last bit as if the run had trained the stage itself.
 */
import { createHash, randomUUID } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { copyFile, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CHANGEABLE } from '../config/changeable.js';
import { findCheckpoint, MARKER, saveCheckpoint } from '../run/checkpoint.js';
import type { RunDirectory } from '../run/directory.js';
import { matchesKey, type RunInputs } from '../run/inputs.js';
import { readLog } from '../run/log-file.js';
import { toLog } from '../terminal/log.js';
import { type RunState, readRunState, STATE } from './checkpoint.js';

/** A stage whose outcome other runs may take over. */
export interface SharedStage {
  readonly stage: string;
  /** Sections of the configuration that neither this stage nor one before it reads. */
  readonly unread: readonly string[];
  /** Settings of the unread sections that affect the stage nevertheless, as JSON. */
  readonly decided?: unknown;
}

export interface SharedStagesOptions {
  /** Folder of the trained stages, by hash. */
  readonly folder: string;
  /** Stages in the order of training. */
  readonly stages: readonly SharedStage[];
  readonly inputs: RunInputs;
  /** Kernels, whose rounding differs. */
  readonly isa: string;
  /** Names of all stages of this run. */
  readonly names: readonly string[];
  /** Micro-batches by key; those of unread sections do not count. */
  readonly batching: Readonly<Record<string, number>>;
}

/** Folder next to the checkpoint: the part of each log that had been written by then. */
const LOGS = 'logs';
/** Keys whose changes do not affect the result of a stage. */
const HARMLESS = CHANGEABLE.filter((key) => !/epochs|max_steps|logging_steps|budget/.test(key));

export class SharedStages {
  constructor(private readonly options: SharedStagesOptions) {}

  /** Fills a new run with the longest beginning that another run has left; its last stage, or undefined. */
  async take(run: RunDirectory): Promise<string | undefined> {
    const { stages, names, batching } = this.options;
    for (const shared of stages.toReversed()) {
      const folder = this.folder(shared);
      if (!existsSync(folder)) continue;
      const found = await findCheckpoint(folder).catch(() => undefined);
      if (!found) {
        toLog(`${folder} is damaged and is made again`, 'warning');
        await rm(folder, { recursive: true, force: true });
        continue;
      }
      const { path, step, logs } = found.checkpoint;
      const before = await readRunState(path);
      const state: RunState = { ...before, stages: names, batching };
      for (const name of Object.keys(logs)) {
        const log = run.log(name);
        for (const line of readLog(join(folder, LOGS, name))) log.append(line);
      }
      await run.saveCheckpoint(
        step,
        async (to) => {
          for (const name of await readdir(path))
            if (name !== MARKER && name !== STATE) await copyFile(join(path, name), join(to, name));
          // `own` is of a stage under way, and none is.
          await writeFile(join(to, STATE), `${JSON.stringify({ ...state, own: undefined }, undefined, 2)}\n`);
        },
        { keep: 1 },
      );
      return shared.stage;
    }
    return undefined;
  }

  /** Leaves the checkpoint that `run` has just written at the end of `stage`. */
  async leave(run: RunDirectory, stage: string): Promise<void> {
    const shared = this.options.stages.find((each) => each.stage === stage);
    if (!shared || existsSync(this.folder(shared))) return;
    const checkpoint = (await run.findCheckpoint())?.checkpoint;
    if (!checkpoint) return;
    const partial = `${this.folder(shared)}.${randomUUID()}`;
    try {
      await mkdir(join(partial, LOGS, 'artefacts'), { recursive: true });
      for (const [name, length] of Object.entries(checkpoint.logs))
        await writeFile(
          join(partial, LOGS, name),
          length === 0 ? '' : createReadStream(run.file(name), { end: length - 1 }),
        );
      await saveCheckpoint(partial, checkpoint.step, {
        logs: checkpoint.logs,
        write: async (to) => {
          for (const name of await readdir(checkpoint.path))
            if (name !== MARKER) await copyFile(join(checkpoint.path, name), join(to, name));
        },
      });
      // Another run may have left the same in the meantime.
      await rename(partial, this.folder(shared)).catch(() => {});
    } finally {
      await rm(partial, { recursive: true, force: true });
    }
  }

  private folder({ stage, unread, decided }: SharedStage): string {
    const { folder, inputs, isa, batching, names } = this.options;
    const read = <T>(values: Readonly<Record<string, T>>) =>
      Object.entries(values)
        .filter(([key]) => !unread.includes(key.split('.')[0] as string) && !matchesKey(key, HARMLESS))
        .sort(([a], [b]) => (a < b ? -1 : 1));
    const before = names.slice(0, names.indexOf(stage) + 1);
    const text = JSON.stringify([
      before,
      isa,
      decided ?? null,
      read(inputs.config),
      read(batching),
      inputs.files,
    ]);
    return join(folder, `${stage}-${createHash('sha256').update(text).digest('hex').slice(0, 24)}`);
  }
}
