/** How long stages take on this machine, from a few steps of each that leave nothing behind. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FrameConfig, MethodSchema } from '../config/schema.js';
import { createRunDirectory } from '../run/directory.js';
import { formatDuration } from '../terminal/progress.js';
import type { Method, OpenRun, OpenScorers, RunData, RunRoles } from './method.js';
import type { OpenMaking, OpenTraining, StageEntry, TrainingStage } from './stage.js';

/** Milliseconds of steps that are measured of each stage, the first one aside. */
const MEASURED_MS = 2000;

export interface MeasuredTime {
  readonly seconds: number;
  /** Stages that are not in it, since what they do depends on what earlier ones make. */
  readonly unknown: readonly string[];
}

/** Loads the models of a run, measures its stages, and disposes of everything. */
export async function measuredRun<Config extends FrameConfig>(
  method: Method<Config> & Pick<MethodSchema<Config>, 'sections'>,
  open: Omit<OpenRun<Config, RunData, RunRoles>, 'roles' | 'run' | 'openScorers'>,
  openScorers: (of: string) => Promise<OpenScorers>,
): Promise<MeasuredTime> {
  const folder = await mkdtemp(join(tmpdir(), 'steptrain-measured-'));
  const run = await createRunDirectory(join(folder, 'run'), { onExisting: 'refuse' });
  const context = { ...open, run, openScorers };
  let roles: RunRoles | undefined;
  try {
    roles = await method.roles(context);
    const { config, data } = open;
    const { validation, test } = data.summary.parts;
    const judged = ({ solutions }: { readonly solutions: number }) =>
      config.eval.max_samples === 'all' ? solutions : Math.min(solutions, config.eval.max_samples);
    return await measuredTime({
      stages: method.stages({ ...context, roles }),
      cycleOf: (stage) => cycle((method.sections(config) as Readonly<Record<string, Rounds>>)[stage]),
      finalShare:
        validation.solutions === 0 ? 0 : (judged(test) / judged(validation)) * method.memory(config).length,
      validates: validation.solutions > 0,
    });
  } finally {
    roles?.dispose();
    await run.close();
    await rm(folder, { recursive: true, force: true });
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
  return unknown.length === 0
    ? `time: about ${time}`
    : `time: at least ${time}, without ${unknown.join(', ')}, which depends on the stages before it`;
}

export interface MeasuredRun {
  readonly stages: readonly StageEntry[];
  /** Optimizer steps of a stage between two rollouts; 1 where nothing is sampled. */
  readonly cycleOf: (stage: string) => number;
  /** Solutions that the final evaluation judges for each of a validation, all judges together. */
  readonly finalShare: number;
  readonly validates: boolean;
}

/** Takes steps of every stage in turn: what the roles hold is different afterwards, so dispose of them. */
export async function measuredTime(run: MeasuredRun): Promise<MeasuredTime> {
  const unknown: string[] = [];
  let seconds = 0;
  let validation: number | undefined;
  for (const stage of run.stages) {
    if (!('open' in stage)) {
      unknown.push(stage.name);
      continue;
    }
    const open = stage.open();
    try {
      await open.begin();
      seconds +=
        stage.steps * (await stepSeconds(open, Math.min(run.cycleOf(stage.name), stage.steps), stage.steps));
      if ('artefact' in stage || !('validate' in open) || !open.validate || !run.validates) continue;
      const { validate } = open;
      validation ??= await secondsOf(() => validate(new AbortController().signal, 0));
      seconds += validations(stage) * validation;
    } finally {
      open.dispose();
    }
  }
  return { seconds: seconds + run.finalShare * (validation ?? 0), unknown };
}

/** Mean over whole cycles, after a first step that takes longer than the others. */
async function stepSeconds(open: OpenTraining | OpenMaking, cycle: number, steps: number): Promise<number> {
  let index = 0;
  const step = () => open.step(index++, new AbortController().signal);
  if (cycle === 1 && steps > 1) await step();
  const first = index;
  const began = performance.now();
  do {
    for (let i = 0; i < cycle && index < steps; i++) await step();
  } while (index < steps && performance.now() - began < MEASURED_MS);
  return (performance.now() - began) / 1000 / Math.max(1, index - first);
}

async function secondsOf(work: () => Promise<unknown> | undefined): Promise<number> {
  const began = performance.now();
  await work();
  return (performance.now() - began) / 1000;
}

/** At the start where something is selected, every `eval_steps`, and at the end. */
function validations({ steps, settings }: TrainingStage): number {
  const every = settings.eval_steps > 0 ? Math.floor(steps / settings.eval_steps) : 0;
  const atEnd = settings.eval_steps > 0 && steps % settings.eval_steps > 0 ? 1 : 0;
  return every + atEnd + (settings.best === undefined ? 0 : 1);
}
