// The runs of a sweep: one for every arm, point of its grid and seed.
import { createHash } from 'node:crypto';
import { ConfigError } from '../config/error.js';
import { type Arm, linkedArms, points, type Settings, type Sweep } from './file.js';

/** One run, or the reasons that an arm's runs of a seed learn from. */
export interface Cell {
  readonly task: 'run' | 'rationales';
  /** Folder of the run within the sweep's; also its name in messages. */
  readonly id: string;
  readonly arm: Arm;
  /** Its values of the grid. */
  readonly point: Settings;
  readonly seed: number;
  /** Values by key, as after `--set`. */
  readonly settings: Settings;
  /** Runs that have to end before it. Empty unless `withNeeds` gave them. */
  readonly needs: CellNeeds;
}

export interface CellNeeds {
  /** The run that it begins from. */
  readonly from?: Cell | undefined;
  /** The run whose tokens it gets. */
  readonly tokensOf?: Cell | undefined;
  /** The reasons that it learns from. */
  readonly rationales?: Cell | undefined;
}

/** The cells that one waits for. */
export const neededBy = ({ needs }: Cell): Cell[] =>
  Object.values(needs).filter((each) => each !== undefined);

/** How a session of a cell ended. */
export interface CellOutcome {
  readonly status: 'finished' | 'stopped' | 'failed';
  /** Why it failed. */
  readonly reason?: string;
}

/** The runs that select among the points of a grid; none for arms without a choice. */
export function trialCells({ arms, select }: Sweep): Cell[] {
  if (!select) return [];
  const choosing = arms
    .map((arm) => ({ arm, points: points(arm) }))
    .filter(({ points }) => points.length > 1);
  return select.seeds.flatMap((seed) =>
    choosing.flatMap(({ arm, points }) => points.map((point) => cell(arm, point, seed))),
  );
}

/** The runs of the table at the chosen points, seed by seed, so that an early stop leaves whole pairs. */
export function finalCells({ arms, seeds }: Sweep, chosen: ReadonlyMap<string, Settings>): Cell[] {
  return seeds.flatMap((seed) =>
    arms.flatMap((arm) => {
      const point = pointOf(arm, chosen);
      return point ? [cell(arm, point, seed)] : [];
    }),
  );
}

/** The only point of an arm, or the one that its trials chose; undefined while they have not. */
function pointOf(arm: Arm, chosen: ReadonlyMap<string, Settings>): Settings | undefined {
  const all = points(arm);
  return all.length === 1 ? all[0] : chosen.get(arm.name);
}

/**
 * The cells after all that they need, each once; without those that need an arm whose point is not chosen yet.
 *
 * @param chosen by arm
 */
export function withNeeds(
  { arms }: Pick<Sweep, 'arms'>,
  cells: readonly Cell[],
  chosen: ReadonlyMap<string, Settings>,
): Cell[] {
  const found = new Map<string, Cell>();
  const runOf = (name: string, seed: number): Cell | undefined => {
    const arm = arms.find((each) => each.name === name) as Arm;
    const point = pointOf(arm, chosen);
    return point && add(cell(arm, point, seed));
  };
  const add = (each: Cell): Cell | undefined => {
    const { arm, seed } = each;
    const { from, tokensOf } = arm;
    const begins = from === undefined ? undefined : runOf(from, seed);
    const like = tokensOf === undefined ? undefined : runOf(tokensOf, seed);
    if ((from !== undefined && !begins) || (tokensOf !== undefined && !like)) return undefined;
    const needs: CellNeeds = {
      from: begins,
      tokensOf: like,
      rationales: arm.rationales && keep({ ...rationalesCell(arm, seed), needs: { from: begins } }),
    };
    return keep({ ...each, needs });
  };
  const keep = (each: Cell): Cell => {
    const known = found.get(each.id);
    if (!known) found.set(each.id, each);
    return known ?? each;
  };
  for (const each of cells) add(each);
  return [...found.values()];
}

/** The arms by how many others they wait for one after the other: those of a level need only the levels before. */
export function armLevels({ arms }: Pick<Sweep, 'arms'>): Arm[][] {
  const depthOf = (arm: Arm): number =>
    Math.max(
      0,
      ...linkedArms(arm).map((name) => 1 + depthOf(arms.find((each) => each.name === name) as Arm)),
    );
  const levels: Arm[][] = [];
  for (const arm of arms) {
    const depth = depthOf(arm);
    levels[depth] = [...(levels[depth] ?? []), arm];
  }
  return levels;
}

/** The reasons of an arm's runs of one seed, whatever their point. */
function rationalesCell(arm: Arm, seed: number): Cell {
  return {
    ...cell(arm, {}, seed),
    task: 'rationales',
    id: [folderName(arm.name), 'rationales', `seed-${seed}`].join('/'),
  };
}

export function cell(arm: Arm, point: Settings, seed: number): Cell {
  return {
    task: 'run',
    id: [folderName(arm.name), ...pointName(point), `seed-${seed}`].join('/'),
    arm,
    point,
    seed,
    settings: { ...arm.set, ...point, 'run.seed': seed },
    needs: {},
  };
}

export function describePoint(point: Settings): string {
  return Object.entries(point)
    .map(([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ');
}

/** Refuses names that become the same folder. */
export function checkNames({ arms, file }: Sweep): void {
  const folders = new Map<string, string>();
  for (const { name } of arms) {
    const folder = folderName(name).toLowerCase();
    const other = folders.get(folder);
    if (other !== undefined)
      throw new ConfigError(
        `${file}: arms ${other} and ${name} would share the folder ${folder}; rename one`,
      );
    folders.set(folder, name);
  }
}

const MAX_NAME = 100;

function folderName(text: string): string {
  return (
    text
      .replaceAll(/[^\w.=+-]+/g, '_')
      .replaceAll(/^[_.]+|_+$/g, '')
      .slice(0, MAX_NAME) || 'arm'
  );
}

function pointName(point: Settings): string[] {
  const text = describePoint(point);
  if (text === '') return [];
  const name = text.replaceAll(', ', ',').replaceAll(/[^\w.=+,-]+/g, '_');
  if (name === text.replaceAll(', ', ',') && name.length <= MAX_NAME) return [name];
  return [`${name.slice(0, MAX_NAME)}-${createHash('sha256').update(text).digest('hex').slice(0, 8)}`];
}
