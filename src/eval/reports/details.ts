// The long tables of an evaluation: thresholds and reliability.

import { formatTable } from '../../terminal/table.js';
import { percent } from '../statistics/percent.js';
import type { EvalReport } from './eval-report.js';

/** Metrics at each threshold, the bins behind the calibration, and how kinds of errors rank below right steps, in percent. */
export function formatEvalDetails(
  {
    threshold_sweep,
    calibration,
    errors = {},
  }: Pick<EvalReport, 'threshold_sweep' | 'calibration' | 'errors'>,
  { boxed }: { readonly boxed: boolean },
): string {
  const draw = (rows: readonly string[][]) => formatTable(rows, { boxed });
  const tables: string[] = [];
  if (threshold_sweep) {
    const { table, chosen } = threshold_sweep;
    const chosenRows = [chosen?.f1_macro, chosen?.balanced_accuracy].filter((row) => row !== undefined);
    const rows = [...table, ...new Map(chosenRows.map((row) => [row.threshold, row])).values()].sort(
      (a, b) => a.threshold - b.threshold,
    );
    const chosenFor = (threshold: number) =>
      [
        chosen?.f1_macro.threshold === threshold ? 'F1 macro' : '',
        chosen?.balanced_accuracy.threshold === threshold ? 'balanced' : '',
      ].filter(Boolean);
    tables.push(
      draw([
        ['threshold', 'Acc_pos', 'Acc_neg', 'balanced', 'F1 macro', 'chosen for'],
        ...rows.map(({ threshold, metrics }) => [
          threshold.toFixed(3),
          ...[metrics.acc_pos, metrics.acc_neg, metrics.balanced_accuracy, metrics.f1_macro].map((metric) =>
            percent(metric),
          ),
          chosenFor(threshold).join(', '),
        ]),
      ]),
    );
  }
  if (calibration) {
    tables.push(
      draw([
        ['P(right)', 'steps', 'mean', 'right'],
        ...calibration.bins.map(({ from, to, n, probability, positive_share }) => [
          `${from.toFixed(1)} to ${to.toFixed(1)}`,
          String(n),
          percent(probability),
          percent(positive_share),
        ]),
      ]),
    );
  }
  const ranked = Object.entries(errors).flatMap(([kind, { n, told, auc }]) =>
    auc === undefined ? [] : [[kind, String(n), percent(told), percent(auc)]],
  );
  if (ranked.length > 0)
    tables.push(draw([['kind of error', 'steps', 'told', 'AUC beside right steps'], ...ranked]));
  return tables.join('\n\n');
}
