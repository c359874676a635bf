/** A run that is resumed and has nothing left to do: its result, and that no setting lets it train on. */
import { existsSync } from 'node:fs';
import type { Cluster } from '../cluster/cluster.js';
import { readEvalReport } from '../eval/reports/report-file.js';
import { readSolvedReport } from '../eval/solving/run-report.js';
import { typedCommand } from '../native/typed-command.js';
import type { RunDirectory } from '../run/directory.js';
import { RunError } from '../run/error.js';
import { finishedResults } from '../run/finished.js';
import { readRunState } from '../train/checkpoint.js';
import type { EndedRun } from '../train/result.js';

/**
 * Undefined where something is left: a stage, the evaluation, a product or a report that is not there any more, a
 * damaged checkpoint. The processes of a job are told by the first.
 */
export async function finishedRun(
  run: RunDirectory,
  cluster: Cluster | undefined,
): Promise<EndedRun | undefined> {
  const found = !cluster || cluster.rank === 0 ? await resultOf(run) : undefined;
  if (!cluster) return found;
  const { evaluation: _, solved: __, ...told } = found ?? {};
  const [said] = await cluster.gather(Buffer.from(found ? JSON.stringify(told) : ''));
  const text = Buffer.from(said as Uint8Array).toString();
  return text === '' ? undefined : (found ?? (JSON.parse(text) as EndedRun));
}

async function resultOf(run: RunDirectory): Promise<EndedRun | undefined> {
  const results = await finishedResults(run);
  const checkpoint = results && (await run.findCheckpoint());
  if (!checkpoint || checkpoint.damaged.length > 0) return undefined;
  const { stage, stages, step, tokens, unchanged = [] } = await readRunState(checkpoint.checkpoint.path);
  if (stage < stages.length) return undefined;
  const ended: EndedRun = { status: 'finished', wasFinished: true, step, stage, tokens, unchanged };
  if (!results.includes('eval.json')) return ended;
  const solved = await readSolvedReport(run.path);
  return solved
    ? { ...ended, solved }
    : { ...ended, evaluation: await readEvalReport(run.file('eval.json')) };
}

/** Keys that say how long a stage trains. */
const LENGTH = /^\S+\.(?:num_train_epochs|max_steps) is /;

/**
 * Refuses other epochs and steps where all stages have ended: nothing would be trained, and config.yaml would say otherwise.
 *
 * @param changed the changes, each as `KEY is VALUE and was VALUE`
 * @throws RunError with how to train on
 */
export async function refuseLonger(
  directory: string,
  run: RunDirectory,
  changed: readonly string[],
): Promise<void> {
  const change = changed.find((each) => LENGTH.test(each));
  const found = change === undefined ? undefined : await run.findCheckpoint();
  if (!found) return;
  const { stage, stages, step } = await readRunState(found.checkpoint.path);
  if (stage < stages.length) return;
  const from = trainedBy(directory, run);
  throw new RunError(
    `${directory} has finished, after ${step} steps, and trains no further, though ${change}; restore it, or ` +
      (from === undefined
        ? 'start a new run'
        : `train on in a new run: ${typedCommand(`run RECIPE --set ${from}`)}`),
  );
}

/** The setting with which a new run begins from what this one trained; undefined where it kept neither adapter nor model. */
export function trainedBy(directory: string, run: RunDirectory): string | undefined {
  if (existsSync(run.file('adapter'))) return `model.adapter=${directory}`;
  return existsSync(run.file('model')) ? `model.base=${directory}/model` : undefined;
}
