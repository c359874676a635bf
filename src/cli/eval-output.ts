// Output of the eval commands.
import type { EvalReport } from '../eval/report.js';

/** The report as a table, with `details` also its long tables, with `json` as it is written to eval.json. */
export async function printEvaluation(
  report: EvalReport,
  { json, details }: { readonly json: boolean; readonly details: boolean },
): Promise<void> {
  if (json) {
    console.log(JSON.stringify(report, null, 2));
    return;
  }
  const { formatEvalTable } = await import('../eval/report-table.js');
  const { formatEvalDetails } = await import('../eval/details.js');
  const boxed = process.stdout.isTTY === true;
  const parts = [formatEvalTable(report, { boxed }), details ? formatEvalDetails(report, { boxed }) : ''];
  console.log(parts.filter((part) => part !== '').join('\n\n'));
}

/** The report of an --output directory of solve. */
export async function printSolving(directory: string, json: boolean): Promise<void> {
  const { readSolvingReport } = await import('../eval/solving/report-file.js');
  const { formatSolvingTable } = await import('../eval/solving/report.js');
  const report = await readSolvingReport(directory);
  console.log(
    json
      ? JSON.stringify(report, null, 2)
      : formatSolvingTable(report, { boxed: process.stdout.isTTY === true }),
  );
}
