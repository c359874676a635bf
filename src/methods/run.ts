/** Starts a run from a configuration in a new directory, or resumes an earlier run in its directory. */
import type { Locate } from '../config/issues.js';
import { createRunDirectory, openRunDirectory, type RunDirectory, readRunConfig } from '../run/directory.js';
import { resolveInputs } from '../run/paths.js';
import { runMethod } from '../train/recipe.js';
import type { RunResult } from '../train/result.js';
import { completeRunConfig, formatRunConfig, parseRunConfig } from './config.js';
import { methodOf, type RunConfig, type RunConfigInput } from './table.js';

export interface TrainOptions {
  /** Directory for the run, new or empty. Default: `run.output_dir`, with a number appended if that is taken. */
  readonly output?: string | undefined;
  /** Stops the run as Ctrl-C does: after the current step, with a checkpoint. */
  readonly signal?: AbortSignal | undefined;
}

export interface TrainResult extends RunResult {
  /** Absolute path; `resume` continues there. */
  readonly directory: string;
}

/**
 * Trains, evaluates and writes everything to one directory, like `steptrain run`.
 *
 * @param config as in a recipe; omitted keys have their defaults
 * @throws ConfigError for a configuration that contradicts itself, DataError and StepTrainError from the run
 */
export async function train(
  config: RunConfigInput,
  { output, signal }: TrainOptions = {},
): Promise<TrainResult> {
  const complete = completeRunConfig(config);
  const { resolved, run } = await createRun(complete, (path) => `config ${path.join('.')}`, { output });
  return closing(run, () => runRecipe(resolved, run, signal ?? never(), { resume: false }));
}

/** Resumes the run in `directory` from its last checkpoint; on the CPU bit-identical to a run that was not stopped. */
export async function resume(
  directory: string,
  { signal }: Pick<TrainOptions, 'signal'> = {},
): Promise<TrainResult> {
  const { config, run } = await openRun(directory);
  return closing(run, () => runRecipe(config, run, signal ?? never(), { resume: true }));
}

/** Resolves the paths of a configuration and creates the run directory with its config.yaml. */
export async function createRun(
  config: RunConfig,
  locate: Locate,
  { output, origin }: { readonly output?: string | undefined; readonly origin?: string },
): Promise<{ readonly resolved: RunConfig; readonly run: RunDirectory }> {
  const found = await resolveInputs(config, locate);
  const run = await createRunDirectory(output ?? found.run.output_dir, {
    onExisting: output === undefined ? 'number' : 'refuse',
  });
  const resolved = { ...found, run: { ...found.run, output_dir: run.path } };
  const from = origin === undefined ? '' : ` from ${origin}`;
  await run.writeConfig(
    formatRunConfig(resolved, { head: `Merged${from} by steptrain; steptrain run reads it again.` }),
  );
  return { resolved, run };
}

/** The directory of an earlier run, locked, and its configuration. */
export async function openRun(
  directory: string,
): Promise<{ readonly config: RunConfig; readonly run: RunDirectory }> {
  const { config } = parseRunConfig(await readRunConfig(directory), { name: `${directory}/config.yaml` });
  return { config, run: await openRunDirectory(directory) };
}

export async function runRecipe(
  config: RunConfig,
  run: RunDirectory,
  signal: AbortSignal,
  options: { readonly resume: boolean },
): Promise<RunResult> {
  const row = methodOf(config);
  const method = { ...(await row.load()), sections: row.sections };
  return runMethod({ method, config, run, signal, ...options });
}

async function closing(run: RunDirectory, work: () => Promise<RunResult>): Promise<TrainResult> {
  try {
    return { ...(await work()), directory: run.path };
  } finally {
    await run.close();
  }
}

const never = () => new AbortController().signal;
