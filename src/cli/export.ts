import { TRACKERS } from '../config/trackers.js';
import { command, flag, text } from './line/command.js';

export const exportCommand = command({
  command: 'export <runs..>',
  describe: 'Log runs by the Python package of Weights & Biases, Trackio or MLflow',
  builder: (argv) =>
    argv
      .positional('runs', { type: 'string', array: true, demandOption: true, describe: 'Run directories' })
      .option('to', {
        choices: TRACKERS,
        demandOption: true,
        describe: 'The package; TensorBoard reads the run as it is',
      })
      .option('project', { ...text, default: 'steptrain', describe: 'Project, or experiment of MLflow' })
      .option('online', {
        ...flag,
        describe:
          'Send the log to the server that the package is set up for [default: keep it in the run directory]',
      })
      .option('python', { ...text, default: 'python3', describe: 'A Python that has the package' })
      .example('$0 export runs/mine --to trackio', 'then: trackio show')
      .example('$0 export runs/mine --to wandb --online', 'after wandb login'),
  handler: async ({ runs, to, ...options }) => {
    const { exportRun } = await import('../report/export.js');
    for (const run of runs) {
      await exportRun(run, to, options);
      console.log(`${run}: logged by ${to}${options.online ? '' : ', on this machine alone'}`);
    }
  },
});
