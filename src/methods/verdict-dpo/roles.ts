/** The models of `method: verdict_dpo`: the one that it trains, and the one that it stays near. */
import type { PlacedRole } from '../../models/decoder.js';
import type { RunContext } from '../../train/method.js';
import { createRoles, rolesOptions } from '../../train/roles/roles.js';
import type { RoleSpec } from '../../train/roles/spec.js';
import { type Trainee, traineeOf, traineeRole } from '../../train/roles/trainee.js';
import { dataParallel } from '../../train/sums/data-parallel.js';
import type { VerdictDpoRunConfig } from './config.js';

export interface VerdictDpoRoles extends Trainee {
  /** The model that the run began with. */
  readonly reference: PlacedRole;
}

/** The reference is the adapter or model as it is before the first step. */
export const verdictDpoRoles = (config: Pick<VerdictDpoRunConfig, 'lora'>): readonly RoleSpec[] => {
  const policy = traineeRole(config);
  return [
    policy,
    config.lora === 'none'
      ? { role: 'reference', held: 'loaded' }
      : { role: 'reference', held: 'frozen', of: policy.role },
  ];
};

export async function createVerdictDpoRoles({
  config,
  device,
  tokenizer,
}: RunContext<VerdictDpoRunConfig>): Promise<VerdictDpoRoles> {
  const specs = verdictDpoRoles(config);
  const { holders } = dataParallel(device) ?? {};
  const roles = await createRoles(device, { ...rolesOptions(config), tokenizer, holders }, specs);
  const trainee = traineeOf(roles, (specs[0] as RoleSpec).role, tokenizer);
  return { ...trainee, reference: roles.placed('reference') };
}
