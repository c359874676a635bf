import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { CommandModule } from 'yargs';
import { calibrateCommand } from './eval/calibrate.js';
import { cascadeCommand } from './eval/cascade.js';
import { compareCommand } from './eval/compare.js';
import { correctionCommand } from './eval/correction.js';
import { printEvaluation, printReport } from './eval/output.js';
import { rewardModelCommand } from './eval/reward-model.js';
import { s3cEvaluationCommand } from './eval/s3c.js';
import { solveCommand } from './eval/solve.js';
import { command, flag, nameOf } from './line/command.js';
import { UsageError } from './line/error.js';
import { joined, noSuchCommand } from './line/usage.js';

const SUBCOMMANDS = [
  correctionCommand,
  solveCommand,
  s3cEvaluationCommand,
  rewardModelCommand,
  calibrateCommand,
  cascadeCommand,
  compareCommand,
];

export const EVAL_COMMANDS = ['show', ...SUBCOMMANDS.map(nameOf)];

const showCommand = command({
  command: ['show [run]', '$0'],
  describe: 'Show the results of a finished run, or of an evaluation',
  builder: (argv) =>
    argv
      .positional('run', {
        type: 'string',
        describe: 'A run directory or an --output directory of correction or solve',
      })
      .option('json', { ...flag, describe: 'Print the report as JSON instead' })
      .option('details', {
        ...flag,
        describe: 'Also show other thresholds and the calibration of the probabilities',
      })
      .example('$0 eval show runs/quickstart', 'the table of that run beside its baselines')
      .example('$0 eval runs/quickstart', 'the same'),
  handler: async ({ run, _: words, ...options }) => {
    if (run === undefined)
      throw new UsageError(`name a run directory, or one of ${joined(EVAL_COMMANDS, 'and')}`);
    // A single word may have been meant as a subcommand.
    if (words[1] === undefined && /^[a-z0-9-]+$/.test(run) && !existsSync(run))
      throw new UsageError(
        `there is no directory ${run}, and ${noSuchCommand(run, { words: ['eval'], commands: EVAL_COMMANDS })}`,
      );
    const { REPORT, readSolvingReport } = await import('../eval/solving/report-file.js');
    const { formatSolvingTable } = await import('../eval/solving/solving-report.js');
    if (existsSync(join(run, REPORT)))
      return printReport(await readSolvingReport(run), options.json, formatSolvingTable);
    const { readSolvedReport, formatSolvedReport } = await import('../eval/solving/run-report.js');
    const solved = await readSolvedReport(run);
    if (solved) return printReport(solved, options.json, formatSolvedReport);
    const { readRunEvaluation } = await import('../eval/reports/report-file.js');
    await printEvaluation(await readRunEvaluation(run), options);
  },
});

export const evalCommand: CommandModule = {
  command: 'eval',
  describe: 'Judge held-out steps, solve problems, show the result, compare two runs',
  builder: (argv) => [showCommand, ...SUBCOMMANDS].reduce((line, each) => line.command(each), argv),
  handler: () => {},
};
