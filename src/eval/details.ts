// The long tables of an evaluation: thresholds and reliability.

import { percent } from './percent.js';
import type { EvalReport } from './report.js';
import { boxedTable, plainTable } from './table.js';

/** Metrics at each threshold, and the bins behind the calibration, in percent. */
export function formatEvalDetails(
  { threshold_sweep, calibration }: Pick<EvalReport, 'threshold_sweep' | 'calibration'>,
  { boxed }: { readonly boxed: boolean },
): string {
  const draw = boxed ? boxedTable : plainTable;
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
        ['P(correct)', 'steps', 'mean', 'correct'],
        ...calibration.bins.map(({ from, to, n, probability, positive_share }) => [
          `${from.toFixed(1)} to ${to.toFixed(1)}`,
          String(n),
          percent(probability),
          percent(positive_share),
        ]),
      ]),
    );
  }
  return tables.join('\n\n');
}
