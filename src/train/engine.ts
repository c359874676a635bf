/**
 * Takes a run through its stages: logging, evaluation, the best parameters, checkpoints, steps that are not finite, and
 * a stop that loses nothing.
 */
import { StepTrainError } from '../native/errors.js';
import type { RunDirectory } from '../run/directory.js';
import type { Device } from '../runtime/device.js';
import { createProgress, type Progress } from '../terminal/progress.js';
import {
  checkContinuation,
  type RoleParameters,
  type RunState,
  readBest,
  readRunState,
  restoreOptimizers,
  restoreRoles,
  writeRunCheckpoint,
} from './checkpoint.js';
import type { Stage, StagePlan } from './stage.js';

export interface EngineOptions {
  readonly device: Device;
  readonly run: RunDirectory;
  readonly signal: AbortSignal;
  readonly resume: boolean;
  readonly loggingSteps: number;
  /** Steps in a row that may be not finite before the run stops. */
  readonly maxSkipped: number;
}

export interface EngineResult {
  readonly status: 'finished' | 'interrupted';
  /** Index of the stage at work; the number of stages once all are done. */
  readonly stage: number;
  /** Over all stages. */
  readonly step: number;
  readonly tokens: number;
}

export async function runStages(
  stages: readonly StagePlan[],
  roles: RoleParameters,
  options: EngineOptions,
): Promise<EngineResult> {
  return new Engine(stages, roles, options).run();
}

class Engine {
  private state: RunState;
  private best: Float32Array | undefined;
  private savedAt = '';
  private lastGood: number | undefined;
  private skippedInARow = 0;

  constructor(
    private readonly stages: readonly StagePlan[],
    private readonly roles: RoleParameters,
    private readonly options: EngineOptions,
  ) {
    this.state = {
      stage: 0,
      stage_step: 0,
      step: 0,
      skipped: 0,
      tokens: 0,
      validation_due: false,
      updates: {},
      isa: options.device.info().isa,
      plan: Object.assign({}, ...stages.map(({ plan }) => plan)) as Record<string, number>,
    };
  }

  async run(): Promise<EngineResult> {
    const { run, resume, signal } = this.options;
    const checkpoint = resume ? await run.latestCheckpoint() : undefined;
    run.rewind(checkpoint);
    if (checkpoint) {
      const state = await readRunState(checkpoint.path);
      checkContinuation(checkpoint.path, state, this.state);
      restoreRoles(checkpoint.path, this.roles);
      this.state = state;
      this.lastGood = state.step;
      this.savedAt = this.place;
    }
    let folder = checkpoint?.path;
    while (this.state.stage < this.stages.length) {
      if (signal.aborted) return this.interrupted(undefined);
      const plan = this.stages[this.state.stage] as StagePlan;
      this.options.device.resetPeak();
      const stage = plan.open();
      try {
        if (folder && this.state.stage_step > 0) this.restore(stage, folder);
        else await stage.begin();
        folder = undefined;
        if (!(await this.runStage(plan, stage))) return await this.interrupted(stage);
        if (this.best) stage.trains.values.write(this.best);
      } finally {
        stage.dispose();
      }
      this.best = undefined;
      this.update({
        stage: this.state.stage + 1,
        stage_step: 0,
        best: undefined,
        updates: {},
        own: undefined,
      });
      await this.save(undefined, plan.schedule.save_total_limit);
    }
    return this.result('finished');
  }

  private restore(stage: Stage, folder: string): void {
    restoreOptimizers(folder, stage.optimizers, this.state);
    if (this.state.best) this.best = readBest(folder, stage.trains);
    stage.restore?.(this.state.own);
  }

  /** False where the signal stopped it. */
  private async runStage(plan: StagePlan, stage: Stage): Promise<boolean> {
    const { signal } = this.options;
    const { schedule } = plan;
    const progress = createProgress({
      total: plan.steps,
      start: this.state.stage_step,
      unit: `${plan.name} step`,
    });
    try {
      for (;;) {
        if (this.state.validation_due && !(await this.validate(plan, stage, progress))) return false;
        if (this.state.stage_step >= plan.steps) return true;
        if (
          schedule.save_steps > 0 &&
          this.state.stage_step > 0 &&
          this.state.step % schedule.save_steps === 0
        )
          await this.save(stage, schedule.save_total_limit);
        if (signal.aborted || !(await this.step(plan, stage, progress))) return false;
      }
    } finally {
      progress.finish();
    }
  }

  private async step(plan: StagePlan, stage: Stage, progress: Progress): Promise<boolean> {
    const began = performance.now();
    const outcome = await stage.step(this.state.stage_step, this.options.signal);
    if (!outcome) return false;
    const stageStep = this.state.stage_step + 1;
    const last = stageStep === plan.steps;
    const { eval_steps: every, best } = plan.schedule;
    this.update({
      stage_step: stageStep,
      step: this.state.step + 1,
      tokens: this.state.tokens + outcome.tokens,
      skipped: this.state.skipped + (outcome.nonFinite ? 1 : 0),
      validation_due:
        stage.validate !== undefined && every > 0 && (last ? best !== undefined : stageStep % every === 0),
    });
    if (outcome.nonFinite) this.skip(outcome.nonFinite, progress);
    else this.skippedInARow = 0;
    const rate = outcome.tokens / ((performance.now() - began) / 1000);
    if (!outcome.nonFinite && (stageStep % this.options.loggingSteps === 0 || last)) {
      this.log(plan, {
        ...outcome.figures,
        tokens: this.state.tokens,
        skipped: this.state.skipped,
        tokens_per_second: rate,
        peak_bytes: this.options.device.stats().peakBytes,
      });
    }
    progress.update(stageStep, { ...outcome.shown, 'tokens/s': rate });
    return true;
  }

  private skip(culprit: string, progress: Progress): void {
    this.skippedInARow++;
    progress.note(`step ${this.state.step}: ${culprit} is not finite; step skipped`);
    if (this.skippedInARow < this.options.maxSkipped) return;
    throw new StepTrainError(
      'E_NONFINITE',
      `${this.skippedInARow} steps in a row were not finite, last in ${culprit}; ` +
        (this.lastGood === undefined
          ? 'there is no checkpoint yet'
          : `the checkpoint of step ${this.lastGood} is good`) +
        '; lower the learning rate or look at the data of these steps',
    );
  }

  private async validate(plan: StagePlan, stage: Stage, progress: Progress): Promise<boolean> {
    const figures = await stage.validate?.(this.options.signal);
    if (!figures) return false;
    this.update({ validation_due: false });
    this.log(plan, figures);
    const { best } = plan.schedule;
    const value = best === undefined ? undefined : figures[best];
    if (value !== undefined && value > (this.state.best?.value ?? Number.NEGATIVE_INFINITY)) {
      this.best = await stage.trains.values.readFloats();
      this.update({ best: { stage_step: this.state.stage_step, value } });
    }
    const shown = Object.entries(figures).map(([name, figure]) => `${name} ${figure.toFixed(4)}`);
    progress.note(`${plan.name} step ${this.state.stage_step}: validation ${shown.join('  ')}`);
    return true;
  }

  private log({ name }: StagePlan, figures: Readonly<Record<string, number>>): void {
    const { step, stage_step } = this.state;
    this.options.run.metrics.append({ step, phase: name, phase_step: stage_step, ...figures });
  }

  private async interrupted(stage: Stage | undefined): Promise<EngineResult> {
    const plan = this.stages[this.state.stage] as StagePlan;
    await this.save(stage, plan.schedule.save_total_limit);
    return this.result('interrupted');
  }

  private result(status: EngineResult['status']): EngineResult {
    const { stage, step, tokens } = this.state;
    return { status, stage, step, tokens };
  }

  private async save(stage: Stage | undefined, keep: number): Promise<void> {
    const own = stage?.state?.();
    this.update({
      updates: Object.fromEntries(
        Object.entries(stage?.optimizers ?? {}).map(([name, { steps }]) => [name, steps]),
      ),
      own,
    });
    if (this.savedAt === this.place) return;
    const { state, roles, best } = this;
    await this.options.run.saveCheckpoint(
      state.step,
      (folder) =>
        writeRunCheckpoint(folder, {
          roles,
          optimizers: stage?.optimizers ?? {},
          best: best && stage ? { parameters: stage.trains, values: best } : undefined,
          state,
        }),
      { keep },
    );
    this.savedAt = this.place;
    this.lastGood = state.step;
  }

  /** Changes whenever a checkpoint would hold something new. */
  private get place(): string {
    const { stage, step, validation_due } = this.state;
    return `${stage}/${step}/${validation_due}`;
  }

  private update(changes: Partial<RunState>): void {
    this.state = { ...this.state, ...changes };
  }
}
