/**
 * The roles of StepAMC on one frozen base: each is an adapter, or without lora a copy of all weights, and for values and rewards a
 * scalar head.
 */
import type { TrainableParameters } from '../../autograd/parameters.js';
import { adapterUse } from '../../config/adapter.js';
import type { FrameConfig } from '../../config/schema.js';
import { withHead } from '../../models/adapter.js';
import type { Decoder, LinearHead, Role } from '../../models/decoder.js';
import { roleHead } from '../../models/heads.js';
import type { Device } from '../../runtime/device.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { RoleParameters } from '../../train/checkpoint.js';
import type { HeldMemory } from '../../train/roles/held-memory.js';
import { createRoles, type RolesOptions } from '../../train/roles/roles.js';
import { saveModel } from '../../train/roles/save-model.js';
import type { RoleSpec } from '../../train/roles/spec.js';
import { saveValueHead, valueHeadOf } from '../../train/roles/value-head.js';
import type { AdapterHead } from '../../weights/adapter.js';

export interface StepAmcRoles {
  readonly decoder: Decoder;
  /** Trained; the value head reads its hidden states. Without dropout; the warm-up adds it. */
  readonly policy: Role;
  readonly valueHead: LinearHead;
  /** The policy as the warm-up left it, once `keepReference` was called. */
  readonly reference: Role;
  /** The model that the run began with: the base as it is read, under the adapter that the run continues. */
  readonly base: Role;
  /** The reward network. Its scalar head is part of the adapter or the copy: a sequence classifier with one label. */
  readonly reward: Role;
  readonly rewardHead: LinearHead;
  readonly policyParameters: TrainableParameters;
  readonly rewardParameters: TrainableParameters;
  /** The parameters that a checkpoint holds. */
  readonly parameters: RoleParameters;
  readonly held: HeldMemory;
  /** Copies the policy into the reference. */
  keepReference(): Promise<void>;
  /** Copies the policy into the reward network. */
  startRewardFromPolicy(): Promise<void>;
  /** Writes adapter/, or model/ without lora, value_head.safetensors and optionally reward/. */
  save(fileOf: (name: string) => string, what: SavedRoles): Promise<void>;
  dispose(): void;
}

interface SavedRoles {
  readonly reward: boolean;
  /** Saved with models that are written whole. */
  readonly tokenizer: Tokenizer;
}

/** Random stream of the reward network's initialisation. */
const REWARD_SEED = 0x5eed;
/** The reward network is a sequence classifier with one label. */
const SCORE: AdapterHead = { kind: 'sequence', numLabels: 1, bias: false };

export const stepAmcRoles = ({ model, lora }: Pick<FrameConfig, 'model' | 'lora'>): readonly RoleSpec[] => [
  ...(lora === 'none' ? [{ role: 'base', held: 'loaded' } as const] : []),
  { role: 'policy', held: 'trained', values: true },
  { role: 'reference', held: 'frozen', of: 'policy' },
  { role: 'reward', held: 'trained', head: SCORE, stream: REWARD_SEED },
  ...(adapterUse(model).start === undefined ? [] : [{ role: 'base adapter', held: 'frozen' } as const]),
];

export async function createStepAmcRoles(device: Device, options: RolesOptions): Promise<StepAmcRoles> {
  const { model, lora } = options;
  const specs = stepAmcRoles(options);
  const { decoder, held, dispose, placed, trained, copied, parameters } = await createRoles(
    device,
    options,
    specs,
  );
  const { role: policy, parameters: policyParameters } = trained('policy');
  const { role: reward, parameters: rewardParameters } = trained('reward');
  const reference = copied('reference');
  return {
    decoder,
    held,
    policy,
    valueHead: valueHeadOf(policyParameters),
    reference: placed('reference').role,
    base: adapterUse(model).start === undefined ? {} : placed('base adapter').role,
    reward,
    rewardHead: roleHead(decoder, reward) as LinearHead,
    policyParameters,
    rewardParameters,
    parameters: { ...parameters, reference },
    dispose,
    async save(fileOf, { reward: withReward, tokenizer }) {
      if (lora !== 'none') await policy.adapter?.save(fileOf('adapter'));
      else await saveModel(decoder, tokenizer, fileOf('model'), { role: policy });
      await saveValueHead(policyParameters, fileOf);
      if (!withReward) return;
      if (lora !== 'none') return reward.adapter?.save(fileOf('reward'));
      const saved = { role: reward, model: withHead(decoder.config, SCORE) };
      await saveModel(decoder, tokenizer, fileOf('reward'), saved);
    },
    async keepReference() {
      reference.write(await policyParameters.values.readFloats());
    },
    async startRewardFromPolicy() {
      const values = await policyParameters.values.readFloats();
      policyParameters.list.forEach(({ name }, i) => {
        const target = rewardParameters.get(name)?.value;
        const offset = policyParameters.offsets[i] as number;
        target?.write(values.slice(offset, offset + target.size));
      });
    },
  };
}
