/** What a run will hold in memory, by role, from the shapes alone; and how many tokens fit beside it. */
import type { ModelConfig } from '../architectures/config.js';
import { architectureOf, countParameters, modelModules } from '../architectures/table.js';
import type { BatchSection, FrameConfig, LoraConfig as LoraSection } from '../config/schema.js';
import { StepTrainError } from '../native/errors.js';
import type { Device } from '../runtime/device.js';
import { loraPlan } from '../weights/lora-plan.js';
import { loraConfig } from './lora-config.js';

export interface MemoryItem {
  readonly role: string;
  readonly what: string;
  readonly bytes: number;
}

export interface MemoryPlan {
  /** Held throughout. */
  readonly items: readonly MemoryItem[];
  readonly fixedBytes: number;
  /** Of forward and backward, for each token in memory at once. */
  readonly bytesPerToken: number;
}

/** f32 value, gradient and two moments of AdamW. */
const TRAINED_BYTES = 16;
const FROZEN_BYTES = 4;

/** A role as the plan counts it: an adapter on the shared base, or the whole model where there is no LoRA. */
export interface PlannedRole {
  readonly role: string;
  readonly held: 'trained' | 'frozen';
  /** Outputs of a scalar head of its own, and whether they have a bias. */
  readonly head?: { readonly outputs: number; readonly bias: boolean };
}

export function memoryPlan(
  { model, lora: section = 'none', run }: Pick<FrameConfig, 'model' | 'lora' | 'run'>,
  roles: readonly PlannedRole[],
  decoder: ModelConfig,
): MemoryPlan {
  const weights = countParameters(decoder);
  const bytes = model.dtype === 'bf16' ? 2 : 4;
  const lora = section === 'none' ? undefined : section;
  const items: MemoryItem[] = [];
  if (lora) {
    items.push({
      role: 'base',
      what: `${millions(weights)} frozen parameters, ${model.dtype}, shared by all roles`,
      bytes: weights * bytes,
    });
  }
  const own = lora ? adapterSize(decoder, lora) : weights;
  for (const { role, held, head } of roles) {
    const size = own + (head ? head.outputs * (decoder.outputSize + (head.bias ? 1 : 0)) : 0);
    items.push(
      held === 'trained'
        ? {
            role,
            what: `${millions(size)} parameters with gradients and AdamW moments, f32`,
            bytes: size * TRAINED_BYTES,
          }
        : {
            role,
            what: `${millions(size)} frozen ${lora ? 'adapter ' : ''}parameters, f32`,
            bytes: size * FROZEN_BYTES,
          },
    );
  }
  return {
    items,
    fixedBytes: items.reduce((sum, item) => sum + item.bytes, 0),
    bytesPerToken: activationBytes(decoder, {
      bytes,
      rank: lora?.r ?? 0,
      checkpointing: run.gradient_checkpointing,
    }),
  };
}

function adapterSize(decoder: ModelConfig, lora: LoraSection): number {
  const { modules, saved } = loraPlan(loraConfig(lora, ''), modelModules(decoder));
  const pairs = modules.reduce((sum, { aShape, bShape }) => sum + product(aShape) + product(bShape), 0);
  return pairs + saved.reduce((sum, { shape }) => sum + product(shape), 0);
}

/**
 * What the tape keeps of a token, layer by layer, and what the backward of one layer adds. Every token is counted as
 * one that reaches the head, which is more than verdicts need.
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

/** Share of the free memory that a plan may use; the rest is for what allocation wastes and for the rest of the machine. */
const USABLE = 0.85;

export interface MicroBatchContext {
  readonly device: Device;
  readonly config: Pick<FrameConfig, 'data'>;
  /** The batching of the checkpoint that a run goes on from. */
  readonly saved: Readonly<Record<string, number>>;
}

/**
 * The micro-batch of section `name` in tokens: the section's own number, or with `auto` the largest that fits and is not
 * more than an optimizer step has. A run that goes on keeps the number it began with, since another cut would round
 * differently. Refuses a plan that does not fit, with the bytes that are missing.
 */
export function settleMicroBatch(
  plan: MemoryPlan,
  name: string,
  section: BatchSection | undefined,
  { device, config, saved }: MicroBatchContext,
): number {
  if (!section) throw new RangeError(`no stage of this configuration takes its batches from section ${name}`);
  const begun = section.micro_batch_tokens === 'auto' ? saved[`${name}.micro_batch_tokens`] : undefined;
  const wanted = begun === undefined ? section : { ...section, micro_batch_tokens: begun };
  return fitMicroBatch(plan, availableMemory(plan, device), config.data.max_length, wanted);
}

/** Bytes that a plan may use on `device`. Roles that are loaded already are no longer part of what is free. */
export function availableMemory(plan: MemoryPlan, device: Device): number {
  return USABLE * (device.info().memoryFree + Math.min(plan.fixedBytes, device.stats().liveBytes));
}

/** As `settleMicroBatch`, with `available` bytes for everything. `longest`: tokens of the longest sequence. */
export function fitMicroBatch(
  plan: MemoryPlan,
  available: number,
  longest: number,
  section: BatchSection,
): number {
  const { micro_batch_tokens: asked, tokens_per_step: most = Number.POSITIVE_INFINITY } = section;
  const fitting = Math.floor((available - plan.fixedBytes) / plan.bytesPerToken);
  const least = asked === 'auto' ? longest : asked;
  if (fitting < least) {
    const missing = plan.fixedBytes + least * plan.bytesPerToken - available;
    throw new StepTrainError(
      'E_MEMORY',
      `the run needs ${gibibytes(plan.fixedBytes + least * plan.bytesPerToken)} (${gibibytes(plan.fixedBytes)} for the ` +
        `roles, ${gibibytes(least * plan.bytesPerToken)} for ${least} tokens at once) and ${gibibytes(available)} can be ` +
        `used: ${gibibytes(missing)} are missing; set micro_batch_tokens: auto, run.gradient_checkpointing: true, ` +
        'model.dtype: bf16, or shorten data.max_length',
    );
  }
  return asked === 'auto' ? Math.max(longest, Math.min(fitting, most, LARGEST)) : asked;
}

/** More tokens at once make nothing faster. */
const LARGEST = 1 << 16;

/** The plan as lines for a person. */
export function formatMemoryPlan(plan: MemoryPlan, microBatchTokens: number | undefined): string[] {
  const rows = plan.items.map(({ role, what, bytes }) => [role, gibibytes(bytes), what] as const);
  const tokens = microBatchTokens ?? 0;
  const all = [
    ...rows,
    [
      'activations',
      gibibytes(tokens * plan.bytesPerToken),
      `at most, for ${tokens} tokens at once (${kibibytes(plan.bytesPerToken)} each)`,
    ] as const,
    ['total', gibibytes(plan.fixedBytes + tokens * plan.bytesPerToken), ''] as const,
  ];
  return all.map(([role, size, what]) => `  ${role.padEnd(12)}${size.padStart(10)}  ${what}`.trimEnd());
}

function gibibytes(bytes: number): string {
  return bytes < 1 << 30 ? `${(bytes / (1 << 20)).toFixed(1)} MiB` : `${(bytes / 2 ** 30).toFixed(2)} GiB`;
}

function kibibytes(bytes: number): string {
  return `${(bytes / 1024).toFixed(0)} KiB`;
}

function millions(count: number): string {
  return count < 1e9 ? `${(count / 1e6).toFixed(1)}M` : `${(count / 1e9).toFixed(2)}B`;
}

function product(shape: readonly number[]): number {
  return shape.reduce((total, extent) => total * extent, 1);
}
