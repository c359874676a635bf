import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ending } from '../native/ending.js';
import { typedCommand } from '../native/typed-command.js';
import { argument, command, flag, number, text } from './line/command.js';
import { Interrupted, UsageError } from './line/error.js';
import { checkWhole } from './line/usage.js';

export const sweepCommand = command({
  command: 'sweep <file>',
  describe: 'Run arms × grid × seeds as a sweep file says, select on validation, and print one table',
  builder: (argv) =>
    argv
      .positional('file', { ...argument, describe: 'The sweep file, YAML (docs/how-to/sweeps.md)' })
      .option('output', {
        ...text,
        describe: 'The directory for the runs, in place of the output_dir of the file',
      })
      .option('jobs', { ...number, default: 1, describe: 'Runs at the same time' })
      .option('max-minutes', {
        ...number,
        describe: 'Stop after this many minutes; the same command resumes',
      })
      .option('dry-run', { ...flag, describe: 'Check every run; print what there is to do, then stop' })
      .option('set', {
        ...text,
        array: true,
        nargs: 1,
        describe: 'A value for every run, as in --set run.device=cpu; may be repeated',
      })
      .example('$0 sweep my-sweep.yaml --dry-run', 'what it would run')
      .example('$0 sweep my-sweep.yaml', 'run it, or go on with it')
      .example('$0 sweep my-sweep.yaml --jobs 2 --max-minutes 60', 'two runs at a time, for an hour'),
  handler: async (args) => {
    checkWhole(args, { jobs: 1 });
    const minutes = args['max-minutes'];
    if (minutes !== undefined && !(minutes > 0))
      throw new UsageError(`--max-minutes expects a number above 0, found ${minutes}`);
    const { loadSweep } = await import('../sweep/file.js');
    const { PROGRAM, recipesBeside, sweepFile } = await import('../sweep/sweep-file.js');
    const loaded = await loadSweep(sweepFile(args.file), args.set);
    const sweep = args.output === undefined ? loaded : { ...loaded, outputDir: args.output };
    const findRecipe = recipesBeside(sweep.file);
    if (args['dry-run']) {
      const { describeSweep } = await import('../sweep/dry-run.js');
      console.log((await describeSweep(sweep, { findRecipe, jobs: args.jobs })).join('\n'));
      return;
    }
    const { formatDuration } = await import('../terminal/progress.js');
    const { childRuns } = await import('../sweep/child.js');
    const { formatSweep } = await import('../sweep/format.js');
    const { runSweep } = await import('../sweep/run.js');
    const { listenForInterrupt } = await import('../run/interrupt.js');
    const { limitTime } = await import('../run/time-limit.js');
    const again = [
      typedCommand(`sweep ${args.file}`),
      ...(args.set ?? []).map((text) => `--set ${text}`),
      ...(args.output === undefined ? [] : [`--output ${args.output}`]),
    ].join(' ');
    let kill = () => {};
    using interruption = ending(
      listenForInterrupt({
        print: (line) => console.error(`\n${line}`),
        hint: `To go on: ${again}`,
        source: {
          on: (name, listener) => process.on(name, listener),
          off: (name, listener) => process.off(name, listener),
          exit(code) {
            kill();
            process.exit(code);
          },
        },
      }),
    );
    using time = ending(limitTime(interruption.signal, minutes ?? 0));
    const summary = await runSweep(sweep, {
      findRecipe,
      jobs: args.jobs,
      signal: time.signal,
      note: (line) => console.error(line),
      starter(folder) {
        const children = childRuns(folder, { program: [PROGRAM], jobs: args.jobs });
        kill = children.kill;
        return children.start;
      },
      onStart: ({ id }, { resume }) => console.error(`${id}: ${resume ? 'resumed' : 'started'}`),
      onEnd: ({ id }, { status, reason, seconds, left }) =>
        console.error(
          `${id}: ${status === 'failed' ? `failed: ${reason}` : status} after ${formatDuration(seconds)}; ${left} left`,
        ),
    });
    console.log(formatSweep(summary));
    console.error(`Everything is in ${sweep.outputDir}: sweep.md, sweep.json, and a directory for each run`);
    const { REPORT } = await import('../report/write.js');
    const report = join(sweep.outputDir, REPORT);
    if (interruption.signal.aborted) throw new Interrupted(`Stopped. To go on: ${again}`);
    if (time.expired)
      console.error(`Stopped after ${minutes} minutes, as --max-minutes says. To go on: ${again}`);
    const failed = summary.unfinished.filter(({ failed }) => failed !== undefined);
    if (failed.length > 0)
      throw new UsageError(`${failed.length} runs failed, as noted above; the same command tries them again`);
    if (existsSync(report)) console.error(report);
  },
});
