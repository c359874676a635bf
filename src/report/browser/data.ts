import type { Points } from '../decimate.js';

/** Data that the server wrote into the page for its plots. */
export interface PlotData {
  readonly id: string;
  readonly title: string;
  readonly x: string;
  /** The last step of the run, in the count of x. */
  readonly steps: number;
  readonly unit?: 'percent' | 'bytes' | 'seconds' | 'per second';
  readonly series: readonly (Points & { readonly key: string })[];
}

/** The series on one common x axis, as uPlot wants them; null where a series has no value. */
export interface Aligned {
  readonly x: number[];
  readonly columns: (number | null)[][];
}

export function align(series: readonly (readonly [x: readonly number[], y: readonly number[]])[]): Aligned {
  const x = [...new Set(series.flatMap(([own]) => own))].sort((a, b) => a - b);
  const index = new Map(x.map((value, i) => [value, i]));
  const columns = series.map(([own, y]) => {
    const column = new Array<number | null>(x.length).fill(null);
    for (const [i, value] of own.entries()) column[index.get(value) as number] = y[i] ?? null;
    return column;
  });
  return { x, columns };
}

/** Exponential mean, corrected for its start. A short series, such as evaluations, stays as it is. */
export function smooth(y: readonly number[], weight: number): readonly number[] {
  if (weight === 0 || y.length < 12) return y;
  let [mean, mass] = [0, 0];
  return y.map((value) => {
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}
