/** The result of a run that is resumed and has nothing left to do. */
import type { Cluster } from '../cluster/cluster.js';
import { readEvalReport } from '../eval/reports/report-file.js';
import { readSolvedReport } from '../eval/solving/run-report.js';
import type { RunDirectory } from '../run/directory.js';
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
