/**
 * Takes a run through its stages: logging, evaluation, best parameters, checkpoints,
 * non-finite steps, and a stop that loses nothing.
 */
import { ending } from '../native/ending.js';
import { invalid, StepTrainError } from '../native/errors.js';
import { sealArtefact } from '../run/artefact.js';
import type { RunDirectory } from '../run/directory.js';
import type { Device } from '../runtime/device.js';
import { toLog, warn } from '../terminal/log.js';
import { createProgress, type Progress } from '../terminal/progress.js';
import {
  type CheckpointContent,
  checkArtefacts,
  checkContinuation,
  FORMAT,
  joinBatching,
  type RoleParameters,
  type RunState,
  readBest,
  readRunState,
  restoreOptimizers,
  restoreRoles,
  writeRunCheckpoint,
} from './checkpoint.js';
import { fewSteps } from './plan/few-steps.js';
import type { RankMeter } from './processes/by-rank.js';
import {
  evaluationInterval,
  keepsBest,
  type MakingStage,
  type Metrics,
  type OpenMaking,
  type OpenTraining,
  type Stage,
  type StageEntry,
  type StepPart,
  type TrainingStage,
} from './stage.js';
import type { StepEvent } from './step-event.js';
import { TokenRate } from './token-rate.js';

export interface EngineOptions {
  readonly device: Device;
  readonly run: RunDirectory;
  readonly signal: AbortSignal;
  /** Called before the signal is read: the processes of a job stop after the same step. */
  readonly settle?: (() => Promise<void>) | undefined;
  /** Called before a checkpoint: throws where the processes of a job have come apart. */
  readonly compare?: ((roles: RoleParameters) => Promise<void>) | undefined;
  /** Meter of a job's processes, logged with each line of training. */
  readonly ranks?: Pick<RankMeter, 'lap' | 'shown'> | undefined;
  readonly resume: boolean;
  readonly loggingSteps: number;
  /** Max consecutive non-finite steps before the run stops. */
  readonly maxSkipped: number;
  /** Trained tokens after which no stage does another optimizer step; 0 or absent: no limit. */
  readonly maxTokens?: number;
  /** false: there is nothing to validate on, so that no stage selects. Default true. */
  readonly validates?: boolean;
  /** Batching that applies in addition to the stages' own `batching`. */
  readonly batching?: RunState['batching'];
  /** Called after every step and validation; an error that it throws ends the run. */
  readonly onStep?: ((event: StepEvent) => unknown) | undefined;
  /** Called when a stage has ended and the checkpoint with its result is written. */
  readonly onStageEnd?: ((stage: string) => Promise<void>) | undefined;
}

export interface EngineResult {
  readonly status: 'finished' | 'interrupted';
  /** Index of the current stage; the number of stages once all are done. */
  readonly stage: number;
  /** Over all stages. */
  readonly step: number;
  readonly tokens: number;
  /** Stages that ended with the parameters they began with, as no evaluation was better. */
  readonly unchanged: readonly string[];
}

export async function runStages(
  stages: readonly StageEntry[],
  roles: RoleParameters,
  options: EngineOptions,
): Promise<EngineResult> {
  return new Engine(stages, roles, options).run();
}

/** A stage and what its `open` gave. */
type Work =
  | { readonly stage: TrainingStage; readonly training: OpenTraining }
  | { readonly stage: MakingStage; readonly making: OpenMaking };

class Engine {
  private state: RunState;
  private best: Float32Array | undefined;
  private savedAt = '';
  private lastGood: number | undefined;
  private skippedInARow = 0;
  private rate = new TokenRate();

  constructor(
    private readonly stages: readonly StageEntry[],
    private readonly roles: RoleParameters,
    private readonly options: EngineOptions,
  ) {
    const known = stages.filter((stage) => 'open' in stage);
    const names = stages.map(({ name }) => name);
    refuseTwice('stage', names);
    refuseTwice(
      'artefact',
      known.flatMap((stage) => ('artefact' in stage ? [stage.artefact] : [])),
    );
    this.state = {
      format: FORMAT,
      stages: names,
      stage: 0,
      stage_step: 0,
      done: [],
      step: 0,
      skipped: 0,
      tokens: 0,
      validation_due: false,
      updates: {},
      artefacts: {},
      isa: options.device.info().isa,
      batching: Object.assign({}, options.batching, ...known.map(({ batching }) => batching)),
    };
  }

  private get validates(): boolean {
    return this.options.validates ?? true;
  }

  async run(): Promise<EngineResult> {
    const { run, resume } = this.options;
    const checkpoint = resume ? (await run.findCheckpoint())?.checkpoint : undefined;
    run.rewind(checkpoint);
    if (checkpoint) {
      const state = await readRunState(checkpoint.path);
      const planned = this.stages.map((stage) => ('open' in stage ? stage.steps : undefined));
      checkContinuation(checkpoint.path, state, this.state, planned);
      await checkArtefacts(run, state);
      restoreRoles(checkpoint.path, this.roles);
      this.state = { ...state, batching: { ...state.batching, ...this.state.batching } };
      this.lastGood = state.step;
      this.savedAt = this.place;
    }
    let folder = checkpoint?.path;
    while (this.state.stage < this.stages.length) {
      if (await this.stops()) return this.interrupted(undefined);
      const stage = await this.prepared(this.stages[this.state.stage] as StageEntry);
      this.options.device.resetPeak();
      await this.options.run.writeJson('progress.json', {
        stages: this.state.stages,
        stage: this.state.stage,
        steps: stage.steps,
      });
      const work = openStage(stage);
      const open = 'training' in work ? work.training : work.making;
      try {
        if (folder && this.state.stage_step > 0) this.restore(work, folder);
        else await this.begin(work, folder);
        folder = undefined;
        if (!(await this.runStage(work))) return await this.interrupted(work);
        if ('training' in work) {
          this.keepBest(work.stage, work.training);
          await work.training.end?.();
        }
      } finally {
        open.dispose();
      }
      if ('artefact' in stage) await this.seal(stage);
      this.best = undefined;
      this.update({
        stage: this.state.stage + 1,
        done: [...this.state.done, stage.steps],
        stage_step: 0,
        best: undefined,
        waited: undefined,
        updates: {},
        own: undefined,
      });
      await this.save(undefined, stage.settings.save_total_limit);
      this.options.run.draws.clear();
      await this.options.onStageEnd?.(stage.name);
    }
    return this.result('finished');
  }

  private async stops(): Promise<boolean> {
    await this.options.settle?.();
    return this.options.signal.aborted;
  }

  /** Stopped before its first step, a stage begins again, but keeps the evaluation of its start. */
  private async begin(work: Work, folder: string | undefined): Promise<void> {
    const { stage } = work;
    if ('artefact' in stage) this.options.run.artefact(stage.artefact).cutTo(0);
    if ('making' in work) return work.making.begin();
    const { training } = work;
    // The first step of a warm-up is at rate 0, as in transformers' schedules.
    if (work.stage.steps === 1 && (work.stage.settings.warmup_ratio ?? 0) > 0)
      warn(
        `${stage.name} has a single step, and it is the warm-up's first, whose learning rate is 0: nothing is learned; ` +
          'set the warmup_ratio of its section to 0, or train longer',
      );
    const few = fewSteps(work.stage);
    if (few) toLog(few);
    await training.begin();
    await training.warn?.();
    if (folder && this.state.best) this.best = readBest(folder, training.trains);
    else this.update({ validation_due: this.validates && selects(work.stage, training) });
  }

  /** The stage ends with its best parameters, which may be those it began with. */
  private keepBest(stage: TrainingStage, training: OpenTraining): void {
    const { best } = this.state;
    if (this.validates && selects(stage, training) && !best)
      toLog(
        `${stage.name}: kept the parameters of step ${this.state.stage_step}, the last one: ${stage.settings.best} cannot be told on validation, ` +
          'so that nothing was selected by it',
      );
    if (!this.best || !best) return;
    training.trains.write(this.best);
    if (best.stage_step === 0 && this.state.stage_step > 0)
      this.update({ unchanged: [...(this.state.unchanged ?? []), stage.name] });
    this.log(stage, { best_step: best.stage_step, [`best_${stage.settings.best}`]: best.value });
    // The AUC, where there is one, decides between equal evaluations.
    const tied =
      best.tie !== undefined && best.tie >= 0 && stage.settings.best !== 'auc'
        ? `, auc ${best.tie.toFixed(4)}`
        : '';
    toLog(
      `${stage.name}: kept the parameters of step ${best.stage_step} of ${this.state.stage_step}, the best on validation ` +
        `(${stage.settings.best} ${best.value.toFixed(4)}${tied}${best.stage_step === 0 ? ', with which the stage began' : ''})`,
    );
  }

  private async prepared(entry: StageEntry): Promise<Stage> {
    if ('open' in entry) return entry;
    const stage = await entry.prepare(this.options.signal);
    if ('artefact' in stage && stage.artefact in this.state.artefacts)
      refuseTwice('artefact', [stage.artefact, stage.artefact]);
    this.update({ batching: joinBatching(this.options.run.path, this.state.batching, stage.batching) });
    return stage;
  }

  private restore(work: Work, folder: string): void {
    if ('training' in work) {
      restoreOptimizers(folder, work.training.optimizers, this.state);
      if (this.state.best && keepsBest(work.stage.settings))
        this.best = readBest(folder, work.training.trains);
      work.training.restore?.(this.state.own);
    } else work.making.restore?.(this.state.own);
  }

  /** False where the signal stopped it. */
  private async runStage(work: Work): Promise<boolean> {
    const { name, steps, settings } = work.stage;
    using progress = ending(
      createProgress({ total: steps, start: this.state.stage_step, unit: `${name} step` }),
    );
    this.rate = new TokenRate();

    for (;;) {
      if (this.state.validation_due && 'training' in work) {
        if (!(await this.validate(work.stage, work.training, progress))) return false;
      }
      if (this.state.stage_step >= steps || this.isExhausted(work, progress)) return true;
      const { step, stage_step } = this.state;
      if (settings.save_steps > 0 && stage_step > 0 && step % settings.save_steps === 0) {
        await this.save(work, settings.save_total_limit);
        // The checkpoint contains the draws of the steps before it.
        this.options.run.draws.clear();
      }
      if ((await this.stops()) || !(await this.step(work, progress))) return false;
    }
  }

  /** Whether `tokens` of training are as many as the run may have. */
  private isSpent(tokens: number): boolean {
    const { maxTokens = 0 } = this.options;
    return maxTokens > 0 && tokens >= maxTokens;
  }

  private isExhausted({ stage }: Work, progress: Progress): boolean {
    if (!('artefact' in stage) && this.isSpent(this.state.tokens)) {
      progress.note(
        `${stage.name} step ${this.state.stage_step}: run.max_tokens is reached; the stage ends here`,
      );
      return true;
    }
    const patience = 'patience' in stage.settings ? stage.settings.patience : 0;
    const { waited = 0, stage_step } = this.state;
    if (!patience || waited < patience) return false;
    progress.note(
      `${stage.name} step ${stage_step}: ${waited} evaluations without a better one; the stage ends here`,
    );
    return true;
  }

  private async step(work: Work, progress: Progress): Promise<boolean> {
    const began = performance.now();
    const index = this.state.stage_step;
    const { signal } = this.options;
    const report = (part: StepPart) => progress.part(part);
    const outcome = await ('training' in work ? work.training : work.making).step(index, signal, report);
    if (!outcome) return false;
    const { stage } = work;
    const stageStep = index + 1;
    const tokens = this.state.tokens + ('training' in work ? outcome.tokens : 0);
    const last = stageStep === stage.steps || ('training' in work && this.isSpent(tokens));
    const nonFinite = 'rows' in outcome ? undefined : outcome.nonFinite;
    if ('rows' in outcome && 'artefact' in stage)
      for (const row of outcome.rows) this.options.run.artefact(stage.artefact).append(row);
    this.update({
      stage_step: stageStep,
      step: this.state.step + 1,
      tokens,
      skipped: this.state.skipped + (nonFinite ? 1 : 0),
      validation_due:
        this.validates &&
        'training' in work &&
        work.training.validate !== undefined &&
        (last || isValidationDue(work.stage, stageStep)),
    });
    if (nonFinite) this.skip(nonFinite, progress);
    else this.skippedInARow = 0;
    this.rate.add(outcome.tokens, (performance.now() - began) / 1000);
    const rate = this.rate.perSecond;
    if (!nonFinite && (stageStep % logInterval(stage, this.options.loggingSteps) === 0 || last)) {
      this.log(stage, {
        ...outcome.metrics,
        tokens: this.state.tokens,
        skipped: this.state.skipped,
        tokens_per_second: rate,
        peak_bytes: this.options.device.stats().peakBytes,
        ...(await this.options.ranks?.lap()),
      });
    }
    progress.update(stageStep, { ...outcome.shown, 'tokens/s': rate, ...this.options.ranks?.shown });
    if (last && 'artefact' in stage && stage.note) progress.note(`${stage.name}: ${stage.note}`);
    await this.tell('step', stage, outcome.metrics, nonFinite);
    return true;
  }

  private async seal({ artefact, name }: MakingStage): Promise<void> {
    const sealed = await sealArtefact(this.options.run.artefact(artefact));
    this.update({ artefacts: { ...this.state.artefacts, [artefact]: sealed } });
    const { step, stage_step } = this.state;
    this.options.run.metrics.append({ step, phase: name, phase_step: stage_step, rows: sealed.rows });
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

  private async validate(stage: TrainingStage, open: OpenTraining, progress: Progress): Promise<boolean> {
    const metrics = await open.validate?.(this.options.signal, this.state.stage_step);
    if (!metrics) return false;
    this.update({ validation_due: false });
    this.log(stage, metrics);
    await this.tell('validation', stage, metrics);
    const { best } = stage.settings;
    const value = best === undefined ? undefined : metrics[best];
    const tie = metrics.auc ?? (metrics.loss === undefined ? undefined : -metrics.loss);
    // An evaluation that measured nothing is no worse either.
    if (value !== undefined && isBetter({ value, tie }, this.state.best)) {
      if (keepsBest(stage.settings)) this.best = await open.trains.values.readFloats();
      this.update({ best: { stage_step: this.state.stage_step, value, tie }, waited: 0 });
    } else if (value !== undefined) this.update({ waited: (this.state.waited ?? 0) + 1 });
    const shown = Object.entries(metrics).map(([name, metric]) => `${name} ${metric.toFixed(4)}`);
    progress.note(`${stage.name} step ${this.state.stage_step}: validation ${shown.join('  ')}`);
    return true;
  }

  private log({ name }: Stage, metrics: Metrics): void {
    const { step, stage_step } = this.state;
    this.options.run.metrics.append({ step, phase: name, phase_step: stage_step, ...metrics });
  }

  private async tell(
    kind: StepEvent['kind'],
    { name, steps }: Stage,
    metrics: Metrics,
    nonFinite?: string,
  ): Promise<void> {
    const { stage_step: stageStep, step, tokens } = this.state;
    const stage = { stage: name, stageStep, stageSteps: steps };
    await this.options.onStep?.({ kind, ...stage, step, tokens, metrics, nonFinite });
  }

  private async interrupted(work: Work | undefined): Promise<EngineResult> {
    const entry = work?.stage ?? (this.stages[this.state.stage] as StageEntry);
    await this.save(work, 'open' in entry ? entry.settings.save_total_limit : Number.POSITIVE_INFINITY);
    const { size } = this.options.run.draws;
    if (size > 0) toLog(`${entry.name}: ${size} samples of the step under way are kept`);
    return this.result('interrupted');
  }

  private result(status: EngineResult['status']): EngineResult {
    const { stage, step, tokens, unchanged = [] } = this.state;
    return { status, stage, step, tokens, unchanged };
  }

  private async save(work: Work | undefined, keep: number): Promise<void> {
    const training = work && 'training' in work ? work.training : undefined;
    const open = work && 'making' in work ? work.making : training;
    const optimizers = training?.optimizers ?? {};
    this.update({
      updates: Object.fromEntries(Object.entries(optimizers).map(([name, { steps }]) => [name, steps])),
      own: open?.state?.(),
    });
    if (this.savedAt === this.place) return;
    const { state, roles, best } = this;
    await this.options.compare?.(roles);
    // All processes take part, since each may hold a slice; only one writes afterwards.
    const moments: Record<string, CheckpointContent['optimizers'][string]> = {};
    for (const [name, optimizer] of Object.entries(optimizers)) {
      const { parameters } = optimizer;
      const found = await optimizer.moments();
      if (found) moments[name] = { parameters, ...found };
    }
    await this.options.run.saveCheckpoint(
      state.step,
      (folder) =>
        writeRunCheckpoint(folder, {
          roles,
          optimizers: moments,
          best: best && training ? { parameters: training.trains, values: best } : undefined,
          state,
        }),
      { keep },
    );
    this.savedAt = this.place;
    this.lastGood = state.step;
  }

  /** Changes whenever a checkpoint would differ from the previous one. */
  private get place(): string {
    const { stage, step, validation_due } = this.state;
    return `${stage}/${step}/${validation_due}`;
  }

  private update(changes: Partial<RunState>): void {
    this.state = { ...this.state, ...changes };
  }
}

/** Names tell the lines of metrics, the moments in a checkpoint and the rows of artefacts apart. */
function refuseTwice(what: string, names: readonly string[]): void {
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) {
    throw invalid(`two stages of a run share the ${what} name ${twice}; number them`);
  }
}

function openStage(stage: Stage): Work {
  return 'artefact' in stage ? { stage, making: stage.open() } : { stage, training: stage.open() };
}

/** Whether an evaluation is better than the best so far. Between equal ones the tie decides, else the earlier stays. */
function isBetter({ value, tie }: Score, best: Score | undefined): boolean {
  if (!best || value !== best.value) return value > (best?.value ?? Number.NEGATIVE_INFINITY);
  return tie !== undefined && best.tie !== undefined && tie > best.tie;
}

type Score = Pick<NonNullable<RunState['best']>, 'value' | 'tie'>;

/** A stage of few steps logs about ten lines at least, so that its curves can be seen. */
function logInterval({ steps }: Stage, loggingSteps: number): number {
  return Math.min(loggingSteps, Math.max(1, Math.floor(steps / 10)));
}

function selects({ settings }: TrainingStage, open: OpenTraining): boolean {
  return open.validate !== undefined && keepsBest(settings);
}

/** Every `eval_steps` steps; besides at the end and, where the stage selects, before its first step. */
function isValidationDue(stage: TrainingStage, step: number): boolean {
  const every = evaluationInterval(stage);
  return every !== undefined && step % every === 0;
}
