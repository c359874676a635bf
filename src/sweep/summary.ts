// Summarizes finished runs: the chosen point of each arm, means over seeds, and paired differences.

import { average, type MeanInterval, meanInterval, sampleDeviation } from '../eval/statistics/student.js';
import { RunError } from '../run/error.js';
import { type Cell, cell, finalCells, trialCells, withNeeds } from './cells.js';
import { type Arm, type Column, points, type Settings, type Sweep } from './file.js';
import type { SweepFolder } from './folder.js';
import { numbersOf, type RunResults, readResults, valueAt, warningsOf } from './values.js';

/** One point of an arm's grid, on the seeds that select. */
export interface Trial {
  readonly arm: string;
  readonly point: Settings;
  /** The value of each seed; absent where the run has not ended. */
  readonly values: Readonly<Record<string, number>>;
  readonly mean?: number;
  /** Runs that have ended without a value. */
  readonly without?: readonly string[];
  readonly chosen: boolean;
}

export interface ArmSummary {
  readonly arm: string;
  readonly recipe: string;
  readonly set: Settings;
  /** The arms that its runs begin from and whose tokens they get, and how reasons were sampled. */
  readonly from?: string | undefined;
  readonly tokensOf?: string | undefined;
  readonly rationales?: Arm['rationales'];
  /** The chosen point; absent while its selection has not ended. */
  readonly point?: Settings;
  readonly trials: number;
  /** Its finished runs in the table, by seed: their folders within that of the sweep. */
  readonly runs: Readonly<Record<string, string>>;
  /** The values by seed of each column, with their mean and sample standard deviation. */
  readonly columns: Readonly<Record<string, ColumnSummary>>;
}

export interface ColumnSummary {
  readonly values: Readonly<Record<string, number>>;
  readonly n: number;
  readonly mean?: number;
  readonly deviation?: number;
}

/** `arm` minus `to`, seed by seed. */
export interface Difference extends MeanInterval {
  readonly arm: string;
  readonly to: string;
  readonly column: string;
  readonly seeds: readonly number[];
}

/** sweep.json. */
export interface SweepSummary {
  readonly file: string;
  readonly seeds: readonly number[];
  readonly report: readonly Column[];
  readonly select?: NonNullable<Sweep['select']>;
  readonly trials: readonly Trial[];
  readonly arms: readonly ArmSummary[];
  readonly differences: readonly Difference[];
  /** Runs that have not ended, and those that failed with the reason. */
  readonly unfinished: readonly { readonly run: string; readonly failed?: string }[];
  /** Runs of the table whose evaluation warns: their folders, and the first warning of each. */
  readonly warnings: readonly { readonly run: string; readonly warning: string }[];
}

/** Reads every finished run of the folder. Throws RunError where no finished run has a key of the file. */
export async function summarize(sweep: Sweep, folder: SweepFolder): Promise<SweepSummary> {
  const unfinished: { run: string; failed?: string }[] = [];
  const read = async (cells: readonly Cell[]) => {
    const found = new Map<string, RunResults>();
    for (const cell of cells) {
      if ((await folder.status(cell)) === 'finished')
        found.set(cell.id, {
          ...(await readResults(folder.directory(cell))),
          totalTokens: await folder.allTokens(cell),
        });
      else if (unfinished.every(({ run }) => run !== cell.id)) {
        const failed = folder.record(cell)?.failed;
        unfinished.push({ run: cell.id, ...(failed === undefined ? {} : { failed }) });
      }
    }
    return found;
  };
  const tried = await read(trialCells(sweep));
  const trials = selection(sweep, tried, (each) => folder.record(each)?.failed !== undefined);
  const chosen = new Map(trials.filter(({ chosen }) => chosen).map(({ arm, point }) => [arm, point]));
  const linked = withNeeds(sweep, finalCells(sweep, chosen), chosen);
  const finals = await read(
    linked.filter(({ id }) => finalCells(sweep, chosen).some((each) => each.id === id)),
  );
  requireKeys(
    sweep.file,
    [...finals.values()],
    sweep.report.map(({ key }) => key),
  );
  const arms = sweep.arms.map((arm): ArmSummary => {
    const all = points(arm);
    const point = all.length === 1 ? all[0] : chosen.get(arm.name);
    const ids = sweep.seeds.flatMap((seed) => (point ? [[seed, cell(arm, point, seed).id] as const] : []));
    const results = new Map(ids.map(([seed, id]) => [seed, finals.get(id)] as const));
    const columns = sweep.report.map((column) => [column.title, columnSummary(results, column)] as const);
    return {
      arm: arm.name,
      recipe: arm.recipe,
      set: arm.set,
      ...(arm.from === undefined ? {} : { from: arm.from }),
      ...(arm.tokensOf === undefined ? {} : { tokensOf: arm.tokensOf }),
      ...(arm.rationales ? { rationales: arm.rationales } : {}),
      ...(point ? { point } : {}),
      trials: all.length,
      runs: Object.fromEntries(ids.filter(([, id]) => finals.has(id))),
      columns: Object.fromEntries(columns),
    };
  });
  return {
    file: sweep.file,
    seeds: sweep.seeds,
    report: sweep.report,
    ...(sweep.select ? { select: sweep.select } : {}),
    trials,
    arms,
    differences: differences(sweep, arms),
    unfinished,
    warnings: [...finals].flatMap(([run, { report }]) => {
      const [warning] = warningsOf(report);
      return warning === undefined ? [] : [{ run, warning }];
    }),
  };
}

/**
 * The trials of all arms. An arm whose runs have all ended chooses the point with the best mean, except one with a
 * failed run.
 */
export function selection(
  sweep: Sweep,
  results: ReadonlyMap<string, RunResults>,
  hasFailed: (cell: Cell) => boolean = () => false,
): Trial[] {
  const { select } = sweep;
  if (!select) return [];
  requireKeys(sweep.file, [...results.values()], [select.on]);
  return sweep.arms.flatMap((arm) => {
    const all = points(arm);
    if (all.length === 1) return [];
    const trials = all.map((point) => {
      const cells = select.seeds.map((seed) => cell(arm, point, seed));
      const values = valuesOf(
        cells.map((each) => [each.seed, results.get(each.id)]),
        select.on,
      );
      const complete = Object.keys(values).length === select.seeds.length;
      const failed = cells.some((each) => !results.has(each.id) && hasFailed(each));
      const mute = cells.filter((each) => results.has(each.id) && !(each.seed in values)).map(({ id }) => id);
      const trial = {
        arm: arm.name,
        point,
        values,
        ...(complete ? { mean: average(Object.values(values)) } : {}),
        ...(mute.length > 0 ? { without: mute } : {}),
      };
      return { trial, ended: complete || failed || mute.length > 0 };
    });
    const sign = select.goal === 'max' ? 1 : -1;
    const score = ({ mean }: { readonly mean?: number }) =>
      mean === undefined ? Number.NEGATIVE_INFINITY : sign * mean;
    // The first of equals, which is the one that the file names first.
    const best = trials.map(({ trial }) => trial).reduce((a, b) => (score(b) > score(a) ? b : a));
    const decided = trials.every(({ ended }) => ended) && best.mean !== undefined;
    return trials.map(({ trial }) => ({ ...trial, chosen: decided && trial === best }));
  });
}

function columnSummary(results: ReadonlyMap<number, RunResults | undefined>, { key }: Column): ColumnSummary {
  const values = valuesOf([...results], key);
  const numbers = Object.values(values);
  if (numbers.length === 0) return { values, n: 0 };
  const deviation = numbers.length > 1 ? { deviation: sampleDeviation(numbers) } : {};
  return { values, n: numbers.length, mean: average(numbers), ...deviation };
}

function valuesOf(
  results: readonly (readonly [number, RunResults | undefined])[],
  key: string,
): Record<string, number> {
  return Object.fromEntries(
    results.flatMap(([seed, result]) => {
      const value = result && valueAt(result, key);
      return value === undefined ? [] : [[seed, value]];
    }),
  );
}

function differences({ seeds, compareTo, report }: Sweep, arms: readonly ArmSummary[]): Difference[] {
  const columns = report.filter(({ unit }) => unit !== 'count');
  return compareTo.flatMap((to) => {
    const reference = arms.find(({ arm }) => arm === to) as ArmSummary;
    return arms
      .filter((arm) => arm !== reference)
      .flatMap(({ arm, columns: of }) =>
        columns.flatMap(({ title }): Difference[] => {
          const [own, other] = [of[title]?.values ?? {}, reference.columns[title]?.values ?? {}];
          const paired = seeds.filter((seed) => seed in own && seed in other);
          if (paired.length === 0) return [];
          const values = paired.map((seed) => (own[seed] as number) - (other[seed] as number));
          return [{ arm, to, column: title, seeds: paired, ...meanInterval(values) }];
        }),
      );
  });
}

function requireKeys(file: string, results: readonly RunResults[], keys: readonly string[]): void {
  if (results.length === 0) return;
  const missing = keys.find((key) => results.every((result) => valueAt(result, key) === undefined));
  if (missing === undefined) return;
  const known = [...new Set(results.flatMap(numbersOf))];
  const word = missing.split('.').at(-1) as string;
  const near = known.filter((key) => key.split('.').at(-1) === word);
  const hint = (near.length > 0 ? near : known).slice(0, 12).join(', ');
  throw new RunError(
    `${file}: no finished run reports ${missing}; ${near.length > 0 ? 'there are' : 'it reports, for instance,'} ${hint}`,
  );
}
