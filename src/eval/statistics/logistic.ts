import { exp, square } from '../../native/elementary.js';

// Logistic regression of a few features, by Newton's method.
/** Iterations of Newton's method, which settles within a handful. */
const ITERATIONS = 25;

/** Keeps weights finite where a feature separates the classes. */
const RIDGE = 1e-3;

/** Learns labels of 0 or 1 from features, as many in each row; gives the probability of 1. */
export function fitLogistic(
  rows: readonly (readonly number[])[],
  labels: readonly number[],
): (row: readonly number[]) => number {
  const scale = standardised(rows);
  const weights = logisticRegression(rows.map(scale), labels);
  return (row) => logistic(dot(weights, scale(row)));
}

/** Mean 0 and deviation 1 by feature, with a constant before them. */
function standardised(rows: readonly (readonly number[])[]): (row: readonly number[]) => number[] {
  const count = Math.max(1, rows.length);
  const width = rows[0]?.length ?? 0;
  const of = (feature: number) => rows.map((row) => row[feature] as number);
  const stats = Array.from({ length: width }, (_, feature) => {
    const values = of(feature);
    const mean = values.reduce((sum, value) => sum + value, 0) / count;
    const variance = values.reduce((sum, value) => sum + square(value - mean), 0) / count;
    return { mean, deviation: Math.sqrt(variance) || 1 };
  });
  return (row) => [1, ...stats.map(({ mean, deviation }, i) => ((row[i] as number) - mean) / deviation)];
}

/** Newton's method on the mean log-loss with a small ridge. */
export function logisticRegression(
  rows: readonly (readonly number[])[],
  labels: readonly number[],
): number[] {
  const width = rows[0]?.length ?? 1;
  let weights = new Array<number>(width).fill(0);
  for (let iteration = 0; iteration < ITERATIONS && rows.length > 0; iteration++) {
    const gradient = weights.map((weight) => RIDGE * weight);
    const hessian = weights.map((_, i) => weights.map((_, j) => (i === j ? RIDGE : 0)));
    rows.forEach((row, n) => {
      const p = logistic(dot(weights, row));
      const error = (p - (labels[n] as number)) / rows.length;
      const curvature = (p * (1 - p)) / rows.length;
      row.forEach((value, i) => {
        (gradient as number[])[i]! += error * value;
        row.forEach((other, j) => {
          (hessian[i] as number[])[j]! += curvature * value * other;
        });
      });
    });
    const step = solved(hessian, gradient);
    weights = weights.map((weight, i) => weight - (step[i] as number));
    if (step.every((change) => Math.abs(change) < 1e-9)) break;
  }
  return weights;
}

/** x with Ax = b, by Gaussian elimination with pivots. */
function solved(matrix: readonly (readonly number[])[], right: readonly number[]): number[] {
  const rows = matrix.map((row, i) => [...row, right[i] as number]);
  const at = (i: number, j: number) => (rows[i] as number[])[j] as number;
  for (let k = 0; k < rows.length; k++) {
    let pivot = k;
    for (let i = k + 1; i < rows.length; i++) if (Math.abs(at(i, k)) > Math.abs(at(pivot, k))) pivot = i;
    [rows[k], rows[pivot]] = [rows[pivot] as number[], rows[k] as number[]];
    for (let i = 0; i < rows.length; i++) {
      if (i === k) continue;
      const factor = at(i, k) / at(k, k);
      rows[i] = (rows[i] as number[]).map((value, j) => value - factor * at(k, j));
    }
  }
  return rows.map((row, i) => (row.at(-1) as number) / at(i, i));
}

function dot(weights: readonly number[], row: readonly number[]): number {
  return weights.reduce((sum, weight, i) => sum + weight * (row[i] as number), 0);
}

function logistic(x: number): number {
  return 1 / (1 + exp(-x));
}
