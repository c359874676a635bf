/** The reward models of a run in its memory plan, from their files alone. */
import { statSync } from 'node:fs';
import { countParameters, readModelConfig } from '../../architectures/table.js';
import type { ModelCard } from '../../models/card.js';
import { type SavedModel, savedModel } from '../../models/saved.js';
import { attempt } from '../../native/attempt.js';
import type { Device } from '../../runtime/device.js';
import { settingsOfFiles } from '../../scoring/settings.js';
import { frozenBase } from '../../train/plan/frozen-base.js';
import type { MemoryItem } from '../../train/plan/memory-plan.js';
import { parameterCount } from '../../train/plan/parameter-count.js';
import { adapterWeights } from '../../weights/adapter.js';
import type { RewardSection } from './config.js';

/**
 * One line for each model, whatever number of sources reads it; 0 bytes, and a word of it, for one that is not there yet.
 *
 * @param device the device that holds them
 */
export function plannedRewardModels(
  { steps, outcome }: Pick<RewardSection, 'steps' | 'outcome'>,
  device: Pick<Device, 'info'>,
) {
  const found = new Map<string, MemoryItem>();
  for (const [role, { weight, model }] of [
    ['PRM', steps],
    ['ORM', outcome],
  ] as const)
    if (weight !== 0 && model !== undefined && !found.has(model))
      found.set(model, { role, ...sizeOf(model, device) });
  return [...found.values()];
}

function sizeOf(name: string, device: Pick<Device, 'info'>): Omit<MemoryItem, 'role'> {
  const saved = readable(name);
  if (!saved) return { what: `${name} is not there yet and not counted`, bytes: 0 };
  const found = held(saved, device);
  // Under an adapter, the reference of log-ratios is the same base; a model trained in full is held in addition to its
  // own.
  const { directory, adapter } = saved;
  const kind = settingsOfFiles({ model: directory, adapter })?.kind;
  if (kind !== 'implicit_prm' || adapter !== undefined) return found;
  return { what: `${found.what}, and as many of its reference`, bytes: 2 * found.bytes };
}

function readable(name: string): SavedModel | undefined {
  return attempt(() => {
    const saved = savedModel(name);
    readModelConfig(saved.directory);
    return saved;
  });
}

/** Weights of the model as they are opened, and those of the adapter in f32 as they are stored. */
export function held(
  {
    directory,
    dtype,
    adapter,
    card,
  }: Pick<SavedModel, 'directory' | 'dtype' | 'adapter'> & {
    readonly card: Pick<ModelCard, 'quantize'> | undefined;
  },
  device: Pick<Device, 'info'>,
): Omit<MemoryItem, 'role'> {
  const config = readModelConfig(directory);
  const { bytes, quantized, workspace } = frozenBase(
    { base: directory, dtype, quantize: card?.quantize ?? 'keep' },
    config,
    device,
  );
  const stored = quantized === '' ? dtype : `${quantized}, the rest ${dtype}`;
  return {
    what: `${parameterCount(countParameters(config))} frozen parameters, ${stored}${adapter === undefined ? '' : ', and an adapter'}`,
    bytes: bytes + workspace + (adapter === undefined ? 0 : statSync(adapterWeights(adapter)).size),
  };
}
