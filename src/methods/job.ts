/** A run in several processes, which a launcher has started: the first one owns the run directory, all compute. */
import { createHash } from 'node:crypto';
import { type Cluster, joinCluster } from '../cluster/cluster.js';
import { aloneBecause, type Environment, joinLimits, placeOf } from '../cluster/environment.js';
import { packageVersion, runtimeVersion } from '../native/version.js';
import { type RunDirectory, readRunConfig } from '../run/directory.js';
import { acceptedChanges, readRunInputs, unnamedValues } from '../run/inputs.js';
import { resolveInputs } from '../run/paths.js';
import { shadowRunDirectory } from '../run/shadow.js';
import { toLog } from '../terminal/log.js';
import type { Prepared } from '../train/plan/prepared.js';
import { parseRunConfig } from './config.js';
import type { RunConfig } from './table.js';

export interface StartedRun {
  readonly config: RunConfig;
  readonly run: RunDirectory;
  /** Its model and tokenizer, where the configuration was resolved here. */
  readonly prepared?: Prepared<RunConfig> | undefined;
}

/**
 * The processes that the launcher has started with this one, once all have joined; undefined where it is alone.
 *
 * @param same values that must be equal in all of them
 * @throws StepTrainError E_CLUSTER where one does not come, or differs
 */
export async function joinJob(
  same: Readonly<Record<string, unknown>>,
  environment: Environment = process.env,
): Promise<Cluster | undefined> {
  const place = placeOf(environment);
  if (!place) {
    const reason = aloneBecause(environment);
    if (reason !== undefined) toLog(reason, 'warning');
    return undefined;
  }
  const hashes = Object.entries(same).map(([name, value]) => [
    name,
    createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 12),
  ]);
  // Another one may compute other logarithms.
  const versions = { version: packageVersion(), runtime: runtimeVersion() };
  const greeting = { ...versions, ...Object.fromEntries(hashes) };
  return joinCluster({ place, greeting, say: toLog, ...joinLimits(environment) });
}

/** Rank 0 starts the run; the others follow it, and go on once all have what it has written so far. */
export async function startTogether(
  cluster: Cluster | undefined,
  start: () => Promise<StartedRun>,
): Promise<StartedRun & { readonly home: string }> {
  const none = new Uint8Array();
  if (!cluster || cluster.rank === 0) {
    const started = await start();
    await cluster?.gather(Buffer.from(started.run.path));
    await cluster?.gather(none);
    return { ...started, home: started.run.path };
  }
  const [path] = (await cluster.gather(none)) as [Uint8Array];
  const home = Buffer.from(path).toString();
  const started = await follow(home);
  await cluster.gather(none);
  return { ...started, home };
}

/** Opens the run that rank 0 has just written: the same configuration, and the same data on this machine. */
async function follow(home: string): Promise<StartedRun> {
  const run = await shadowRunDirectory(home);
  try {
    const name = `${home}/config.yaml`;
    const text = await readRunConfig(home);
    const parsed = parseRunConfig(text, { name });
    const config = await resolveInputs(parsed.config, parsed.locate);
    const before = await run.readInputs();
    const defaults = () => unnamedValues(text, name, parsed.config);
    if (before) acceptedChanges(home, before, await readRunInputs(config), { defaults });
    return { config, run };
  } catch (error) {
    await run.close();
    throw error;
  }
}

/** Ends together: the others learn of a failure of this process, and do not take its end for one. */
export async function together<Result>(
  cluster: Cluster | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  if (!cluster) return work();
  try {
    const result = await work();
    await cluster.close();
    return result;
  } catch (error) {
    await cluster.fail(error instanceof Error ? error.message : String(error));
    throw error;
  }
}
