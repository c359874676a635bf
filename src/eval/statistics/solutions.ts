// Metrics of whole solutions: pass@k over samples and the localisation of the first wrong step.
import { plural } from '../../native/shown.js';
import type { StepLabel } from '../../records/record.js';
import { harmonicMean, ratio } from './metrics.js';
import { percent } from './percent.js';

/**
 * Unbiased pass@k of one problem: 1 − C(n−c, k) / C(n, k), from `n` samples of which `c` are right (Chen et al. 2021,
 * arXiv 2107.03374). 1 where fewer than k samples are wrong.
 */
export function passAtK({ n, c, k }: { readonly n: number; readonly c: number; readonly k: number }): number {
  const counts = [n, c, k].every((count) => Number.isSafeInteger(count) && count >= 0);
  if (!counts || k < 1 || k > n || c > n) {
    throw new RangeError(`pass@k needs integers with 1 ≤ k ≤ n and 0 ≤ c ≤ n, found n=${n}, c=${c}, k=${k}`);
  }
  // A product, since the binomials would overflow; with fewer than k wrong samples one factor is 0.
  let allWrong = 1;
  for (let i = n - c + 1; i <= n; i++) allWrong *= 1 - k / i;
  return 1 - allWrong;
}

export interface ProcessBenchScore {
  /** Share of faulty solutions whose first wrong step was found exactly. */
  readonly err_acc: number;
  /** Share of faultless solutions recognised as such. */
  readonly cor_acc: number;
  /** Harmonic mean of the two. */
  readonly f1: number;
}

/**
 * ProcessBench (arXiv 2412.06559): `labels` and `predictions` hold the index of the first wrong step, −1 for none.
 * A prediction of undefined (no answer could be read) is wrong for its class. Fractions in [0, 1].
 */
export function processBenchScore(
  labels: readonly number[],
  predictions: readonly (number | undefined)[],
): ProcessBenchScore {
  if (labels.length !== predictions.length) {
    throw new RangeError(
      `one prediction per label expected, found ${predictions.length} for ${labels.length} labels`,
    );
  }
  let [faulty, named, faultless, recognised] = [0, 0, 0, 0];
  labels.forEach((label, i) => {
    const hit = predictions[i] === label ? 1 : 0;
    if (label === -1) {
      faultless++;
      recognised += hit;
    } else {
      faulty++;
      named += hit;
    }
  });
  const errAcc = ratio(named, faulty);
  const corAcc = ratio(recognised, faultless);
  return { err_acc: errAcc, cor_acc: corAcc, f1: harmonicMean(errAcc, corAcc) };
}

/** One solution for ProcessBench. */
export interface FirstErrorCase {
  readonly subset: string;
  /** Index of the first wrong step, −1 for none. */
  readonly label: number;
  /** The predicted index; undefined if it could not be read. */
  readonly prediction: number | undefined;
}

/** The score of `n` solutions. Without faulty or without faultless ones, the fields that need them are absent. */
export type KnownProcessBenchScore = Partial<ProcessBenchScore> & { readonly n: number };

export interface ProcessBenchReport {
  readonly subsets: Readonly<Record<string, KnownProcessBenchScore>>;
  /** Unweighted mean of the subsets' F1, as published results report it; absent where none has one. */
  readonly average_f1?: number;
}

/** Undefined without cases. */
export function processBenchReport(cases: readonly FirstErrorCase[]): ProcessBenchReport | undefined {
  if (cases.length === 0) return undefined;
  const names = [...new Set(cases.map(({ subset }) => subset))];
  const subsets = Object.fromEntries(
    names.map((name) => [name, knownScore(cases.filter(({ subset }) => subset === name))]),
  );
  const scores = Object.values(subsets).flatMap(({ f1 }) => f1 ?? []);
  if (scores.length === 0) return { subsets };
  return { subsets, average_f1: scores.reduce((total, f1) => total + f1, 0) / scores.length };
}

export function knownScore(cases: readonly Omit<FirstErrorCase, 'subset'>[]): KnownProcessBenchScore {
  const { err_acc, cor_acc, f1 } = processBenchScore(
    cases.map(({ label }) => label),
    cases.map(({ prediction }) => prediction),
  );
  const faultless = cases.filter(({ label }) => label === -1).length;
  const n = cases.length;
  return {
    n,
    ...(faultless < n ? { err_acc } : {}),
    ...(faultless > 0 ? { cor_acc } : {}),
    ...(faultless > 0 && faultless < n ? { f1 } : {}),
  };
}

/** `90.1 (2000 solutions; first wrong step found in 84.2, none seen in 96.9 of the faultless)`. */
export function formatProcessBench({ n, err_acc, cor_acc, f1 }: KnownProcessBenchScore): string {
  const shares = [
    ...(err_acc === undefined ? [] : [`first wrong step found in ${percent(err_acc)}`]),
    ...(cor_acc === undefined ? [] : [`none seen in ${percent(cor_acc)} of the faultless`]),
  ];
  return `${f1 === undefined ? '–' : percent(f1)} (${plural(n, 'solution')}; ${shares.join(', ')})`;
}

/**
 * The index of the first wrong step by a solution's labels: −1 if all steps are right, undefined if an unlabelled step
 * leaves it open.
 */
export function firstWrongLabel(labels: readonly StepLabel[]): number | undefined {
  const place = labels.findIndex((label) => label !== 1);
  if (place < 0) return -1;
  return labels[place] === 0 ? place : undefined;
}

/**
 * The index of the first wrong step by the verdicts: the first step without the verdict "right"; undefined if that
 * verdict could not be read, or if all are "right" but some of the `expected` verdicts are missing.
 */
export function firstWrongVerdict(
  verdicts: readonly { readonly step: number; readonly verdict: 0 | 1 | undefined }[],
  expected: number,
): number | undefined {
  const first = verdicts.find(({ verdict }) => verdict !== 1);
  if (first) return first.verdict === 0 ? first.step : undefined;
  return verdicts.length < expected ? undefined : -1;
}
