/** Starts a run from a configuration in a new directory, or resumes an earlier run in its directory. */
import { existsSync } from 'node:fs';
import type { Cluster } from '../cluster/cluster.js';
import type { Locate } from '../config/issues.js';
import { checkOptions, invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import { typedCommand } from '../native/typed-command.js';
import { exportRun } from '../report/export.js';
import { writeRunReport } from '../report/write.js';
import { createRunDirectory, openRunDirectory, type RunDirectory, readRunConfig } from '../run/directory.js';
import { acceptedChanges, readRunInputs, unnamedValues } from '../run/inputs.js';
import { resolveInputs, withAbsolutePaths } from '../run/paths.js';
import { type Log, loggingTo, toLog } from '../terminal/log.js';
import type { Method } from '../train/method.js';
import { checkAdapter } from '../train/plan/adapter-start.js';
import { type Prepared, prepare } from '../train/plan/prepared.js';
import { runMethod } from '../train/recipe.js';
import type { EndedRun } from '../train/result.js';
import type { StepEvent } from '../train/step-event.js';
import { completeRunConfig, configOfRun, formatRunConfig, hasKey, parseRunConfig } from './config.js';
import { finishedRun, refuseLonger } from './finished-run.js';
import { givenRows } from './given-rows.js';
import { joinJob, type StartedRun, startTogether, together } from './job.js';
import { completeSaved } from './saved-models.js';
import { methodOf, type RunConfig, type RunConfigInput } from './table.js';

export interface TrainOptions {
  /**
   * Rows that replace the files of `data.train`, `data.validation` and `data.test`, each like a line of a .jsonl file.
   * They are kept next to the run's directory in files named by their content, which `resume` reads again; a run that
   * is refused leaves none.
   */
  readonly rows?:
    | {
        readonly train?: readonly object[] | undefined;
        readonly validation?: readonly object[] | undefined;
        readonly test?: readonly object[] | undefined;
      }
    | undefined;
  /** Directory for the run, new or empty. Default: `run.output_dir`, with a number appended if that is taken. */
  readonly output?: string | undefined;
  /** Stops the run as Ctrl-C does: after the current step, with a checkpoint. */
  readonly signal?: AbortSignal | undefined;
  /** Called after every step and every validation. The run waits for what it returns; an error that it throws, or a promise that rejects, ends the run. */
  readonly onStep?: ((event: StepEvent) => unknown) | undefined;
  /** Takes what the run would write to standard error, line by line: see {@link Log}. */
  readonly log?: Log | undefined;
  /**
   * A folder of finished stages that runs have in common. A new run begins with what another run left there, if all that
   * the stage reads is equal (settings, data, kernels), and leaves its own stages there.
   */
  readonly shareStages?: string | undefined;
}

const TRAIN_OPTIONS: Record<keyof TrainOptions, true> = {
  rows: true,
  output: true,
  signal: true,
  onStep: true,
  log: true,
  shareStages: true,
};

export interface TrainResult extends EndedRun {
  /** Absolute path; `resume` continues there. */
  readonly directory: string;
}

/**
 * Trains, evaluates and writes everything to one directory, like `steptrain run`.
 *
 * @param config as in a recipe; omitted keys have their defaults
 * @throws ConfigError for a configuration that contradicts itself, DataError and StepTrainError from the run; the
 *   reason of a signal that was aborted before anything was written
 */
export async function train(config: RunConfigInput, options: TrainOptions = {}): Promise<TrainResult> {
  checkOptions('train', options, TRAIN_OPTIONS);
  const { signal, log } = options;
  signal?.throwIfAborted();
  return loggingTo(log, () => begun(config, options));
}

async function begun(
  config: RunConfigInput,
  { rows, output, signal, onStep, shareStages }: TrainOptions,
): Promise<TrainResult> {
  const given = rows && (await givenRows(config, rows, output));
  const complete = given?.config ?? completeRunConfig(config);
  let home: string | undefined;
  try {
    const cluster = await joinJob({ configuration: complete });
    return await together(cluster, async () => {
      const started = await startTogether(cluster, () =>
        createRun(complete, (path) => `config ${path.join('.')}`, { output, processes: cluster?.size }),
      );
      home = started.run.path;
      return finished(started.run, cluster, () =>
        runRecipe(started.config, started.run, signal ?? never(), {
          resume: false,
          onStep,
          shareStages,
          cluster,
          prepared: started.prepared,
        }),
      );
    });
  } catch (error) {
    // A run that has begun to train can go on, and reads its rows again.
    throw given && (home === undefined || !existsSync(home)) ? await given.failed(error) : error;
  }
}

export interface ResumeRunOptions extends Pick<TrainOptions, 'signal' | 'onStep' | 'log' | 'shareStages'> {
  /** Changes such as `run.max_minutes=60`; docs/reference/configuration.md lists the keys that may change. */
  readonly set?: readonly string[] | undefined;
}

const RESUME_OPTIONS: Record<keyof ResumeRunOptions, true> = {
  set: true,
  signal: true,
  onStep: true,
  log: true,
  shareStages: true,
};

/**
 * Resumes the run in `directory` from its last checkpoint; on the CPU bit-identical to a run that was not stopped. Of one
 * that has finished the result is read; only what it left and is gone is computed again.
 *
 * @throws RunError where data, base or configuration are not those that the run began with
 */
export async function resume(directory: string, options: ResumeRunOptions = {}): Promise<TrainResult> {
  checkOptions('resume', options, RESUME_OPTIONS);
  const { set, log } = options;
  if (set !== undefined && !(Array.isArray(set) && set.every((each) => typeof each === 'string')))
    throw invalid(
      `resume: set: expected a list of texts such as ['run.max_minutes=60'], found ${shown(set)}`,
    );
  return loggingTo(log, () => resumed(directory, options));
}

async function resumed(
  directory: string,
  { signal, set, onStep, shareStages }: ResumeRunOptions,
): Promise<TrainResult> {
  const cluster = await joinJob({ run: directory, changes: set ?? [] });
  return together(cluster, async () => {
    const { config, run } = await startTogether(cluster, () => openRun(directory, set));
    return finished(run, cluster, () =>
      resumeRecipe(config, run, signal ?? never(), { set, onStep, shareStages, cluster }),
    );
  });
}

export interface CreateOptions {
  readonly output?: string | undefined;
  /** Named in the head of config.yaml. */
  readonly origin?: string;
  /** Processes of the job. Default 1. */
  readonly processes?: number | undefined;
}

/**
 * The configuration that a run begins with: absolute paths, a length that its base reads, and the shards of its job, which it keeps where
 * it goes on in more or fewer processes, and so its bits.
 */
export async function begunWith(
  config: RunConfig,
  locate: Locate,
  processes: number,
): Promise<Prepared<RunConfig>> {
  const absolute = withAbsolutePaths(await resolveInputs(config, locate), methodOf(config));
  const { config: readable, ...prepared } = await prepare(absolute, methodOf(config));
  const run = { ...readable.run, shards: readable.run.shards || processes };
  return { ...prepared, config: { ...readable, run } };
}

/** Resolves the paths of a configuration and creates the run directory with its config.yaml. */
export async function createRun(
  config: RunConfig,
  locate: Locate,
  { output, origin, processes = 1 }: CreateOptions,
): Promise<StartedRun> {
  const prepared = await begunWith(config, locate, processes);
  const { config: found } = prepared;
  await checkAdapter(found);
  const inputs = await readRunInputs(found);
  const run = await createRunDirectory(output ?? found.run.output_dir, {
    onExisting: output === undefined ? 'number' : 'refuse',
  });
  const resolved = { ...found, run: { ...found.run, output_dir: run.path } };
  const from = origin === undefined ? '' : ` from ${origin}`;
  try {
    await run.writeConfig(
      formatRunConfig(resolved, { head: `Merged${from} by steptrain; steptrain run reads it again.` }),
    );
    await run.writeInputs(inputs);
  } catch (error) {
    await run.discard();
    throw error;
  }
  return { config: resolved, run, prepared: { ...prepared, config: resolved } };
}

/**
 * The directory of an earlier run, locked, and its configuration with the changes of `settings` (as after `--set`).
 *
 * @throws RunError where data, base or a key that must not change are not those that the run began with
 */
export async function openRun(directory: string, settings: readonly string[] = []): Promise<StartedRun> {
  const name = `${directory}/config.yaml`;
  const text = await readRunConfig(directory);
  const parsed = parseRunConfig(text, { name, settings, unknown: OTHER_VERSION });
  const config = await resolveInputs(parsed.config, parsed.locate);
  await checkAdapter(config);
  const run = await openRunDirectory(directory);
  try {
    const now = await readRunInputs(config);
    const before = await run.readInputs();
    const defaults = () => unnamedValues(text, name, parseRunConfig(text, { name }).config);
    const isKey = (key: string) => hasKey(config, key);
    const accepted = before && acceptedChanges(directory, before, now, { defaults, isKey });
    const { changed = [], added = [], gone = [] } = accepted ?? {};
    await refuseLonger(directory, run, changed);
    if (!before)
      toLog(`${directory} has no inputs.json: whether its data is unchanged cannot be checked`, 'warning');
    if (before?.runtime !== undefined && before.runtime !== now.runtime)
      toLog(`changed: ${before.runtime} began this run, and ${now.runtime} goes on`);
    for (const change of changed) toLog(`changed: ${change}`);
    if (added.length > 0) toLog(`added since this run began, with their defaults: ${added.join(', ')}`);
    if (gone.length > 0) toLog(`no keys of this version, and left out: ${gone.join(', ')}`);
    if (settings.length > 0 || added.length > 0)
      await run.writeConfig(formatRunConfig(config, { head: RESUMED }));
    await run.writeInputs(now);
  } catch (error) {
    await run.close();
    throw error;
  }
  return { config, run };
}

const OTHER_VERSION =
  'another version may have begun this run: go on with that one, or remove the key from config.yaml if its value does not matter';

const RESUMED = 'Merged by steptrain, changed when the run was resumed; steptrain run reads it again.';

interface RecipeOptions extends Pick<TrainOptions, 'onStep' | 'shareStages'>, Pick<StartedRun, 'prepared'> {
  readonly cluster?: Cluster | undefined;
}

/** Goes on with a run that `openRun` has opened, with the changes `set`, or reads the result of a finished one. */
export async function resumeRecipe(
  config: RunConfig,
  run: RunDirectory,
  signal: AbortSignal,
  { set = [], ...options }: RecipeOptions & Pick<ResumeRunOptions, 'set'>,
): Promise<EndedRun> {
  // Other keys may give a stage more steps, or the data another place: the stages say what comes of it.
  const before = set.every((change) => change.startsWith('run.'))
    ? await finishedRun(run, options.cluster)
    : undefined;
  return before ?? runRecipe(config, run, signal, { ...options, resume: true });
}

export async function runRecipe(
  config: RunConfig,
  run: RunDirectory,
  signal: AbortSignal,
  options: RecipeOptions & { readonly resume: boolean },
): Promise<EndedRun> {
  const { load, sections } = methodOf(config);
  const method = { ...(await load()), sections };
  const prepared = options.prepared ?? (await prepare(config));
  return runMethod({
    ...options,
    method: { ...method, save: savedWhole(method, config) },
    prepared,
    run,
    signal,
  });
}

/** Saves what a method trained, each adapter and model with its tokenizer and card. */
function savedWhole(method: Pick<Method<RunConfig>, 'save'>, config: RunConfig): Method<RunConfig>['save'] {
  return async (open, stages) => {
    await method.save(open, stages);
    await completeSaved(open.run.path, config, open.tokenizer);
  };
}

/** Closes the run directory after `work` and writes its report; one in which nothing has been logged yet is removed when `work` fails. */
export async function closing<T>(
  run: RunDirectory,
  cluster: Cluster | undefined,
  work: () => Promise<T>,
): Promise<T> {
  let result: T;
  try {
    result = await work();
  } catch (error) {
    await run.discard();
    throw error;
  } finally {
    await run.close();
  }
  if (!cluster || cluster.rank === 0) await reported(run.path);
  return result;
}

/** Writes the page of a run; what was trained is worth more, so a sentence says where it cannot be written. */
async function reported(path: string): Promise<void> {
  try {
    await writeRunReport(path);
  } catch (error) {
    toLog(
      `there is no report: ${(error as Error).message}; ${typedCommand(`report ${path}`)} tries again`,
      'warning',
    );
  }
  await tracked(path);
}

/** Writes the run for the trackers that `run.report_to` names. */
async function tracked(path: string): Promise<void> {
  for (const to of (await configOfRun(path)).run.report_to) {
    if (to === 'tensorboard') continue;
    try {
      await exportRun(path, to);
    } catch (error) {
      toLog(
        `${(error as Error).message}; ${typedCommand(`export ${path} --to ${to}`)} tries again`,
        'warning',
      );
    }
  }
}

const finished = (
  run: RunDirectory,
  cluster: Cluster | undefined,
  work: () => Promise<EndedRun>,
): Promise<TrainResult> => closing(run, cluster, async () => ({ ...(await work()), directory: run.path }));

const never = () => new AbortController().signal;
