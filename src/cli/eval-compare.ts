import type { CommandModule } from 'yargs';

interface CompareArguments {
  readonly 'run-a': string;
  readonly 'run-b': string;
  readonly json: boolean;
}

export const compareCommand: CommandModule<unknown, CompareArguments> = {
  command: 'compare <run-a> <run-b>',
  describe: 'Test whether two runs differ significantly on the same steps',
  builder: (argv) =>
    argv
      .positional('run-a', {
        type: 'string',
        demandOption: true,
        describe: 'A run directory or an --output directory of correction, with verdicts.jsonl',
      })
      .positional('run-b', { type: 'string', demandOption: true, describe: 'Another one, on the same steps' })
      .option('json', { type: 'boolean', default: false, describe: 'Print the comparison as JSON' })
      .example('$0 eval compare runs/sft runs/stepamc', 'paired tests on verdicts and on F1') as never,
  handler: async ({ 'run-a': a, 'run-b': b, json }) => {
    const { compareVerdicts, formatComparison } = await import('../eval/comparison.js');
    const { readVerdictDump } = await import('../eval/dump.js');
    const comparison = compareVerdicts(await readVerdictDump(a), await readVerdictDump(b));
    console.log(
      json
        ? JSON.stringify(comparison, null, 2)
        : formatComparison(comparison, { boxed: process.stdout.isTTY === true }),
    );
  },
};
