import { join } from 'node:path';
import type { CommandModule } from 'yargs';

interface EvalArguments {
  readonly run: string;
  readonly json: boolean;
}

export const evalCommand: CommandModule<unknown, EvalArguments> = {
  command: 'eval <run>',
  describe: 'Show how well a finished run judges held-out steps',
  builder: (argv) =>
    argv
      .positional('run', { type: 'string', demandOption: true, describe: 'A run directory' })
      .option('json', { type: 'boolean', default: false, describe: 'Print the content of eval.json instead' })
      .example('$0 eval runs/quickstart', 'the table of that run beside its baselines') as never,
  handler: ({ run, json }) => showEvaluation(run, { json }),
};

async function showEvaluation(run: string, { json }: { readonly json: boolean }): Promise<void> {
  const { formatEvalTable } = await import('../eval/report.js');
  const { readEvalReport } = await import('../eval/report-file.js');
  const report = await readEvalReport(join(run, 'eval.json'));
  console.log(
    json
      ? JSON.stringify(report, null, 2)
      : formatEvalTable(report, { boxed: process.stdout.isTTY === true }),
  );
}
