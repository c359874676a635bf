/** The reward models of a run in its memory plan, from their files alone. */
import { statSync } from 'node:fs';
import { countParameters, readModelConfig } from '../../architectures/table.js';
import { judgeFor } from '../../models/base.js';
import { savedModel } from '../../models/saved.js';
import { settingsOfFiles } from '../../scoring/settings.js';
import type { LoadedModel } from '../../train/memory-plan.js';
import { parameterCount } from '../../train/parameter-count.js';
import { adapterWeights } from '../../weights/adapter.js';
import type { RewardSection } from './config.js';

/** One line for each model, whatever number of sources reads it; 0 bytes, and a word of it, for one that is not there yet. */
export function plannedRewardModels({ steps, outcome }: Pick<RewardSection, 'steps' | 'outcome'>) {
  const found = new Map<string, LoadedModel>();
  for (const [role, { weight, model }] of [
    ['PRM', steps],
    ['ORM', outcome],
  ] as const)
    if (weight !== 0 && model !== undefined && !found.has(model))
      found.set(model, { role, ...sizeOf(model) });
  return [...found.values()];
}

function sizeOf(name: string): Omit<LoadedModel, 'role'> {
  try {
    const { directory, adapter, dtype } = savedModel(judgeFor(name));
    const found = held(directory, dtype, adapter);
    // Under an adapter the reference of log-ratios is the same base; a model trained in full is held beside its own.
    const kind = settingsOfFiles({ model: directory, adapter })?.kind;
    if (kind !== 'implicit_prm' || adapter !== undefined) return found;
    return { what: `${found.what}, and as many of its reference`, bytes: 2 * found.bytes };
  } catch {
    return { what: `${name} is not there yet and not counted`, bytes: 0 };
  }
}

/** Weights of the model as `dtype`, and those of the adapter in f32 as they are stored. */
function held(directory: string, dtype: 'f32' | 'bf16', adapter?: string): Omit<LoadedModel, 'role'> {
  const weights = countParameters(readModelConfig(directory));
  const own = adapter === undefined ? 0 : statSync(adapterWeights(adapter)).size;
  return {
    what: `${parameterCount(weights)} frozen parameters, ${dtype}${adapter === undefined ? '' : ', and an adapter'}`,
    bytes: weights * (dtype === 'bf16' ? 2 : 4) + own,
  };
}
