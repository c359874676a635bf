// The folder of a sweep: which of its runs have ended, which go on, and whether they are still what the file says.

import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { dirname, join, resolve, sep } from 'node:path';
import { ConfigError } from '../config/error.js';
import { makeDirectories } from '../files/directory.js';
import { readJson, writeJson } from '../files/json-file.js';
import { hasSection, loadRunConfig, methodOfRecipe, parseRunConfig } from '../methods/config.js';
import { begunWith } from '../methods/run.js';
import { readRunConfig } from '../run/directory.js';
import { RunError } from '../run/error.js';
import { acceptedChanges, dataContent, readRunInputs, runInputs, unnamedValues } from '../run/inputs.js';
import { resolveInputs } from '../run/paths.js';
import type { Cell, CellOutcome } from './cells.js';
import type { Settings, Sweep } from './file.js';
import { isFinished, readResults } from './values.js';

export type CellStatus = 'new' | 'started' | 'finished';

/** A record of a cell, kept beside its own directory. */
export interface CellRecord {
  /** Seconds of all its sessions. */
  readonly seconds: number;
  /** Why its last session failed. */
  readonly failed?: string;
  /** Set of reasons that were made: they have no run directory that says so. */
  readonly ended?: true;
}

/** Finds the file of a recipe that a sweep names. */
export type FindRecipe = (name: string) => string;

/** Keys that may change between two sessions of a sweep without changing a result. */
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

  /** The folder of stages that runs have in common; undefined where each run is to train its own. */
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

  async addSession({ id, task }: Cell, seconds: number, { status, reason }: CellOutcome): Promise<void> {
    const before = this.records[id]?.seconds ?? 0;
    this.records[id] = {
      seconds: before + seconds,
      ...(status === 'failed' ? { failed: reason ?? 'unknown' } : {}),
      ...(task === 'rationales' && status === 'finished' ? { ended: true } : {}),
    };
    await writeJson(join(this.path, RECORDS), this.records);
  }

  /** The settings of a cell as after `--set`, without what comes from those that it needs. */
  async ownSettings(cell: Cell): Promise<string[]> {
    const { arm, settings } = cell;
    const named = settings.method;
    const method = typeof named === 'string' ? named : methodOfRecipe(this.recipe(cell));
    const fits = (key: string) => {
      if (!arm.shared.has(key)) return true;
      return key === 'model.adapter' ? arm.from === undefined : hasSection(method, key);
    };
    return asTexts(Object.fromEntries(Object.entries(settings).filter(([key]) => fits(key))));
  }

  /**
   * All settings of a cell whose needs have ended.
   *
   * @throws ConfigError where they leave it no tokens
   */
  async settings(cell: Cell): Promise<string[]> {
    const { from, tokensOf, rationales } = cell.needs;
    return [
      ...(await this.ownSettings(cell)),
      ...asTexts({
        ...(from && cell.task === 'run' ? this.beginning(from) : {}),
        ...(rationales ? this.reasons(rationales) : {}),
        ...(tokensOf ? { 'run.max_tokens': await this.budget(cell.id, tokensOf, from) } : {}),
      }),
    ];
  }

  private beginning(from: Cell): Settings {
    const directory = this.directory(from);
    return existsSync(join(directory, 'adapter'))
      ? { 'model.adapter': directory }
      : { 'model.base': directory };
  }

  private reasons(cell: Cell): Settings {
    const files = (['train', 'validation', 'test'] as const).flatMap((part) => {
      const path = join(this.directory(cell), part === 'train' ? 'rationales.jsonl' : `${part}.jsonl`);
      return existsSync(path) ? [[`data.${part}`, path]] : [];
    });
    // The files no longer hold what was withheld.
    const whole = { 'data.rationales': 'all', 'data.labelled': 'all', 'data.label_noise': 0 };
    return { 'data.source': 'record', ...whole, ...Object.fromEntries(files) };
  }

  private async budget(id: string, tokensOf: Cell, from: Cell | undefined): Promise<number> {
    const [all, before] = [await this.allTokens(tokensOf), from ? await this.allTokens(from) : 0];
    if (all > before) return all - before;
    throw new ConfigError(
      `${id} gets the tokens of ${tokensOf.id}, ${all}, and begins from ${from?.id}, which has trained on ${before} already`,
    );
  }

  /** The trained tokens of a run that has ended, and of those that it began from. */
  async allTokens(cell: Cell): Promise<number> {
    const { from } = cell.needs;
    return ((await trainedTokens(this.directory(cell))) ?? 0) + (from ? await this.allTokens(from) : 0);
  }

  async status(cell: Cell): Promise<CellStatus> {
    if (cell.task === 'rationales') return this.records[cell.id]?.ended ? 'finished' : 'new';
    const directory = this.directory(cell);
    if (!existsSync(join(directory, 'config.yaml'))) return 'new';
    const { report, select } = this.sweep;
    const keys = [...report.map(({ key }) => key), ...(select ? [select.on] : [])];
    return isFinished(directory, keys) ? 'finished' : 'started';
  }

  /**
   * Reads the configuration of every cell before one of them runs.
   *
   * @param cells those of arms that wait for others with their needs, as far as these are chosen
   *
   * @throws ConfigError where it cannot run; RunError where its directory holds a run with another configuration or data
   */
  async check(cells: readonly Cell[]): Promise<void> {
    this.checkShared(cells);
    for (const cell of cells) {
      if (cell.task === 'rationales') {
        await this.checkReasons(cell);
        continue;
      }
      const own = await loadRunConfig(this.recipe(cell), await this.ownSettings(cell));
      const inputs = join(this.directory(cell), 'inputs.json');
      const { from, tokensOf } = cell.arm;
      const isLinked =
        (from === undefined || cell.needs.from) && (tokensOf === undefined || cell.needs.tokensOf);
      if (!existsSync(inputs) || !isLinked) {
        await resolveInputs(own.config, own.locate);
        continue;
      }
      const loaded = await loadRunConfig(this.recipe(cell), await this.settings(cell));
      const before = runInputs.parse(await readJson(inputs));
      const shards = Number(before.config['run.shards'] ?? 1);
      const { config } = await begunWith(loaded.config, loaded.locate, shards);
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

  /** Refuses a setting of the sweep for a section that no arm's method has. */
  private checkShared(cells: readonly Cell[]): void {
    const runs = cells.filter(({ task }) => task === 'run');
    const read = new Set<string>();
    for (const cell of runs) {
      const { method } = cell.settings;
      const name = typeof method === 'string' ? method : methodOfRecipe(this.recipe(cell));
      for (const key of cell.arm.shared) if (hasSection(name, key)) read.add(key);
    }
    const unread = runs.flatMap(({ arm }) => [...arm.shared]).find((key) => !read.has(key));
    if (unread !== undefined)
      throw new ConfigError(
        `${this.sweep.file}: set: no arm's method has the section of ${unread}; remove it`,
      );
  }

  private async checkReasons(cell: Cell): Promise<void> {
    const made = join(this.directory(cell), 'settings.json');
    if (!existsSync(made)) return;
    const { attempts, temperature, ...before } = (await readJson(made)) as Record<string, unknown>;
    const { rationales } = cell.arm;
    const otherwise = (how: string) =>
      new RunError(
        `${this.sweep.file} no longer describes the reasons in ${this.directory(cell)}: ${how}, or give the sweep another output_dir`,
      );
    if (attempts !== rationales?.k || temperature !== rationales?.temperature)
      throw otherwise(
        `they were made with k ${attempts} and temperature ${temperature}; restore rationales of arm ${cell.arm.name}`,
      );
    const own = await loadRunConfig(this.recipe(cell), await this.ownSettings(cell));
    const { data, ...config } = await resolveInputs(own.config, own.locate);
    const now: Record<string, unknown> = {
      ...{ data, prompt: 'prompt' in config ? config.prompt : undefined, files: await dataContent(data) },
    };
    // Files may have been moved; their content may not be another one.
    const text = (of: unknown) =>
      JSON.stringify(of, (key, value) => (['train', 'validation', 'test'].includes(key) ? undefined : value));
    const other = Object.keys(now).find((key) => text(now[key]) !== text(before[key]));
    if (other !== undefined)
      throw otherwise(
        `they were made with other ${other === 'files' ? 'content of the data' : other}; restore it`,
      );
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

/** JSON is YAML, and so keeps the type of every value. */
const asTexts = (values: Settings): string[] =>
  Object.entries(values).map(([key, value]) => `${key}=${JSON.stringify(value)}`);

/** The trained tokens of a run that has ended, as its evaluation says, else its log; undefined where neither does. */
async function trainedTokens(directory: string): Promise<number | undefined> {
  const { report, log } = await readResults(directory);
  const { trained_tokens: said } = (report as { data?: { trained_tokens?: unknown } }).data ?? {};
  if (typeof said === 'number') return said;
  const counts = log.flatMap(({ tokens }) => (typeof tokens === 'number' ? [tokens] : []));
  return counts.length > 0 ? Math.max(...counts) : undefined;
}
