/** The memory a run will need, by role, computed from the shapes alone; and how many tokens fit in the rest. */

import type { ModelConfig } from '../../architectures/config.js';
import { architectureOf, countParameters, modelModules, modelWeights } from '../../architectures/table.js';
import { sumsHeld } from '../../cluster/shards.js';
import type { BatchSection, FrameConfig, LoraConfig as LoraSection } from '../../config/schema.js';
import { refuseUndivided } from '../../models/load.js';
import { layerNumber } from '../../models/sharded-layers.js';
import { log } from '../../native/elementary.js';
import { StepTrainError } from '../../native/errors.js';
import { plural } from '../../native/shown.js';
import type { Device } from '../../runtime/device.js';
import { usableMemory } from '../../runtime/memory.js';
import { formatTable } from '../../terminal/table.js';
import { loraPlan } from '../../weights/lora-plan.js';
import { loraConfig } from '../roles/lora-config.js';
import type { RoleSpec } from '../roles/spec.js';
import { SCRATCH } from '../sums/overlapped-sum.js';
import { PIECE } from '../sums/released-sum.js';
import { gibibytes, kibibytes } from './bytes.js';
import { type FrozenBase, frozenBase } from './frozen-base.js';
import { besideOthers } from './other-programs.js';
import { parameterCount } from './parameter-count.js';
import { fitCache, type Sampled, type SamplingPlan, samplingPlan } from './sampling-plan.js';

export interface MemoryItem {
  readonly role: string;
  readonly what: string;
  readonly bytes: number;
}

export interface MemoryPlan {
  /** Bytes held for the whole run. */
  readonly items: readonly MemoryItem[];
  readonly fixedBytes: number;
  /** Width of the hidden states. */
  readonly width: number;
  /** Bytes of forward and backward for each token of a micro-batch. */
  readonly bytesPerToken: number;
  /** Whether blocks are computed again in the backward pass. */
  readonly checkpointing: boolean;
  /** Plan of the samples, for a method that samples. */
  readonly sampling?: SamplingPlan;
}

/** f32 value and gradient, and two moments of AdamW. */
const TRAINED_BYTES = 8;
const MOMENT_BYTES = 8;
/** Bytes of a gradient in sums over shards, f32. */
const SUM_BYTES = 4;
const FROZEN_BYTES = 4;

/** A role of the run, or a model that is only read. */
export type PlannedRole = RoleSpec | MemoryItem;

export interface PlanOptions {
  readonly sampled?: Sampled | undefined;
  /** Processes of the job: with `run.zero` each holds its share of the moments. Default 1. */
  readonly processes?: number | undefined;
}

/**
 * The memory plan of a run.
 *
 * @param config `run.gradient_checkpointing` as `settleCheckpointing` gives it; `auto` counts as `false`
 */
export function memoryPlan(
  device: Pick<Device, 'info'>,
  { model, lora: section = 'none', run }: Pick<FrameConfig, 'model' | 'lora' | 'run'>,
  roles: readonly PlannedRole[],
  decoder: ModelConfig,
  { sampled, processes = 1 }: PlanOptions = {},
): MemoryPlan {
  let workspace = 0;
  const checkpointing = run.gradient_checkpointing === true;
  const frozen = () => {
    const base = frozenBase(model, decoder, device, run.shard_base ? processes : 1, run.overlap ? 2 : 1);
    if (base.holders > 1) refuseUndivided(checkpointing, base.quantized !== '');
    workspace = base.workspace;
    return base;
  };
  const holders = run.zero > 0 ? processes : 1;
  const sums = processes > 1 && run.shards > processes ? sumsHeld(run.shards, processes) : 0;
  const weights = countParameters(decoder);
  const bytes = model.dtype === 'bf16' ? 2 : 4;
  const lora = section === 'none' ? undefined : section;
  const items: MemoryItem[] = [];
  if (lora) {
    items.push(baseItem('base', weights, model, frozen()));
  }
  const body = lora ? adapterSize(decoder, lora) : weights;
  const releases = run.zero === 2 && processes > 1 && [0, processes].includes(run.shards);
  const beside = run.collectives !== 'nccl' && run.overlap && !run.shard_base;
  for (const planned of roles) {
    if ('bytes' in planned) {
      items.push(planned);
      continue;
    }
    const { role, held, whole } = planned;
    if (held === 'loaded') {
      items.push(baseItem(role, weights, model, frozen()));
      continue;
    }
    const size = (whole ? weights : body) + headSize(planned, decoder);
    items.push(
      held === 'trained'
        ? {
            role,
            what:
              `${parameterCount(size)} parameters with gradients${releases ? ` of a layer and 1/${holders} of all,` : ''} and ${holders > 1 ? `1/${holders} of the ` : ''}AdamW moments, f32` +
              (sums > 0
                ? `; ${sums === 1 ? 'a sum' : `${sums} sums`} over earlier of ${run.shards} run.shards`
                : ''),
            bytes:
              size * (TRAINED_BYTES + MOMENT_BYTES / holders + SUM_BYTES * sums) -
              (releases ? releasedBytes(decoder, whole ? undefined : lora, { size, holders, beside }) : 0),
          }
        : {
            role,
            what: `${parameterCount(size)} frozen ${lora && !whole ? 'adapter ' : ''}parameters, f32`,
            bytes: size * FROZEN_BYTES,
          },
    );
  }
  if (workspace > 0)
    items.push({
      role: 'workspace',
      what: `dequantised weights of one product, ${model.dtype}`,
      bytes: workspace,
    });
  const { fixed = 0 } = architectureOf(decoder).memory(decoder, { bytes, rank: lora?.r ?? 0 });
  if (fixed > 0) {
    items.push({
      role: 'activations',
      what: 'relative positions, saved by each layer',
      bytes: fixed * (checkpointing ? 1 : decoder.numLayers),
    });
  }
  return {
    items,
    fixedBytes: items.reduce((sum, item) => sum + item.bytes, 0),
    width: decoder.hiddenSize,
    checkpointing,
    bytesPerToken: activationBytes(decoder, {
      bytes,
      rank: lora?.r ?? 0,
      checkpointing,
    }),
    ...(sampled
      ? {
          sampling: samplingPlan(sampled, decoder, {
            dtype: model.dtype,
            rank: lora?.r ?? 0,
            pairs: lora ? loraPlan(loraConfig(lora, ''), modelModules(decoder)).modules : [],
          }),
        }
      : {}),
  };
}

/** Elements of the heads that a role trains. */
function headSize({ head, values }: RoleSpec, { outputSize }: ModelConfig): number {
  const own = head ? head.numLabels * (outputSize + (head.bias ? 1 : 0)) : 0;
  return own + (values ? outputSize + 1 : 0);
}

function baseItem(
  role: string,
  weights: number,
  { dtype }: FrameConfig['model'],
  { bytes, quantized, holders, whole }: FrozenBase,
): MemoryItem {
  const held = quantized === '' ? dtype : `${quantized}, the rest ${dtype}`;
  return {
    role,
    what: `${parameterCount(weights)} frozen parameters, ${held}, shared by all roles${holders > 1 ? `; of each layer 1/${holders}, and ${whole === 1 ? 'one layer' : 'two layers'} whole` : ''}`,
    bytes,
  };
}

/**
 * Bytes of `size` gradients that are not held at once where they are freed during the backward pass. Held are a slice,
 * gradients outside of layers, a layer, and the layer before it, which is exchanged meanwhile, or pieces of a layer
 * where ops do so.
 */
function releasedBytes(
  decoder: ModelConfig,
  lora: LoraSection | undefined,
  { size, holders, beside }: { readonly size: number; readonly holders: number; readonly beside: boolean },
): number {
  const trained = lora ? adapterWeights(decoder, lora) : modelWeights(decoder);
  const layers: number[] = [];
  for (const { name, shape } of trained) {
    const layer = layerNumber(name);
    if (layer !== undefined) layers[layer] = (layers[layer] ?? 0) + product(shape);
  }
  const outside = size - layers.reduce((sum, elements) => sum + elements, 0);
  const layer = Math.max(0, ...layers);
  const held =
    size / holders + outside + layer + (beside ? layer + SCRATCH : (4 + 1 / holders) * Math.min(size, PIECE));
  return Math.max(0, SUM_BYTES * (size - held));
}

const adapterSize = (decoder: ModelConfig, lora: LoraSection) =>
  adapterWeights(decoder, lora).reduce((sum, { shape }) => sum + product(shape), 0);

function adapterWeights(decoder: ModelConfig, lora: LoraSection) {
  const { modules, saved } = loraPlan(loraConfig(lora, ''), modelModules(decoder));
  const pairs = modules.flatMap(({ aName, aShape, bName, bShape }) => [
    { name: aName, shape: aShape },
    { name: bName, shape: bShape },
  ]);
  return [...pairs, ...saved.map(({ name, shape }) => ({ name, shape }))];
}

/**
 * Bytes per token that the tape keeps in all layers, plus those that the backward of one layer adds. Every token is
 * assumed to reach the head, which overestimates verdicts.
 */
function activationBytes(
  decoder: ModelConfig,
  { bytes, rank, checkpointing }: { bytes: number; rank: number; checkpointing: boolean },
): number {
  const { outputSize, numLayers } = decoder;
  const layer = architectureOf(decoder).memory(decoder, { bytes, rank });
  const kept = checkpointing ? numLayers * layer.stream + layer.saved : numLayers * layer.saved;
  const head = outputSize * (3 * bytes + 4);
  return kept + layer.backward + head;
}

export interface MicroBatchContext {
  readonly device: Device;
  readonly config: Pick<FrameConfig, 'data' | 'run'>;
  /** The batching in the checkpoint that a run continues from. */
  readonly saved: Readonly<Record<string, number>>;
  /** Processes that share the device's memory, this one included. Default 1. */
  readonly sharers?: number;
}

/**
 * The micro-batch of section `name` in tokens: the section's own number or, with `auto`, the largest that fits, is no
 * larger than is fastest, and does not exceed an optimizer step. A resumed run keeps the number it began with, since other micro-batches would round
 * differently. Refuses a plan that does not fit and names the missing bytes.
 */
export function settleMicroBatch(
  plan: MemoryPlan,
  name: string,
  section: BatchSection,
  { device, config, saved, sharers }: MicroBatchContext,
): number {
  const begun = section.micro_batch_tokens === 'auto' ? saved[microBatchKey(name)] : undefined;
  const wanted = begun === undefined ? section : { ...section, micro_batch_tokens: begun };
  const fraction = config.run.memory_fraction;
  const available = availableMemory(plan, device, fraction, sharers);
  const longest = config.data.max_length;
  const fastest = fastestMicroBatch(device, plan.width);
  return besideOthers(device, fraction, () => fitMicroBatch(plan, available, longest, wanted, fastest));
}

/** Under which a checkpoint holds the micro-batch of a section. */
export function microBatchKey(section: string): string {
  return `${section}.micro_batch_tokens`;
}

/**
 * Bytes that a plan may use on `device`, including those of roles already loaded.
 *
 * @param fraction `run.memory_fraction`
 * @param sharers processes that plan for the same memory, each of which has loaded as much as this one
 */
export function availableMemory(plan: MemoryPlan, device: Device, fraction: number, sharers = 1): number {
  const { memoryTotal: total, memoryFree } = device.info();
  const free = memoryFree / sharers + Math.min(plan.fixedBytes, device.stats().liveBytes);
  return usableMemory({ total: total / sharers, free }, fraction);
}

/**
 * Settles a micro-batch within `available` bytes. `longest`: tokens of the longest sequence; `fastest`: from which on a
 * micro-batch is no faster.
 */
export function fitMicroBatch(
  plan: MemoryPlan,
  available: number,
  longest: number,
  section: BatchSection,
  fastest = FASTEST.gpu,
): number {
  const { micro_batch_tokens: requested, tokens_per_step: max = Number.POSITIVE_INFINITY } = section;
  const fitting = Math.floor((available - plan.fixedBytes) / plan.bytesPerToken);
  const min = requested === 'auto' ? longest : requested;
  if (fitting < min) {
    const missing = plan.fixedBytes + min * plan.bytesPerToken - available;
    const remedies = [
      ...(requested === 'auto' ? [] : ['set micro_batch_tokens: auto']),
      ...(plan.checkpointing ? [] : ['set run.gradient_checkpointing: true']),
      'set model.dtype: bf16',
      'shorten data.max_length',
    ];
    throw new StepTrainError(
      'E_MEMORY',
      `the run needs ${gibibytes(plan.fixedBytes + min * plan.bytesPerToken)} (${gibibytes(plan.fixedBytes)} for the ` +
        `roles, ${gibibytes(min * plan.bytesPerToken)} for ${min} tokens at once) and ${gibibytes(available)} can be ` +
        `used: ${gibibytes(missing)} are missing; ${remedies.slice(0, -1).join(', ')} or ${remedies.at(-1)}`,
    );
  }
  return requested === 'auto' ? Math.max(longest, Math.min(fitting, max, fastest)) : requested;
}

/** Bytes of pages of keys and values, for a method that samples; refuses a plan that does not fit, as micro-batches are. */
export function settleCache(plan: MemoryPlan, available: number): number | undefined {
  const { sampling, fixedBytes } = plan;
  return sampling && fitCache(sampling, { available, fixedBytes });
}

/**
 * Tokens beyond which a larger micro-batch is no faster, but takes more memory.
 *
 * On a CPU, as measured (research/runtime.md): the number that makes hidden states of half a million values, 1 MiB
 * in bf16, half of a core's L2 cache there, but at least a thousand: that was as fast, and many threads share them. The
 * number of threads plays no part, as a run has the same bits with any.
 *
 * On a GPU the limit has not been measured: the value is the largest with which a step has been timed
 * (research/h100.md).
 */
const FASTEST = { cpuValues: 1 << 19, cpuLeast: 1024, gpu: 8192 };

/** @param width of the model's hidden states */
export function fastestMicroBatch(device: Pick<Device, 'info'>, width: number): number {
  const { name } = device.info();
  if (name !== 'cpu') return FASTEST.gpu;
  const tokens = 2 ** Math.round(log(FASTEST.cpuValues / width) / Math.LN2);
  return Math.max(tokens, FASTEST.cpuLeast);
}

/** Bytes held at once: the roles, and either the activations of a micro-batch or keys and values. */
export function plannedPeak(plan: MemoryPlan, microBatchTokens: number, cacheBytes = 0): number {
  const sampling = plan.sampling ? cacheBytes + plan.sampling.forward : 0;
  return plan.fixedBytes + Math.max(microBatchTokens * plan.bytesPerToken, sampling);
}

/** The plan as lines for a person. */
export function formatMemoryPlan(plan: MemoryPlan, microBatchTokens: number, cacheBytes?: number): string[] {
  const { items, bytesPerToken, checkpointing, sampling } = plan;
  const rows: (readonly [string, number, string])[] = items.map(({ role, what, bytes }) => [
    role,
    bytes,
    what,
  ]);
  const activations = `at most, for ${microBatchTokens} tokens at once (${kibibytes(bytesPerToken)} each${checkpointing ? ', with gradient checkpointing' : ''})`;
  rows.push(['activations', microBatchTokens * bytesPerToken, activations]);
  if (sampling) {
    const { pageBytes, least, rows: samples, forward } = sampling;
    const bytes = cacheBytes ?? least;
    const what = `keys and values while sampling, ${bytes / pageBytes} of ${kibibytes(pageBytes)} for ${plural(samples, 'sample')}`;
    rows.push(['pages', bytes, `${what}; ${gibibytes(forward)} for a step; not beside activations`]);
  }
  rows.push(['peak', plannedPeak(plan, microBatchTokens, cacheBytes), '']);
  const cells = rows.map(([role, bytes, what]) => [role, gibibytes(bytes), what]);
  return formatTable(cells, { isLeft: (column) => column !== 1, indent: 2 }).split('\n');
}

function product(shape: readonly number[]): number {
  return shape.reduce((total, extent) => total * extent, 1);
}
