/** Metrics broken down by a column of the data. */
import { grouped } from '../native/grouped.js';
import type { StepRecord } from '../records/record.js';
import type { JudgedVerdict } from '../scoring/verdict/judged.js';
import type { VerdictMetrics } from './statistics/metrics.js';
import { percent } from './statistics/percent.js';

export interface GroupMetrics extends VerdictMetrics {
  /** Right steps among the `n` judged ones: without any, or with nothing else, some metrics are 0/0. */
  readonly positives: number;
}

/** Metrics by the name of the group. */
export type GroupsMetrics = Readonly<Record<string, GroupMetrics>>;

/** The metrics of each group of solutions, by the group's name in order; undefined where no solution has a group. */
export function metricsByGroup(
  judged: readonly JudgedVerdict[],
  records: readonly StepRecord[],
  metricsOf: (judged: readonly JudgedVerdict[]) => VerdictMetrics,
): GroupsMetrics | undefined {
  const groups = grouped(judged, ({ solution }) => records[solution]?.group);
  if (groups.size === 0) return undefined;
  return Object.fromEntries(
    [...groups]
      .sort(byName)
      .map(([name, own]) => [
        name,
        { ...metricsOf(own), positives: own.filter(({ label }) => label === 1).length },
      ]),
  );
}

/** A row for each group; a share of a class that no step of the group has is a dash. The first row has the titles. */
export function groupRows({ groups }: { readonly groups?: GroupsMetrics }): string[][] {
  if (!groups) return [];
  return [
    ['by group, %', 'steps', 'Acc_pos', 'Acc_neg', 'F1 macro', 'AUC'],
    ...Object.entries(groups).map(([name, { n, positives, acc_pos, acc_neg, f1_macro, auc }]) => {
      const [hasRight, hasWrong] = [positives > 0, positives < n];
      return [
        name,
        String(n),
        hasRight ? percent(acc_pos) : '–',
        hasWrong ? percent(acc_neg) : '–',
        hasRight && hasWrong ? percent(f1_macro) : '–',
        auc === undefined ? '–' : percent(auc),
      ];
    }),
  ];
}

/** Compares entries by name, with numbers in order: `level 2` before `level 10`. */
export function byName([a]: readonly [string, ...unknown[]], [b]: readonly [string, ...unknown[]]): number {
  return a.localeCompare(b, 'en', { numeric: true });
}
