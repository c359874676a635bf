import type { Argv } from 'yargs';
import { ending } from '../../native/ending.js';
import { type ArgumentsOf, argument, command, flag, number, text } from '../line/command.js';
import { Interrupted, UsageError } from '../line/error.js';
import { checkWhole } from '../line/usage.js';

type CascadeArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  argv
    .positional('first', { ...argument, describe: 'The fast judge of steps, by any name of a scorer' })
    .positional('second', {
      ...argument,
      describe: 'The judge that reads the solutions of which the first is unsure',
    })
    .option('data', { ...text, demandOption: true, describe: 'Labelled solutions' })
    .option('unsure', {
      ...text,
      default: '0.6,0.7,0.8,0.9,0.95',
      describe: 'Min probabilities of a sure verdict of the first, a row for each',
    })
    .option('max-samples', { ...number, describe: 'Max solutions, from the first [default: all]' })
    .option('json', { ...flag, describe: 'Print the report as JSON' })
    .option('device', { ...text, default: 'auto', describe: 'auto, cpu or cuda:N' })
    .example(
      '$0 eval cascade runs/prm http://127.0.0.1:8000/v1#critic --data processbench/',
      'what a language model adds where the PRM is unsure, and its cost',
    );

export const cascadeCommand = command({
  command: 'cascade <first> <second>',
  describe: 'Measure a cascade: a fast judge, and a second one for solutions of which the first is unsure',
  builder: options,
  handler: measure,
});

async function measure(args: CascadeArguments): Promise<void> {
  checkWhole(args, { 'max-samples': 1 });
  const levels = args.unsure.split(',').map(Number);
  if (!levels.every((level) => level >= 0.5 && level <= 1))
    throw new UsageError(
      `--unsure expects probabilities from 0.5 to 1 with commas between them, found ${args.unsure}`,
    );
  const { evaluateCascade, formatCascade } = await import('../../eval/cascade.js');
  const { withScorer } = await import('../chosen/chosen-scorer.js');
  const { createProgress } = await import('../../terminal/progress.js');
  const { printReport } = await import('./output.js');
  const { taskOfModel } = await import('./correction-task.js');
  const { test, warnings = [] } = await taskOfModel({ model: args.first }, { data: args.data });
  for (const warning of warnings) console.error(`Warning: ${warning}`);
  const records = test.slice(0, args['max-samples']);
  const options = { device: args.device, part: 'judge' };
  await withScorer(args.first, options, (first) =>
    withScorer(args.second, options, async (second, signal) => {
      using progress = ending(createProgress({ total: 2 * records.length, unit: 'solution' }));
      try {
        const report = await evaluateCascade(first, second, records, {
          ...{ levels, signal },
          onProgress: (done) => progress.update(done),
        });
        progress.finish();
        printReport(report, args.json, formatCascade);
      } catch (error) {
        throw signal.aborted ? new Interrupted('Stopped.') : error;
      }
    }),
  );
}
