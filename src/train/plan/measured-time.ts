/** Measures the time of stages on this machine by a few steps of each that leave nothing behind. */
import { mkdtemp, rm } from 'node:fs/promises';
import { cpus, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FrameConfig, MethodSchema } from '../../config/schema.js';
import { unfinished } from '../../files/unfinished.js';
import { StepTrainError } from '../../native/errors.js';
import { createRunDirectory } from '../../run/directory.js';
import type { LogFile } from '../../run/log-file.js';
import { formatDuration } from '../../terminal/progress.js';
import type { Method, OpenRun, RunData, RunRoles } from '../method.js';
import {
  evaluationInterval,
  keepsBest,
  type MakingOutcome,
  type MakingStage,
  type OpenMaking,
  type OpenTraining,
  type StageEntry,
  type TrainingStage,
} from '../stage.js';

/** Problems of the test part that a measured evaluation solves. */
const SOLVED = 16;

/** One step in this many is measured at most, so that a dry run is much shorter than a short run. */
const MEASURED_PART = 10;

export interface MeasuredTime {
  readonly seconds: number;
  /** Parts of the run that `seconds` leaves out, and the reasons. */
  readonly unknown: readonly { readonly name: string; readonly reason: string }[];
}

/**
 * Loads the models of a run, measures its stages, and disposes of everything.
 *
 * Calls `onStage` before each stage that it measures.
 */
export async function measuredRun<Config extends FrameConfig>(
  method: Method<Config> & Pick<MethodSchema<Config>, 'sections'>,
  open: Omit<OpenRun<Config, RunData, RunRoles>, 'roles' | 'run'>,
  { measuredMs, onStage }: Pick<MeasuredRun, 'measuredMs' | 'onStage'>,
): Promise<MeasuredTime> {
  const folder = await mkdtemp(join(tmpdir(), 'steptrain-measured-'));
  const removed = unfinished(folder);
  const run = await createRunDirectory(join(folder, 'run'), { onExisting: 'refuse' });
  const context = { ...open, run };
  let roles: RunRoles | undefined;
  try {
    roles = await method.roles(context);
    const { config, data } = open;
    const { validation, test } = data.summary.parts;
    const judged = ({ solutions }: { readonly solutions: number }) =>
      config.eval.max_samples === 'all' ? solutions : Math.min(solutions, config.eval.max_samples);
    const opened = { ...context, roles };
    const ends = method.evaluates?.(config) ?? 'judges';
    const time = await measuredTime({
      measuredMs,
      onStage,
      stages: method.stages(opened),
      artefact: (name) => run.artefact(name),
      cycleOf: (stage) => cycle((method.sections(config) as Readonly<Record<string, Rounds>>)[stage]),
      finalShare:
        ends !== 'judges' || validation.solutions === 0
          ? 0
          : (judged(test) / judged(validation)) * method.memory(config, context.device).length,
      validates: validation.solutions > 0,
    });
    if (ends !== 'solves' || judged(test) === 0) return time;
    // The stages have disposed of the roles' trained parameters.
    roles.dispose();
    roles = undefined;
    roles = await method.roles(context);
    const few = Math.min(SOLVED, judged(test));
    const smaller = {
      ...{ ...context, roles },
      config: { ...config, eval: { ...config.eval, max_samples: few } },
    };
    return await withUnknown(time, 'the evaluation', async () => {
      const solve = () =>
        method.evaluate(smaller, { tokens: 0, unchanged: [] }, new AbortController().signal);
      return (judged(test) / few) * (await secondsOf(solve));
    });
  } finally {
    roles?.dispose();
    await run.close();
    await rm(folder, { recursive: true, force: true });
    removed();
  }
}

/**
 * Adds the seconds of one more part, or the reason why they are unknown: the few rows that were made give nothing to
 * learn.
 */
async function withUnknown(
  { seconds, unknown }: MeasuredTime,
  name: string,
  measure: () => Promise<number>,
): Promise<MeasuredTime> {
  try {
    return { seconds: seconds + (await measure()), unknown };
  } catch (error) {
    if (!(error instanceof StepTrainError && error.code === 'E_DATA')) throw error;
    return { seconds, unknown: [...unknown, { name, reason: error.message }] };
  }
}

/** Keys of sections that sample between their steps. */
interface Rounds {
  readonly num_ppo_epochs?: number;
  readonly num_mini_batches?: number;
}

const cycle = ({ num_ppo_epochs = 1, num_mini_batches = 1 }: Rounds = {}) =>
  num_ppo_epochs * num_mini_batches;

export function formatMeasuredTime({ seconds, unknown }: MeasuredTime): string {
  const time = `${formatDuration(seconds)} by steps measured just now`;
  const [first] = unknown;
  if (!first) return `time: about ${time}`;
  const names = unknown.map(({ name }) => name).join(', ');
  return `time: at least ${time}, without ${names}: ${first.reason}`;
}

/** A sentence where the machine has more to do than it has cores; `load` is the mean of the last minute. */
export function busyMachine(
  load: number = loadavg()[0] as number,
  cores: number = cpus().length,
): string | undefined {
  if (load <= cores) return undefined;
  return `the machine was busy with other work meanwhile (load average ${load.toFixed(1)} on ${cores} cores): alone the run takes less`;
}

export interface MeasuredRun {
  /** Milliseconds of steps that are measured of each stage, the first one aside. */
  readonly measuredMs: number;
  readonly stages: readonly StageEntry[];
  readonly artefact: (name: string) => Pick<LogFile, 'append'>;
  /** Optimizer steps of a stage between two rollouts; 1 where nothing is sampled. */
  readonly cycleOf: (stage: string) => number;
  /** Solutions that the final evaluation judges for each of a validation, all judges together. */
  readonly finalShare: number;
  readonly validates: boolean;
  /** Called with the name of each stage before it is measured. */
  readonly onStage?: ((name: string) => void) | undefined;
}

interface MeasuredStage {
  /** Steps of the whole run. */
  readonly steps: number;
  readonly stepSeconds: number;
  readonly validations: number;
}

/**
 * Takes steps of every stage in turn. This changes the roles, so dispose of them afterwards. A stage whose steps depend
 * on rows of an earlier one is prepared from the rows that were made while measuring; its number of steps is scaled up
 * to those of the run. Of stages in rounds (`samples-1`, `samples-2`) those of the first round are measured.
 */
export async function measuredTime(run: MeasuredRun): Promise<MeasuredTime> {
  const kinds = new Map<string, MeasuredStage>();
  let time: MeasuredTime = { seconds: 0, unknown: [] };
  let validation: number | undefined;
  /** Factor by which the run makes more rows for the next stages than were made here. */
  let more = 1;

  async function measured(entry: StageEntry): Promise<MeasuredStage> {
    const isLater = !('open' in entry);
    if (!isLater) more = 1;
    run.onStage?.(entry.name);
    const stage = isLater ? await entry.prepare(new AbortController().signal) : entry;
    const steps = isLater ? (entry.expectedSteps?.() ?? Math.round(stage.steps * more)) : stage.steps;
    const open = stage.open();
    try {
      await open.begin();
      if ('artefact' in stage) {
        const made = await madeRows(open as OpenMaking, stage, run.measuredMs);
        for (const row of made.rows) run.artefact(stage.artefact).append(row);
        if (stage.rows === undefined) more *= stage.steps / Math.max(1, made.steps);
        return { steps, stepSeconds: made.stepSeconds, validations: 0 };
      }
      const cycle = Math.min(run.cycleOf(stage.name), stage.steps);
      const most = Math.min(stage.steps, Math.max(2, cycle, Math.ceil(stage.steps / MEASURED_PART)));
      const { stepSeconds } = await measuredSteps(open, inOrder(most), { cycle, ms: run.measuredMs });
      if (!('validate' in open) || !open.validate || !run.validates)
        return { steps, stepSeconds, validations: 0 };
      const { validate } = open;
      validation ??= await secondsOf(() => validate(new AbortController().signal, 0));
      return { steps, stepSeconds, validations: validations({ ...stage, steps }) };
    } finally {
      open.dispose();
    }
  }

  for (const entry of run.stages) {
    const kind = entry.name.replace(/-\d+$/, '');
    time = await withUnknown(time, entry.name, async () => {
      const stage = kinds.get(kind) ?? (await measured(entry));
      kinds.set(kind, stage);
      const steps = 'open' in entry ? entry.steps : stage.steps;
      return steps * stage.stepSeconds + stage.validations * (validation ?? 0);
    });
  }
  return { ...time, seconds: time.seconds + run.finalShare * (validation ?? 0) };
}

const inOrder = (steps: number): number[] => Array.from({ length: steps }, (_, i) => i);

/** Steps from all over the stage, whose parts may differ; their rows, and copies of the last one for those that a reader counts. */
async function madeRows(open: OpenMaking, { steps, rows: wanted = 0 }: MakingStage, ms: number) {
  const spread = (i: number) => (i * 0.6180339887) % 1;
  const order = inOrder(steps).sort((a, b) => spread(a) - spread(b));
  const measured = await measuredSteps(open, order, { cycle: 1, ms });
  const rows = measured.outcomes.flatMap((outcome) => [
    ...((outcome as MakingOutcome | undefined)?.rows ?? []),
  ]);
  const last = rows.at(-1);
  if (last) while (rows.length < wanted) rows.push(last);
  return { rows, steps: measured.outcomes.length, stepSeconds: measured.stepSeconds };
}

/** Takes steps of these, in cycles; their mean time, after a first step that takes longer than the others. */
async function measuredSteps(
  open: OpenTraining | OpenMaking,
  order: readonly number[],
  { cycle, ms }: { readonly cycle: number; readonly ms: number },
) {
  const outcomes: unknown[] = [];
  const step = async () => {
    outcomes.push(await open.step(order[outcomes.length] as number, new AbortController().signal));
  };
  if (cycle === 1 && order.length > 1) await step();
  const first = outcomes.length;
  const began = performance.now();
  do {
    for (let i = 0; i < cycle && outcomes.length < order.length; i++) await step();
  } while (outcomes.length < order.length && performance.now() - began < ms);
  const taken = Math.max(1, outcomes.length - first);
  return { outcomes, stepSeconds: (performance.now() - began) / 1000 / taken };
}

async function secondsOf(work: () => Promise<unknown> | undefined): Promise<number> {
  const began = performance.now();
  await work();
  return (performance.now() - began) / 1000;
}

/** Number of validations: at the start where something is selected, every `eval_steps`, and at the end. */
function validations(stage: Pick<TrainingStage, 'steps' | 'settings'>): number {
  const { steps, settings } = stage;
  const interval = evaluationInterval(stage);
  const every = interval === undefined ? 0 : Math.ceil(steps / interval);
  return every + (keepsBest(settings) ? 1 : 0);
}
