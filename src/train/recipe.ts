/**
 * Runs a recipe of any method: opens device, data and roles, trains the stages, saves, evaluates, and disposes of
 * everything.
 */
import { resolve } from 'node:path';
import { openCarrier } from '../cluster/carriers.js';
import type { Cluster } from '../cluster/cluster.js';
import type { FrameConfig, MethodSchema } from '../config/schema.js';
import { quantizedSummary } from '../models/quantize.js';
import type { RunDirectory } from '../run/directory.js';
import { noteFinished } from '../run/finished.js';
import { readRunInputs } from '../run/inputs.js';
import { limitTime } from '../run/time-limit.js';
import type { Device } from '../runtime/device.js';
import { shareWork } from '../runtime/processes.js';
import { unverified } from '../runtime/unverified-gpu.js';
import { toLog } from '../terminal/log.js';
import { type RunState, readRunState } from './checkpoint.js';
import { runStages } from './engine.js';
import type { Method, OpenRun, RunData, RunRoles } from './method.js';
import { settleCheckpointing } from './plan/checkpointing.js';
import {
  availableMemory,
  type MemoryPlan,
  memoryPlan,
  microBatchKey,
  settleCache,
  settleMicroBatch,
} from './plan/memory-plan.js';
import { emptyParts, reportData } from './plan/notes.js';
import { besideOthers, withOthers } from './plan/other-programs.js';
import { planLine } from './plan/plan-line.js';
import type { Prepared } from './plan/prepared.js';
import { withRows } from './plan/sampling-plan.js';
import { type Agreement, agreeing } from './processes/agreement.js';
import { type RankMeter, rankMeter } from './processes/by-rank.js';
import { leastOfAll, openShare, sameKernels, sameParameters, sharers } from './processes/cluster-device.js';
import {
  holdersOf,
  refuseSampling,
  refuseTrained,
  refuseWhole,
  releasesGradients,
} from './processes/shared-base.js';
import type { EndedRun } from './result.js';
import { writeHeldMemory } from './roles/held-memory.js';
import { SharedStages } from './shared-stages.js';
import type { StepEvent } from './step-event.js';
import { dataParallel, divideBatches } from './sums/data-parallel.js';
import { keepStop } from './verdicts/kept-judge.js';

export interface RunOptions<Config extends FrameConfig> {
  readonly method: Method<Config> & Pick<MethodSchema<Config>, 'sections'>;
  readonly prepared: Prepared<Config>;
  readonly run: RunDirectory;
  readonly signal: AbortSignal;
  readonly resume: boolean;
  readonly onStep?: ((event: StepEvent) => unknown) | undefined;
  /** The processes of the job; absent where this one is alone. */
  readonly cluster?: Cluster | undefined;
  /** Folder from which stages that another run has trained are taken, and where this run leaves its own. */
  readonly shareStages?: string | undefined;
}

export async function runMethod<Config extends FrameConfig>(options: RunOptions<Config>): Promise<EndedRun> {
  const { signal, cluster, prepared } = options;
  const { config } = prepared;
  const device = await openShare(config, cluster);
  const time = limitTime(signal, config.run.max_minutes);
  try {
    const doubt = unverified(device.info());
    if (doubt !== undefined) toLog(doubt);
    await sameKernels(device, cluster);
    const { collectives: wanted, shards, zero, overlap } = config.run;
    const carrier = cluster && (await openCarrier(cluster, { wanted, device: device.info().name }));
    const holders = holdersOf(config, cluster, carrier);
    const releases = zero === 2 && releasesGradients(config, cluster);
    divideBatches(device, { shards: Math.max(1, shards), cluster, carrier, overlap, zero, holders });
    const agreement = agreeing(cluster, time);
    const ranks = cluster && rankMeter(cluster);
    if (cluster && ranks)
      shareWork(device, {
        cluster,
        settle: agreement.settle,
        add: ranks.add,
        lockstep: config.run.shard_base,
        releases,
      });
    const result = await runOn(device, options, agreement, ranks).catch((error) => {
      // Nothing may wait in it while the device is disposed of.
      carrier?.cancel();
      // The loss of a process made the pending op fail.
      throw cluster?.lost.aborted ? cluster.lost.reason : error;
    });
    // Layers gathered ahead may still be on their way: releasing one has queued a wait for it.
    if (carrier) await device.synchronize();
    await carrier?.close();
    return result.status === 'interrupted' && agreement.expired ? { ...result, outOfTime: true } : result;
  } finally {
    time.dispose();
    device.dispose();
  }
}

async function runOn<Config extends FrameConfig>(
  device: Device,
  { method, prepared, run, resume, onStep, shareStages, cluster }: RunOptions<Config>,
  agreement: Agreement,
  ranks: RankMeter | undefined,
): Promise<EndedRun> {
  const { signal } = agreement;
  const begun = resume ? await continuation(run) : undefined;
  const batching = begun?.batching ?? {};
  const tokenizer = await prepared.tokenizer();
  const sections = method.sections(prepared.config);
  const many = sharers(device, cluster);
  const planOf = (config: Config, shape = prepared.shape) =>
    memoryPlan(device, config, method.memory(config, device), shape, {
      sampled: withRows(method.sampling?.(config, tokenizer), device),
      processes: cluster?.size,
    });
  const availableTo = (plan: MemoryPlan) =>
    availableMemory(plan, device, prepared.config.run.memory_fraction, many);
  const config = settleCheckpointing(prepared.config, cluster?.size ?? 1, { sections, planOf, availableTo });
  let data: RunData | undefined;
  let roles: RunRoles | undefined;
  try {
    data = await method.data(config, tokenizer, signal);
    if (!data) {
      const { step = 0, stage = 0, tokens = 0, unchanged = [] } = begun ?? {};
      return { status: 'interrupted', step, stage, tokens, unchanged };
    }
    reportData(data, { resumed: begun !== undefined });
    const context = { config, device, tokenizer, run };
    const { holders } = dataParallel(device) ?? {};
    refuseTrained(holders !== undefined, config);
    refuseSampling(holders !== undefined, method.sampling?.(config, tokenizer) !== undefined);
    roles = await method.roles(context).catch((error: unknown) => {
      throw withOthers(error, device, config.run.memory_fraction);
    });
    const { decoder, held, parameters } = roles;
    refuseWhole(holders, decoder);
    const { formats } = decoder.options;
    if (formats) toLog(quantizedSummary(formats));
    const plan = planOf(config, decoder.config);
    // Micro-batches are settled before the first step: the free memory changes during the run, but they must not.
    const microBatches = Object.entries(sections).map(([name, section]) => {
      const own = { device, config, saved: batching, sharers: many };
      const tokens = settleMicroBatch(plan, name, section, own);
      return [microBatchKey(name), tokens] as const;
    });
    const settled = await leastOfAll(cluster, Object.fromEntries(microBatches));
    const available = { bytes: availableTo(plan) };
    const { bytes: usable } = await leastOfAll(cluster, available);
    const cacheBytes = besideOthers(device, config.run.memory_fraction, () =>
      settleCache(plan, usable as number),
    );
    if (!cluster || cluster.rank === 0)
      toLog(planLine(plan, device, { usable: usable as number, microBatches: settled, cacheBytes }));
    const open: OpenRun<Config, RunData, RunRoles> = {
      ...context,
      data,
      roles,
      cacheBytes,
      microBatchTokens(name) {
        const tokens = settled[microBatchKey(name)];
        if (tokens === undefined) throw new RangeError(`this configuration has no stage for section ${name}`);
        return tokens;
      },
    };
    const stages = method.stages(open);
    const microBatchTokens = Math.max(...Object.values(settled));
    await writeHeldMemory(run, device, { plan, held, cacheBytes, microBatchTokens });
    const { train, validation, test } = data.summary.parts;
    const validates = validation.solutions > 0 || train.solutions === 0;
    if (train.solutions > 0)
      for (const line of emptyParts({ validation: validation.solutions, test: test.solutions })) toLog(line);
    const shared =
      shareStages === undefined
        ? undefined
        : new SharedStages({
            folder: resolve(shareStages),
            stages: method.shared?.(config) ?? [],
            inputs: await readRunInputs(config),
            isa: device.info().isa,
            names: stages.map(({ name }) => name),
            batching: settled,
          });
    const taken = resume ? undefined : await shared?.take(run);
    if (taken !== undefined) toLog(`${taken}: taken from ${shareStages}, where another run left it`);
    const result = await runStages(stages, parameters, {
      device,
      validates,
      run,
      signal,
      settle: agreement.settle,
      ranks,
      compare: cluster && ((all) => sameParameters(all, cluster)),
      resume: resume || taken !== undefined,
      onStageEnd: (stage) => shared?.leave(run, stage) ?? Promise.resolve(),
      loggingSteps: config.run.logging_steps,
      maxSkipped: config.run.max_skipped_steps,
      maxTokens: config.run.max_tokens,
      batching: settled,
      onStep,
    });
    const isFirst = !cluster || cluster.rank === 0;
    if (isFirst && result.status === 'finished')
      for (const line of budgetLines(config.run, result)) toLog(line);
    const byRank = ranks?.summary();
    if (isFirst && byRank) toLog(byRank);
    if (isFirst && (result.status === 'finished' || agreement.expired)) {
      const reached = stages.slice(0, result.stage + 1).map(({ name }) => name);
      await method.save(open, reached);
    }
    if (result.status === 'interrupted') {
      if (isFirst && agreement.expired) await keepStop(run, result, stages.length);
      return result;
    }
    if (config.data.test === undefined && config.data.split[2] === 0) {
      toLog('data.split leaves no rows for a final evaluation, and data.test is not given: there is none');
      run.metrics.append({ step: result.step, phase: 'test' });
      await noteFinished(run);
      return result;
    }
    const evaluation = await method.evaluate(open, result, signal);
    if (!evaluation) return { ...result, status: 'interrupted' };
    const { metrics, report, solved, summary } = evaluation;
    run.metrics.append({ step: result.step, phase: 'test', ...metrics });
    if (summary) toLog(summary);
    if (report ?? solved) await run.writeJson('eval.json', report ?? solved);
    await noteFinished(run);
    return { ...result, ...(report ? { evaluation: report } : {}), ...(solved ? { solved } : {}) };
  } finally {
    try {
      roles?.dispose();
    } finally {
      data?.close();
    }
  }
}

/** Says what came of `run.max_tokens`. */
function budgetLines(
  { max_tokens: most }: FrameConfig['run'],
  { tokens }: Pick<EndedRun, 'tokens'>,
): string[] {
  if (most === 0) return [];
  const ended = tokens < most ? ': its stages have ended before' : '';
  return [`trained on ${tokens} tokens of run.max_tokens ${most}${ended}`];
}

/** The state that a resumed run goes on from, said aloud; undefined where nothing was saved. */
async function continuation(run: RunDirectory): Promise<RunState | undefined> {
  const found = await run.findCheckpoint();
  if (!found) {
    toLog('no checkpoint was written yet: the run begins again at step 1');
    return undefined;
  }
  for (const { step, reason } of found.damaged)
    toLog(`the checkpoint of step ${step} is damaged (${reason}) and is passed over`, 'warning');
  const state = await readRunState(found.checkpoint.path);
  const stage = state.stages[state.stage];
  toLog(
    `from the checkpoint of step ${state.step}: ${stage === undefined ? 'all stages are done' : `${stage} step ${state.stage_step}`}`,
  );
  return state;
}
