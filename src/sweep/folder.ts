// The folder of a sweep: which of its runs have ended, which go on, and whether they are still what the file says.

import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { dirname, join, resolve, sep } from 'node:path';
import { makeDirectories } from '../files/directory.js';
import { readJson, writeJson } from '../files/json-file.js';
import { loadRunConfig, parseRunConfig } from '../methods/config.js';
import { begunWith } from '../methods/run.js';
import { readRunConfig } from '../run/directory.js';
import { RunError } from '../run/error.js';
import { acceptedChanges, readRunInputs, runInputs, unnamedValues } from '../run/inputs.js';
import { resolveInputs } from '../run/paths.js';
import type { Cell } from './cells.js';
import type { Sweep } from './file.js';
import { isFinished } from './values.js';

export type CellStatus = 'new' | 'started' | 'finished';

/** What is known of a run beside its own directory. */
export interface CellRecord {
  /** Of all its sessions. */
  readonly seconds: number;
  /** Why its last session failed. */
  readonly failed?: string;
}

/** Finds the file of a recipe that a sweep names. */
export type FindRecipe = (name: string) => string;

/** What may change between two sessions of a sweep without changing a result. */
const HARMLESS = [
  'run.max_minutes',
  'run.threads',
  'run.logging_steps',
  'run.max_skipped_steps',
  '*.save_steps',
  '*.save_total_limit',
];

export class SweepFolder {
  readonly path: string;
  private records: Record<string, CellRecord> = {};

  private constructor(
    private readonly sweep: Sweep,
    private readonly findRecipe: FindRecipe,
  ) {
    this.path = resolve(sweep.outputDir);
  }

  static async open(sweep: Sweep, findRecipe: FindRecipe): Promise<SweepFolder> {
    const folder = new SweepFolder(sweep, findRecipe);
    const file = join(folder.path, RECORDS);
    if (existsSync(file)) folder.records = (await readJson(file)) as Record<string, CellRecord>;
    return folder;
  }

  /** Of stages that runs have in common; undefined where each run is to train its own. */
  get sharedStages(): string | undefined {
    return this.sweep.shareStages ? join(this.path, 'stages') : undefined;
  }

  create(): Promise<unknown> {
    return makeDirectories(this.path);
  }

  directory({ id }: Cell): string {
    return join(this.path, id);
  }

  recipe({ arm }: Cell): string {
    return this.findRecipe(arm.recipe);
  }

  record({ id }: Cell): CellRecord | undefined {
    return this.records[id];
  }

  async addSession({ id }: Cell, seconds: number, failed: string | undefined): Promise<void> {
    const before = this.records[id]?.seconds ?? 0;
    this.records[id] = { seconds: before + seconds, ...(failed === undefined ? {} : { failed }) };
    await writeJson(join(this.path, RECORDS), this.records);
  }

  async status(cell: Cell): Promise<CellStatus> {
    const directory = this.directory(cell);
    if (!existsSync(join(directory, 'config.yaml'))) return 'new';
    const { report, select } = this.sweep;
    const keys = [...report.map(({ key }) => key), ...(select ? [select.on] : [])];
    return isFinished(directory, keys) ? 'finished' : 'started';
  }

  /**
   * Reads the configuration of every cell before one of them runs.
   *
   * @throws ConfigError where it cannot run; RunError where its directory holds a run with another configuration or data
   */
  async check(cells: readonly Cell[]): Promise<void> {
    for (const cell of cells) {
      const loaded = await loadRunConfig(this.recipe(cell), cell.settings);
      const inputs = join(this.directory(cell), 'inputs.json');
      if (!existsSync(inputs)) {
        await resolveInputs(loaded.config, loaded.locate);
        continue;
      }
      const before = runInputs.parse(await readJson(inputs));
      const shards = Number(before.config['run.shards'] ?? 1);
      const config = await begunWith(loaded.config, loaded.locate, shards);
      try {
        const name = join(this.directory(cell), 'config.yaml');
        const text = await readRunConfig(this.directory(cell));
        acceptedChanges(this.directory(cell), before, await readRunInputs(config), {
          changeable: HARMLESS,
          defaults: () => unnamedValues(text, name, parseRunConfig(text, { name }).config),
        });
      } catch (error) {
        if (!(error instanceof RunError)) throw error;
        throw new RunError(
          `${this.sweep.file} no longer describes a run that was made: ${error.message}; or give the sweep another output_dir`,
          { cause: error },
        );
      }
    }
  }

  /** Runs in the folder that are none of `cells`. */
  async strangers(cells: readonly Cell[]): Promise<string[]> {
    if (!existsSync(this.path)) return [];
    const known = new Set(cells.map(({ id }) => id));
    const files = await readdir(this.path, { recursive: true });
    return files
      .filter((name) => name.endsWith(`${sep}config.yaml`))
      .map((name) => dirname(name).replaceAll(sep, '/'))
      .filter((id) => !known.has(id));
  }
}

const RECORDS = 'runs.json';
