import type { Argv } from 'yargs';
import { ending } from '../../native/ending.js';
import { UNSURE } from '../chosen/model-options.js';
import { type ArgumentsOf, argument, command, flag, number, text } from '../line/command.js';
import { Interrupted, UsageError } from '../line/error.js';

type CalibrateArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  argv
    .positional('run-or-model', {
      ...argument,
      describe: 'A judge of steps: a run, an adapter, a model directory',
    })
    .option('data', {
      ...text,
      describe:
        'Labelled solutions that the judge was not trained on [default: the validation part of the run]',
    })
    .option('unsure', { ...number, describe: UNSURE })
    .option('json', { ...flag, describe: 'Print the fit as JSON' })
    .option('device', { ...text, default: 'auto', describe: 'auto, cpu or cuda:N' })
    .example('$0 eval calibrate runs/prm', 'on its validation part; the card keeps it')
    .example(
      '$0 eval calibrate models/Qwen2.5-Math-PRM-7B --data val.jsonl --unsure 0.8',
      'a published model, which then says where it is unsure',
    );

export const calibrateCommand = command({
  command: 'calibrate <run-or-model>',
  describe: 'Fit the probabilities of a judge to held-out steps, and keep that in its card',
  builder: options,
  handler: run,
});

async function run(args: CalibrateArguments): Promise<void> {
  const { calibrate, formatCalibrate } = await import('../../eval/calibrate.js');
  const { openDevice } = await import('../../runtime/device.js');
  const { chosenDevice } = await import('../../runtime/chosen-device.js');
  const { createProgress } = await import('../../terminal/progress.js');
  const { untilInterrupted } = await import('../line/interrupt.js');
  const { printReport } = await import('./output.js');
  const { namedModel } = await import('../../models/saved.js');
  const { calibrationTask } = await import('./correction-task.js');
  const name = args['run-or-model'];
  if (args.data === undefined && namedModel(name).kind !== 'run')
    throw new UsageError(
      `${name} is no run with validation steps of its own: name labelled steps with --data FILE`,
    );
  const { records, warnings } = await calibrationTask(name, args.data);
  for (const warning of warnings) console.error(`Warning: ${warning}`);
  if (records.length === 0)
    throw new UsageError(`${name} has no validation steps; name labelled steps with --data FILE`);
  using interruption = ending(untilInterrupted());
  using device = openDevice(await chosenDevice(args.device));
  using progress = ending(createProgress({ total: records.length, unit: 'solution' }));
  try {
    const { signal } = interruption;
    const result = await calibrate(device, name, records, {
      ...{ unsure: args.unsure, signal },
      onProgress: (done) => progress.update(done),
    });
    progress.finish();
    printReport(result, args.json, formatCalibrate);
  } catch (error) {
    throw interruption.signal.aborted ? new Interrupted('Stopped; nothing was written.') : error;
  }
}
