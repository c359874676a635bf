/** The models of `method: verdict_dpo`: the one that it trains, and the one that it stays near. */
import { adapterUse } from '../../config/adapter.js';
import { frozenTwin } from '../../models/adapter.js';
import { baseDirectory } from '../../models/base.js';
import type { PlacedRole } from '../../models/decoder.js';
import { loadDecoder } from '../../models/load.js';
import type { RunContext } from '../../train/method.js';
import { heldMemory } from '../../train/plan/held-memory.js';
import { configuredTrainee, type Trainee } from '../../train/trainee.js';
import type { VerdictDpoRunConfig } from './config.js';

export interface VerdictDpoRoles extends Trainee {
  /** The model that the run began with. */
  readonly reference: PlacedRole;
}

export async function createVerdictDpoRoles(
  context: RunContext<VerdictDpoRunConfig>,
): Promise<VerdictDpoRoles> {
  const trainee = await configuredTrainee(context);
  const { held, mark } = heldMemory(context.device);
  try {
    const { role, dispose } = await referenceOf(trainee, context);
    mark('reference');
    return {
      ...trainee,
      held: { ...trainee.held, ...held },
      reference: role,
      dispose() {
        dispose();
        trainee.dispose();
      },
    };
  } catch (error) {
    trainee.dispose();
    throw error;
  }
}

/** The adapter or model as it is before the first step. */
async function referenceOf(
  { decoder, role: { adapter } }: Trainee,
  { config: { model }, device }: RunContext<VerdictDpoRunConfig>,
): Promise<{ readonly role: PlacedRole; dispose(): void }> {
  if (adapter) {
    const { adapter: frozen, parameters } = await frozenTwin(adapter);
    return { role: { decoder, role: { adapter: frozen } }, dispose: () => parameters.dispose() };
  }
  const { dtype, quantize, base } = model;
  const { merged } = adapterUse(model);
  const frozen = await loadDecoder(device, baseDirectory(base as string), { dtype, quantize, merged });
  return { role: { decoder: frozen, role: {} }, dispose: () => frozen.dispose() };
}
