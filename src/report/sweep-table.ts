/** Reads a sweep's `sweep.json` column by column; other entries are ignored. */
import { isObject, numbersIn } from './values.js';

export interface SweepColumn {
  readonly title: string;
  /** Shown in percent, as the sweep's file has the column. */
  readonly isShare: boolean;
  readonly arms: readonly SweepArm[];
  readonly differences: readonly SweepDifference[];
}

export interface SweepArm {
  readonly name: string;
  /** Values by seed. */
  readonly values: readonly (readonly [seed: string, value: number])[];
  readonly mean?: number;
  readonly deviation?: number;
}

export interface SweepDifference {
  readonly name: string;
  readonly n: number;
  readonly mean?: number;
  readonly interval?: readonly [low: number, high: number];
}

/** Columns of the summary; empty where it is no summary of a sweep. */
export function sweepColumns(summary: unknown): SweepColumn[] {
  const listed = (key: string) => {
    const list = isObject(summary) ? summary[key] : undefined;
    return Array.isArray(list) ? list.filter(isObject) : [];
  };
  const [arms, differences] = [listed('arms'), listed('differences')];
  const units = new Map(listed('report').map(({ title, unit }) => [title, unit]));
  const titles = new Set(arms.flatMap(({ columns }) => (isObject(columns) ? Object.keys(columns) : [])));
  return [...titles].map((title) => {
    const own = arms.map(({ arm, columns }): SweepArm => {
      const cell = isObject(columns) && isObject(columns[title]) ? columns[title] : {};
      return {
        name: String(arm),
        values: Object.entries(numbersIn(cell.values)),
        ...numbersIn({ mean: cell.mean, deviation: cell.deviation }),
      };
    });
    return {
      title,
      isShare: units.get(title) === 'percent',
      arms: own,
      differences: once(differences.filter(({ column }) => column === title)).map(difference),
    };
  });
}

/** Keeps the first of the differences a − b and b − a, where a sweep has both. */
const once = (differences: readonly Readonly<Record<string, unknown>>[]) =>
  differences.filter(
    ({ arm, to }, i) => !differences.slice(0, i).some((earlier) => earlier.arm === to && earlier.to === arm),
  );

function difference({ arm, to, n, mean, interval }: Readonly<Record<string, unknown>>): SweepDifference {
  const [low, high] = Array.isArray(interval) ? interval.map(Number) : [];
  return {
    name: `${String(arm)} − ${String(to)}`,
    n: Number(n),
    ...numbersIn({ mean }),
    ...(low === undefined || high === undefined ? {} : { interval: [low, high] }),
  };
}
