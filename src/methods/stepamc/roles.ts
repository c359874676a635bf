/**
 * The roles of StepAMC on one frozen base: each is an adapter, or without lora a copy of all weights, and for values and rewards a
 * scalar head.
 */
import type { TrainableParameters } from '../../autograd/parameters.js';
import { adapterUse } from '../../config/adapter.js';
import type { LoraConfig as LoraSection, ModelConfig } from '../../config/schema.js';
import { frozenTwin, loadAdapter, withHead } from '../../models/adapter.js';
import { createAdapterOn } from '../../models/adapter-on-base.js';
import { baseDirectory } from '../../models/base.js';
import type { Decoder, LinearHead, Role } from '../../models/decoder.js';
import { roleHead } from '../../models/heads.js';
import { loadDecoder } from '../../models/load.js';
import { wholeCopy } from '../../models/whole-copy.js';
import type { Device } from '../../runtime/device.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { RoleParameters } from '../../train/checkpoint.js';
import { loraConfig } from '../../train/lora-config.js';
import { type HeldMemory, heldMemory } from '../../train/plan/held-memory.js';
import { saveModel } from '../../train/save-model.js';
import { saveValueHead, valueHead, valueHeadOf } from '../../train/value-head.js';
import type { LoraConfig } from '../../weights/adapter-config.js';

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

export interface RolesOptions {
  readonly model: ModelConfig;
  readonly lora: LoraSection | 'none';
  readonly seed: number;
  readonly gradientCheckpointing: boolean;
}

/** Random stream of the reward network's initialisation. */
const REWARD_SEED = 0x5eed;

export async function createStepAmcRoles(device: Device, options: RolesOptions): Promise<StepAmcRoles> {
  const { model, lora, seed, gradientCheckpointing } = options;
  // config.ts refuses this.
  if (typeof model.base !== 'string') throw new RangeError('roles share a trained base');
  const directory = baseDirectory(model.base);
  const { start, merged } = adapterUse(model);
  const { held, mark } = heldMemory(device);
  const decoder = await loadDecoder(device, directory, {
    dtype: model.dtype,
    quantize: model.quantize,
    gradientCheckpointing,
    routerAuxLossCoef: model.router_aux_loss_coef,
    merged,
  });
  mark('base');
  const made: { dispose(): void }[] = [decoder];
  try {
    const heads = valueHead(decoder.config, seed);
    const scored = withHead(decoder.config, { kind: 'sequence', numLabels: 1, bias: false });
    const rewardSeed = (seed ^ REWARD_SEED) >>> 0;
    const config = lora === 'none' ? undefined : loraConfig(lora, directory);
    const policy = await (config
      ? createAdapterOn(decoder, config, { seed, heads, start })
      : wholeCopy(decoder, { seed, heads }));
    made.push(policy);
    mark('policy');
    const reward = await (config
      ? createAdapterOn(decoder, withScore(config), { seed: rewardSeed, model: scored, start })
      : wholeCopy(decoder, { seed: rewardSeed, model: scored }));
    made.push(reward);
    mark('reward');
    const { adapter: reference, parameters: referenceParameters } = await frozenTwin(policy);
    made.push(referenceParameters);
    mark('reference');
    const begun = start === undefined ? undefined : loadAdapter(device, decoder.config, start);
    if (begun) {
      made.push(begun);
      mark('base adapter');
    }
    const save: StepAmcRoles['save'] = async (fileOf, { reward: withReward, tokenizer }) => {
      if (config) await policy.save(fileOf('adapter'));
      else await saveModel(decoder, tokenizer, fileOf('model'), { role: { adapter: policy } });
      await saveValueHead(policy.trainable as TrainableParameters, fileOf);
      if (!withReward) return;
      if (config) return reward.save(fileOf('reward'));
      const saved = { role: { adapter: reward }, model: scored };
      await saveModel(decoder, tokenizer, fileOf('reward'), saved);
    };
    const policyParameters = policy.trainable as TrainableParameters;
    const rewardParameters = reward.trainable as TrainableParameters;
    return {
      decoder,
      held,
      save,
      policy: { adapter: policy },
      valueHead: valueHeadOf(policyParameters),
      reference: { adapter: reference },
      base: begun ? { adapter: begun } : {},
      reward: { adapter: reward },
      rewardHead: roleHead(decoder, { adapter: reward }) as LinearHead,
      policyParameters,
      rewardParameters,
      parameters: {
        policy: policyParameters,
        reference: referenceParameters,
        reward: rewardParameters,
      },
      async keepReference() {
        referenceParameters.write(await policyParameters.values.readFloats());
      },
      async startRewardFromPolicy() {
        const values = await policyParameters.values.readFloats();
        policyParameters.list.forEach(({ name }, i) => {
          const target = rewardParameters.get(name)?.value;
          const offset = policyParameters.offsets[i] as number;
          target?.write(values.slice(offset, offset + target.size));
        });
      },
      dispose() {
        for (const item of made.toReversed()) item.dispose();
      },
    };
  } catch (error) {
    for (const item of made.reverse()) item.dispose();
    throw error;
  }
}

function withScore(config: LoraConfig): LoraConfig {
  return { ...config, modulesToSave: [...config.modulesToSave, 'score'], taskType: 'SEQ_CLS' };
}
