// Output of the eval commands.
import type { EvalReport } from '../../eval/reports/eval-report.js';

/** A report as JSON, or as `format` writes it; a terminal gets boxes. */
export function printReport<Report>(
  report: Report,
  json: boolean,
  format: (report: Report, options: { readonly boxed: boolean }) => string,
): void {
  console.log(
    json ? JSON.stringify(report, null, 2) : format(report, { boxed: process.stdout.isTTY === true }),
  );
}

/** The report as a table, with `details` also its long tables, with `json` as it is written to eval.json. */
export async function printEvaluation(
  report: EvalReport,
  { json, details }: { readonly json: boolean; readonly details: boolean },
): Promise<void> {
  const { formatEvalTable } = await import('../../eval/reports/report-table.js');
  const { formatEvalDetails } = await import('../../eval/reports/details.js');
  printReport(report, json, (_, options) =>
    [formatEvalTable(report, options), details ? formatEvalDetails(report, options) : '']
      .filter((part) => part !== '')
      .join('\n\n'),
  );
}
