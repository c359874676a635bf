/** Policy, reference and critic; on one frozen base where the policy is an adapter. */
import type { TrainableParameters, TrainedParameters } from '../../autograd/parameters.js';
import { adapterUse } from '../../config/adapter.js';
import type { DropoutSource } from '../../models/adapter.js';
import type { Decoder, LinearHead, PlacedRole, Role } from '../../models/decoder.js';
import type { Device } from '../../runtime/device.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { RoleParameters } from '../../train/checkpoint.js';
import type { HeldMemory } from '../../train/roles/held-memory.js';
import { createRoles, rolesOptions } from '../../train/roles/roles.js';
import { saveModel } from '../../train/roles/save-model.js';
import type { RoleSpec } from '../../train/roles/spec.js';
import { saveValueHead, VALUE_HEAD, valueHeadOf } from '../../train/roles/value-head.js';
import { hasCritic } from './algorithms.js';
import type { PpoRunConfig } from './config.js';
import { IMPLICIT } from './reward-sections.js';

export interface Critic {
  readonly head: LinearHead;
  /** The parameters of the critic's optimizer: all of an own one; else the head, which is among the policy's parameters. */
  readonly trained: TrainedParameters;
  /** Absent: the head reads the policy's hidden states. */
  readonly own?: PlacedRole & { readonly parameters: TrainableParameters };
}

/** The implicit reward model: an adapter of its own on the base of the policy. */
export interface ImplicitRole extends PlacedRole {
  readonly parameters: TrainableParameters;
  /** The model that the run began with. */
  readonly reference: PlacedRole;
  /** Masks of a rollout batch. */
  readonly dropout: (iteration: number) => DropoutSource;
}

export interface PpoRoles {
  readonly decoder: Decoder;
  readonly policy: Role;
  readonly policyParameters: TrainableParameters;
  /** The parameters of the policy's optimizer: all of them but the head of a critic on its trunk. */
  readonly policyTrained: TrainedParameters;
  /** The reference of the KL: the model that the run began with. */
  readonly reference: PlacedRole | undefined;
  readonly critic: Critic | undefined;
  readonly implicit: ImplicitRole | undefined;
  readonly parameters: RoleParameters;
  readonly held: HeldMemory;
  /** Writes adapter/ or model/ and, with a critic, value_head.safetensors. */
  save(fileOf: (name: string) => string): Promise<void>;
  dispose(): void;
}

/** Random streams of the first values of a critic's adapter, and of the implicit reward model. */
const CRITIC_SEED = 0xc417;
const IMPLICIT_SEED = 0x1b7c;

type PpoRolesConfig = Pick<PpoRunConfig, 'model' | 'lora' | 'ppo' | 'reward' | 'run'>;

/** Policy, the model that the run began with where it is another than the base, critic, implicit reward model. */
export function ppoRoles({ model, lora, ppo, reward }: Omit<PpoRolesConfig, 'run'>): readonly RoleSpec[] {
  const critic = hasCritic(ppo) ? ppo.critic : 'none';
  const hasImplicit = reward.implicit.weight !== 0;
  const held = lora === 'none' ? 'loaded' : 'frozen';
  const isOther = lora === 'none' || adapterUse(model).start !== undefined;
  return [
    { role: 'policy', held: 'trained', values: critic === 'trunk' },
    ...(isOther && (ppo.reference === 'base' || hasImplicit) ? [{ role: 'reference', held } as const] : []),
    ...(critic === 'adapter' || critic === 'model'
      ? [
          {
            role: 'critic',
            held: 'trained',
            values: true,
            whole: critic === 'model' || lora === 'none',
            stream: CRITIC_SEED,
          } as const,
        ]
      : []),
    ...(hasImplicit ? [{ role: IMPLICIT, held: 'trained', stream: IMPLICIT_SEED } as const] : []),
  ];
}

export async function createPpoRoles(
  device: Device,
  config: PpoRolesConfig,
  tokenizer: Tokenizer,
): Promise<PpoRoles> {
  const { ppo, run } = config;
  const specs = ppoRoles(config);
  const has = (name: string) => specs.some(({ role }) => role === name);
  const roles = await createRoles(device, rolesOptions(config), specs);
  const { decoder, parameters, held, dispose } = roles;
  const { role: policy, parameters: own } = roles.trained('policy');
  const isTrunk = hasCritic(ppo) && ppo.critic === 'trunk';
  const start: PlacedRole = has('reference') ? roles.placed('reference') : { decoder, role: {} };
  const critic = criticOf();
  const implicit = has(IMPLICIT) ? implicitOf() : undefined;
  return {
    decoder,
    policy,
    policyParameters: own,
    policyTrained: isTrunk ? own.part((name) => !name.startsWith(VALUE_HEAD)) : own,
    reference: ppo.reference === 'none' ? undefined : start,
    critic,
    implicit,
    held,
    parameters,
    dispose,
    async save(fileOf) {
      if (policy.adapter) await policy.adapter.save(fileOf('adapter'));
      else await saveModel(decoder, tokenizer, fileOf('model'));
      if (critic) await saveValueHead(critic.own?.parameters ?? own, fileOf);
      await implicit?.role.adapter?.save(fileOf('implicit'));
    },
  };

  function criticOf(): Critic | undefined {
    if (isTrunk) return { head: valueHeadOf(own), trained: own.part((name) => name.startsWith(VALUE_HEAD)) };
    if (!has('critic')) return undefined;
    const critic = roles.trained('critic');
    return { head: valueHeadOf(critic.parameters), trained: critic.parameters, own: critic };
  }

  function implicitOf(): ImplicitRole {
    const seed = (run.seed ^ IMPLICIT_SEED) >>> 0;
    return {
      ...roles.trained(IMPLICIT),
      reference: start,
      dropout: (iteration) => ({ seed, step: iteration }),
    };
  }
}
