/** `steptrain run --dry-run`: the plan of a run, without loading a weight. */
import { countParameters, readModelConfig } from '../../architectures/table.js';
import type { FrameConfig, MethodSchema } from '../../config/schema.js';
import { mixtureLines } from '../../data/summary.js';
import { DataError } from '../../files/data-error.js';
import { baseDirectory } from '../../models/base.js';
import { openDecoderWeights } from '../../models/load.js';
import { ending } from '../../native/ending.js';
import { StepTrainError } from '../../native/errors.js';
import { chosenDevice } from '../../runtime/chosen-device.js';
import { openDevice } from '../../runtime/device.js';
import { usableMemory } from '../../runtime/memory.js';
import { toLog } from '../../terminal/log.js';
import type { Method } from '../method.js';
import { refuseSampling, refuseTrained } from '../processes/shared-base.js';
import { checkAdapter } from './adapter-start.js';
import { settleCheckpointing } from './checkpointing.js';
import { countData, formatCounts } from './counted-data.js';
import { busyMachine, formatMeasuredTime, measuredRun } from './measured-time.js';
import {
  availableMemory,
  fastestMicroBatch,
  fitMicroBatch,
  formatMemoryPlan,
  type MemoryPlan,
  memoryPlan,
  settleCache,
} from './memory-plan.js';
import { emptyParts } from './notes.js';
import { besideOthers } from './other-programs.js';
import {
  formatLeastTime,
  formatPlannedWork,
  type PlannedRun,
  type PlannedWork,
  plannedWork,
  productRate,
  trainingOperations,
} from './planned-work.js';
import { type Prepared, prepare } from './prepared.js';
import { type PlannedSampling, withRows } from './sampling-plan.js';

/** Milliseconds of steps that are measured of each stage, where nothing else is said. */
const MEASURED_MS = 1000;

/** Parameters of a base that is loaded to measure time, and operations that one step may take: some seconds on a laptop. */
const [MAX_PARAMETERS, MAX_OPERATIONS] = [1e9, 5e11];

export interface DryRunOptions {
  /** Check that the base has all its weights; false where they are on the hub, and not downloaded for this. Default: only in a plan for this machine. */
  readonly weights?: boolean;
  /** Take a few steps, to measure their time; loads the models of the run, reward models too. Default false. */
  readonly measure?: boolean;
  /** Milliseconds of steps that are measured of each stage. Default 1000. */
  readonly measuredMs?: number | undefined;
  /** Bytes of the device that the run is meant for. Default: the free memory of this machine's. */
  readonly planFor?: number | undefined;
  /** Processes of the job that it is meant for, with such a device each. Default 1. */
  readonly processes?: number | undefined;
  /** Called with all but the time, which may take a minute to measure. */
  readonly onPlan?: ((plan: Omit<RunDescription, 'time'>) => void) | undefined;
}

export interface RunDescription {
  readonly lines: readonly string[];
  /** Further lines; none in a plan for another machine, and where nothing tells the time. */
  readonly time: readonly string[];
  /** Reason why the run would fail, where the rest of the plan is still known. */
  readonly failure?: string;
}

/** Data counts, memory by role, steps and time; throws the errors that the run itself would throw. */
export async function describeRun<Config extends FrameConfig>(
  method: Method<Config> & Pick<MethodSchema<Config>, 'sections' | 'otherHead'>,
  given: Config,
  {
    planFor,
    processes = 1,
    weights = planFor === undefined,
    measure = false,
    measuredMs = MEASURED_MS,
    onPlan,
  }: DryRunOptions = {},
): Promise<RunDescription> {
  const divides = given.run.shard_base && processes > 1;
  refuseTrained(divides, given);
  await refuseUnusable(given, weights);
  const prepared = await prepare(given, method);
  await refuseWords(method, prepared);
  const { shape } = prepared;
  const { threads, device: wanted } = prepared.config.run;
  const own = planFor === undefined && threads > 0 ? { threads } : {};
  const { memory_fraction: fraction } = prepared.config.run;
  using device = openDevice(chosenDevice(wanted), { ...own, memoryFraction: fraction });
  const { counts, reports, warnings, tokenised, failure: uncounted } = await countData(method, prepared);
  using _data = tokenised && ending(tokenised.data);
  const { train, validation, test } = counts;
  const lines = ['data:', ...formatCounts(counts), ...mixtureLines(reports)];
  lines.push(...warnings.map((warning) => `Warning: ${warning}`));
  if (train.solutions > 0)
    lines.push(...emptyParts({ validation: validation.solutions, test: test.solutions }));
  const { name, memoryFree, memoryTotal } = device.info();
  const sampled = await plannedSampling(method, prepared);
  const samples = sampled.plan !== undefined || sampled.unknown !== undefined;
  refuseSampling(divides, samples);
  const planOf = (config: Config) =>
    memoryPlan(device, config, method.memory(config, device), shape, {
      sampled: withRows(sampled.plan, device),
      processes,
    });
  const availableTo = (plan: MemoryPlan) =>
    planFor === undefined
      ? availableMemory(plan, device, fraction)
      : usableMemory({ total: planFor, free: planFor }, fraction);
  const sections = method.sections(prepared.config);
  const config = settleCheckpointing(prepared.config, processes, { sections, planOf, availableTo });
  const plan = planOf(config);
  const available = availableTo(plan);
  const gib = (bytes: number) => (bytes / 2 ** 30).toFixed(1);
  const most = `at most ${gib(available)} are planned, run.memory_fraction ${fraction}`;
  lines.push(
    planFor === undefined
      ? `memory on ${name} (${gib(memoryFree)} of ${gib(memoryTotal)} GiB free; ${most}):`
      : `memory, planned for ${processes > 1 ? `each of ${processes} processes with ` : ''}${gib(planFor)} GiB (${most}):`,
  );
  const refusals: string[] = [];
  // Reported, not thrown: the plan for a server is often printed on another machine.
  const orRefused = <T>(settle: () => T): T | undefined => {
    try {
      return settle();
    } catch (error) {
      if (!(error instanceof StepTrainError)) throw error;
      refusals.push(error.message);
      return undefined;
    }
  };
  const fits = <T>(settle: () => T): T =>
    planFor === undefined ? besideOthers(device, fraction, settle) : settle();
  const { max_length: longest } = config.data;
  const fastest = planFor === undefined ? fastestMicroBatch(device, plan.width) : undefined;
  const sizes = Object.entries(sections).map(([section, settings]) => {
    const tokens = orRefused(() => fits(() => fitMicroBatch(plan, available, longest, settings, fastest)));
    return [section, tokens ?? longest] as const;
  });
  const cacheBytes = orRefused(() => fits(() => settleCache(plan, available)));
  lines.push(...formatMemoryPlan(plan, Math.max(...sizes.map(([, tokens]) => tokens)), cacheBytes));
  if (sampled.unknown) lines.push(`  pages of sampled answers are not in it: ${sampled.unknown}`);
  const refusal = refusals.at(-1);
  if (processes > 1 && config.run.zero === 0 && plan.items.some(({ what }) => what.includes('AdamW')))
    lines.push(`  run.zero: 1 would divide the AdamW moments by ${processes}`);
  const divisible = !samples && !config.run.shard_base && 'lora' in config && config.lora !== 'none';
  if (processes > 1 && refusal && divisible)
    lines.push(`  run.shard_base: true would divide the layers of the base by ${processes}`);
  if (refusal) lines.push(`it does not fit${planFor === undefined ? ' here' : ''}: ${refusal}`);
  else
    lines.push(
      `micro-batches: ${sizes.map(([section, tokens]) => `${section} ${tokens} tokens`).join(', ')}`,
    );
  const failing = refusal === undefined ? {} : { failure: refusal };
  let time: () => Promise<readonly string[]> = async () => [];
  if (tokenised) {
    const microBatchTokens = (section: string) => Object.fromEntries(sizes)[section] ?? longest;
    const planned = { method, config, shape, device, cacheBytes, ...tokenised, microBatchTokens };
    const work = plannedWork(planned);
    lines.push(...(tokenised.data.summary.notes ?? []), ...formatPlannedWork(work));
    // A new model has no weights to look for.
    const measured = measure && (weights || typeof config.model.base !== 'string');
    if (planFor === undefined && refusal === undefined)
      time = () => timeOf(planned, work, measured ? measuredMs : undefined);
  } else
    lines.push(
      uncounted ??
        `steps: not counted of ${train.solutions} solutions; the run tells them once it has tokenised them`,
    );
  // A plan for another machine is printed also where the tokenizer is not.
  const lacking = planFor === undefined && uncounted !== undefined ? { failure: uncounted } : {};
  const description = { lines, ...lacking, ...failing };
  onPlan?.(description);
  return { ...description, time: await time() };
}

/** Throws errors that the run would throw later, on its adapter and on weights of the base. */
async function refuseUnusable(config: FrameConfig, weights: boolean): Promise<void> {
  await checkAdapter(config);
  const { base } = config.model;
  if (weights && typeof base === 'string') {
    const directory = baseDirectory(base);
    openDecoderWeights(directory, readModelConfig(directory)).close();
  }
}

/** Throws errors that the run would throw later, on words of the prompt. */
async function refuseWords<Config extends FrameConfig>(
  method: Pick<Method<Config>, 'preview'>,
  { config, tokenizer }: Prepared<Config>,
): Promise<void> {
  try {
    method.preview(config, await tokenizer());
  } catch (error) {
    // A plan for a server is printed also where the tokenizer is not.
    if (!(error instanceof DataError && error.kind === 'tokenizer')) throw error;
  }
}

interface TimedRun<Config extends FrameConfig> extends PlannedRun<Config> {
  readonly method: Method<Config> & Pick<MethodSchema<Config>, 'sections'>;
  readonly cacheBytes: number | undefined;
}

/** Time on this machine: from steps of `measuredMs`, which load reward models too, else from its rate of products. */
async function timeOf<Config extends FrameConfig>(
  planned: TimedRun<Config>,
  work: PlannedWork,
  measuredMs: number | undefined,
): Promise<readonly string[]> {
  const busy = busyMachine();
  const time = await measuredOrLeast(planned, work, measuredMs);
  return time === undefined ? [] : [time, ...(busy === undefined ? [] : [busy])];
}

async function measuredOrLeast<Config extends FrameConfig>(
  planned: TimedRun<Config>,
  work: PlannedWork,
  measuredMs: number | undefined,
): Promise<string | undefined> {
  const { method, config, device, shape } = planned;
  const lora = 'lora' in config && config.lora !== 'none';
  const operations = trainingOperations(work, { lora, shape });
  const steps = work.stages.reduce((sum, { steps = 0 }) => sum + steps, 0);
  const isSmall = operations === undefined || operations < MAX_OPERATIONS * steps;
  if (measuredMs !== undefined && isSmall && countParameters(shape) <= MAX_PARAMETERS) {
    toLog('taking a few steps, to measure their time');
    const onStage = (name: string) => toLog(`  ${name}`);
    return formatMeasuredTime(await measuredRun(method, planned, { measuredMs, onStage }));
  }
  if (operations === undefined) return undefined;
  return formatLeastTime(operations, await productRate(device, config.model.dtype));
}

/** Depends on the tokenizer, which may not be here: a plan needs no more than the model's config.json. */
async function plannedSampling<Config extends FrameConfig>(
  method: Pick<Method<Config>, 'sampling'>,
  { config, tokenizer }: Prepared<Config>,
): Promise<{ readonly plan?: PlannedSampling | undefined; readonly unknown?: string }> {
  if (!method.sampling) return {};
  try {
    return { plan: method.sampling(config, await tokenizer()) };
  } catch (error) {
    if (error instanceof DataError && error.kind === 'tokenizer') return { unknown: error.message };
    throw error;
  }
}
