import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Argv } from 'yargs';
import type { Cluster } from '../cluster/cluster.js';
import type { StartedRun } from '../methods/job.js';
import type { RunConfig } from '../methods/table.js';
import { plural } from '../native/shown.js';
import { typedCommand } from '../native/typed-command.js';
import type { RunDirectory } from '../run/directory.js';
import type { RunResult } from '../train/result.js';
import type { StepEvent } from '../train/step-event.js';
import { recipeFile, recipeOptions } from './chosen/recipe-file.js';
import { printReport } from './eval/output.js';
import { type ArgumentsOf, command, flag, text } from './line/command.js';
import { Interrupted, UsageError } from './line/error.js';
import { wordsInto } from './line/rank-log.js';

/** The training code as the command line uses it. */
export type RunRecipe = (
  config: RunConfig,
  run: RunDirectory,
  signal: AbortSignal,
  options: StartOptions,
) => Promise<RunResult>;

interface StartOptions extends Partial<Pick<StartedRun, 'prepared'>> {
  readonly resume: boolean;
  readonly set?: readonly string[] | undefined;
  /** Folder of stages that runs have in common. */
  readonly shareStages: string | undefined;
  readonly cluster?: Cluster | undefined;
  readonly onStep?: (event: StepEvent) => void;
  /** Directory that the recipe names; where it holds an earlier run, a numbered one is taken instead. */
  readonly wanted?: string | undefined;
}

type RunArguments = Partial<ArgumentsOf<typeof options>>;

const options = (argv: Argv) =>
  recipeOptions(argv)
    .option('output', {
      ...text,
      describe: 'Directory for the run; must be new or empty [default: run.output_dir of the recipe]',
    })
    .option('resume', {
      ...text,
      conflicts: ['recipe', 'output', 'dry-run'],
      describe: 'Continue the run in this directory from its last checkpoint',
    })
    .option('dry-run', {
      type: 'boolean',
      describe:
        'Check the recipe; print the data counts, the memory plan, the steps of each stage and the time, then stop; exits with 1 where the run would fail',
    })
    .option('full', {
      type: 'boolean',
      implies: 'dry-run',
      describe: 'With --dry-run: print the complete configuration too',
    })
    .option('plan-for', {
      ...text,
      implies: 'dry-run',
      describe:
        'With --dry-run: plan for a device with so much free memory, as in 80GiB, or for processes with one each, as in 8x80GiB',
    })
    .option('accept-weak-reward', {
      ...flag,
      describe: 'Learn also from a reward model that eval reward-model has found weak',
    })
    .option('share-stages', {
      ...text,
      conflicts: 'dry-run',
      describe:
        'Take finished stages with the same settings and data, such as the warm-up, from this folder, and leave new ones there',
    })
    .example('$0 run', 'train the built-in example (generated data, no download)')
    .example('$0 run my.yaml --set lora.r=8', 'train as my.yaml says, with another rank')
    .example('$0 train my.yaml', 'the same command by another name')
    .example('$0 run my.yaml --dry-run --plan-for 80GiB', 'would it fit on another machine?')
    .example('$0 run my.yaml --dry-run --plan-for 8x80GiB', 'in eight processes, on a GPU each?')
    .example('$0 run --resume runs/my', 'resume a stopped run')
    .example('$0 run --resume runs/my --set run.max_minutes=60', 'resume it for another hour');

export const runCommand = command({
  command: 'run [recipe]',
  aliases: ['train'],
  describe: 'Train as a recipe says, evaluate, and print the table',
  builder: options,
  handler: async (args) => {
    const load = () => import('../methods/run.js');
    if (args.resume === undefined) await startRun(args, async () => (await load()).runRecipe);
    else await resumeRun({ ...args, resume: args.resume }, async () => (await load()).resumeRecipe);
  },
});

/** `steptrain run recipe.yaml`. The training code is loaded only after the recipe has been checked. */
export async function startRun(args: RunArguments, loadRecipe: () => Promise<RunRecipe>): Promise<void> {
  const { formatRunConfig, loadRunConfig } = await import('../methods/config.js');
  const file = recipeFile(args);
  const { config, locate } = await loadRunConfig(file, settingsOf(args));
  if (args['dry-run']) {
    const { resolveInputs } = await import('../run/paths.js');
    const { isShipped } = await import('../models/base.js');
    const { describeRun } = await import('../train/plan/dry-run.js');
    const { methodOf } = await import('../methods/table.js');
    const known = await resolveInputs(config, locate, { weights: false });
    const row = methodOf(known);
    const { base } = config.model;
    // Comments keep the output a valid recipe.
    const print = (lines: readonly string[]) =>
      console.log(lines.map((line) => (args.full ? `# ${line}` : line)).join('\n'));
    const { failure, time } = await describeRun({ ...row, ...(await row.load()) }, known, {
      // For a model of the hub, only the files that give its size were fetched. A plan for another machine needs no
      // weights at all.
      weights:
        args['plan-for'] === undefined && typeof base === 'string' && (isShipped(base) || existsSync(base)),
      ...(args['plan-for'] === undefined ? {} : devicesOf(args['plan-for'])),
      measure: true,
      onPlan({ lines, failure }) {
        print(lines);
        const head = `The complete configuration of ${file}`;
        if (args.full) console.log(`\n${formatRunConfig(config, { head }).trimEnd()}\n`);
        else if (failure === undefined) console.log('--full prints the complete configuration too');
      },
    });
    if (time.length > 0) print(time);
    if (failure !== undefined) throw new UsageError(`the run would fail: ${failure}`);
    return;
  }
  const { createRun } = await import('../methods/run.js');
  await inJob(
    { configuration: config },
    { resume: false, shareStages: args['share-stages'], wanted: args.output ?? config.run.output_dir },
    loadRecipe,
    (cluster) => createRun(config, locate, { output: args.output, origin: file, processes: cluster?.size }),
  );
}

/** The values of `--set`, and that of the option that stands for a key. */
const settingsOf = ({ set = [], 'accept-weak-reward': accepted }: RunArguments): readonly string[] =>
  accepted ? [...set, 'run.accept_weak_reward=true'] : set;

/** 80GiB, 512MiB, 1.5TB; 8x80GiB. */
function devicesOf(text: string): { readonly planFor: number; readonly processes: number } {
  const [, count = '1', number, unit, binary] =
    /^(?:(\d{1,5}) ?[x×] ?)?(\d+(?:\.\d+)?) ?([MGT])(i?)B?$/i.exec(text.trim()) ?? [];
  if (number === undefined || unit === undefined || Number(number) === 0 || Number(count) === 0)
    throw new UsageError(`--plan-for expects an amount of memory such as 80GiB or 8x80GiB, found ${text}`);
  const planFor = Number(number) * (binary ? 1024 : 1000) ** ('MGT'.indexOf(unit.toUpperCase()) + 2);
  return { planFor, processes: Number(count) };
}

/** `steptrain run --resume DIR [--set …]`. */
export async function resumeRun(
  args: RunArguments & { readonly resume: string },
  loadRecipe: () => Promise<RunRecipe>,
): Promise<void> {
  const { openRun } = await import('../methods/run.js');
  const set = settingsOf(args);
  const same = { run: args.resume, changes: set };
  await inJob(same, { resume: true, set, shareStages: args['share-stages'] }, loadRecipe, () =>
    openRun(args.resume, set),
  );
}

/** Runs alone, or together with the other processes that a launcher has started. */
async function inJob(
  same: Readonly<Record<string, unknown>>,
  options: StartOptions,
  loadRecipe: () => Promise<RunRecipe>,
  start: (cluster: Cluster | undefined) => Promise<StartedRun>,
): Promise<void> {
  const { joinJob, startTogether, together } = await import('../methods/job.js');
  const { placeOf } = await import('../cluster/environment.js');
  if (options.shareStages !== undefined && placeOf(process.env))
    throw new UsageError('--share-stages is for runs in one process; leave it out');
  const cluster = await joinJob(same);
  // A stop is agreed: it is no failure that the others should hear of.
  const stopped = await together(cluster, async () => {
    const { config, run, home, prepared } = await startTogether(cluster, () => start(cluster));
    const log = cluster && cluster.rank > 0 ? wordsInto(home, cluster.rank) : undefined;
    try {
      await train(config, run, { ...options, cluster, home, prepared }, loadRecipe);
    } catch (error) {
      if (error instanceof Interrupted) return error;
      throw error;
    } finally {
      log?.end();
    }
  });
  if (stopped) throw stopped;
}

async function train(
  config: RunConfig,
  run: RunDirectory,
  { home, wanted = home, ...options }: StartOptions & { readonly home: string },
  loadRecipe: () => Promise<RunRecipe>,
): Promise<void> {
  const { listenForInterrupt } = await import('../run/interrupt.js');
  // Other ranks write into other folders, from which nobody resumes.
  const shown = shownPath(home);
  const earlier = resolve(wanted) === home ? undefined : shownPath(resolve(wanted));
  console.error(
    `${options.resume ? 'Continuing' : 'Run directory:'} ${shown}${earlier ? `, since ${earlier} is taken` : ''}`,
  );
  const interruption = listenForInterrupt({
    print: (line) => console.error(`\n${line}`),
    hint: `To resume: ${resumeLine(shown)}`,
  });
  const { formatTrainedTable } = await import('../eval/reports/report-table.js');
  const { REPORT } = await import('../report/write.js');
  const { closing } = await import('../methods/run.js');
  const { DamagedRunError } = await import('../run/error.js');
  let last: StepEvent | undefined;
  const result = await closing(run, options.cluster, async () => {
    const runRecipe = await loadRecipe();
    const onStep = (event: StepEvent) => {
      last = event;
    };
    return runRecipe(config, run, interruption.signal, { ...options, onStep });
  })
    .catch(async (error) => {
      const resumes = existsSync(home) && !(error instanceof DamagedRunError);
      if (resumes)
        console.error(
          (await run.findCheckpoint().catch(() => undefined))
            ? `To resume: ${resumeLine(shown)}`
            : `There is no checkpoint yet; to begin the run again: ${resumeLine(shown)}`,
        );
      if (!existsSync(home)) console.error(`${shown} is removed again, as nothing was trained yet`);
      throw error;
    })
    .finally(() => interruption.dispose());
  if (result.wasFinished) {
    console.error(await finishedLine(shown, run, result));
    return;
  }
  const isFirst = !options.cluster || options.cluster.rank === 0;
  if (isFirst && result.evaluation) {
    printReport(result.evaluation, false, formatTrainedTable);
  }
  if (isFirst && result.solved) {
    const { formatSolvedReport } = await import('../eval/solving/run-report.js');
    printReport(result.solved, false, formatSolvedReport);
  }
  if (result.outOfTime) {
    console.error(
      `Stopped after ${reached(result.step, last)}, as run.max_minutes says; what was trained is saved. To resume: ${resumeLine(shown)}`,
    );
    return;
  }
  if (result.status === 'interrupted') {
    throw new Interrupted(`Stopped after ${reached(result.step, last)}. To resume: ${resumeLine(shown)}`);
  }
  console.error(
    `Done after ${plural(result.step, 'step')}; everything is in ${shown}${earlier ? `, not in ${earlier}, which was taken` : ''}`,
  );
  if (existsSync(run.file(REPORT))) console.error(`${shown}/${REPORT}`);
}

/** Says what there is of a run that was resumed and has nothing left to do, and how to train on from it. */
async function finishedLine(shown: string, run: RunDirectory, { step }: RunResult): Promise<string> {
  const [{ REPORT }, { trainedBy }] = await Promise.all([
    import('../report/write.js'),
    import('../methods/finished-run.js'),
  ]);
  const has = (name: string) => existsSync(run.file(name));
  const from = trainedBy(shown, run);
  return [
    `${shown} has finished, after ${plural(step, 'step')}; nothing was computed`,
    ...(has('eval.json') ? [`its results: ${typedCommand(`eval show ${shown}`)}`] : []),
    ...(has(REPORT) ? [`its page: ${shown}/${REPORT}`] : []),
    ...(from === undefined
      ? []
      : [`to train on from it, in a new run: ${typedCommand(`run RECIPE --set ${from}`)}`]),
  ].join('\n');
}

/**
 * Position as the progress line shows it, by the stage. Before a process's first step only the run's own count is
 * known.
 */
function reached(step: number, last: StepEvent | undefined): string {
  return last?.step === step ? `${last.stage} step ${last.stageStep}/${last.stageSteps}` : `step ${step}`;
}

function resumeLine(path: string): string {
  return typedCommand(`run --resume ${/^[\w./-]+$/.test(path) ? path : JSON.stringify(path)}`);
}

/** Short where the directory is below the current one. */
function shownPath(path: string): string {
  const below = `${process.cwd()}/`;
  return path.startsWith(below) ? path.slice(below.length) : path;
}
