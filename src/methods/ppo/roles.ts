/** Policy, reference and critic; on one frozen base where the policy is an adapter. */
import type { ModelConfig } from '../../architectures/config.js';
import type { ParameterSpec, TrainableParameters, TrainedParameters } from '../../autograd/parameters.js';
import { adapterUse } from '../../config/adapter.js';
import { type DropoutSource, loadAdapter } from '../../models/adapter.js';
import { createAdapterOn } from '../../models/adapter-on-base.js';
import { baseDirectory } from '../../models/base.js';
import type { Decoder, LinearHead, PlacedRole, Role } from '../../models/decoder.js';
import { loadDecoder, loadTrainableDecoder } from '../../models/load.js';
import type { Device } from '../../runtime/device.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { RoleParameters } from '../../train/checkpoint.js';
import { loraConfig } from '../../train/lora-config.js';
import { type HeldMemory, heldMemory } from '../../train/plan/held-memory.js';
import { saveModel } from '../../train/save-model.js';
import { saveValueHead, VALUE_HEAD, valueHead, valueHeadOf } from '../../train/value-head.js';
import { hasCritic } from './algorithms.js';
import type { PpoRunConfig } from './config.js';

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

export async function createPpoRoles(
  device: Device,
  { model, lora, ppo, reward, run }: Pick<PpoRunConfig, 'model' | 'lora' | 'ppo' | 'reward' | 'run'>,
  tokenizer: Tokenizer,
): Promise<PpoRoles> {
  // config.ts refuses this.
  if (typeof model.base !== 'string') throw new RangeError('ppo needs a trained base');
  const directory = baseDirectory(model.base);
  const { start, merged } = adapterUse(model);
  const load = {
    dtype: model.dtype,
    quantize: model.quantize,
    gradientCheckpointing: run.gradient_checkpointing,
    routerAuxLossCoef: model.router_aux_loss_coef,
    merged,
  };
  const { held, mark } = heldMemory(device);
  const made: { dispose(): void }[] = [];
  const keep = <T extends { dispose(): void }>(item: T): T => {
    made.push(item);
    return item;
  };
  /** An adapter of its own on the base. */
  const adapted = async (name: string, stream: number, heads: readonly ParameterSpec[] = []) => {
    // config.ts refuses this.
    if (lora === 'none') throw new RangeError(`${name} needs lora`);
    const seed = (run.seed ^ stream) >>> 0;
    const options = { seed, start, heads };
    const adapter = keep(await createAdapterOn(decoder, loraConfig(lora, directory), options));
    mark(name);
    return { decoder, role: { adapter }, parameters: adapter.trainable as TrainableParameters };
  };
  const critics = hasCritic(ppo);
  const heads = (config: ModelConfig) => valueHead(config, run.seed);
  const whole = (withHead: boolean) => {
    const { decoder, parameters } = loadTrainableDecoder(device, directory, {
      ...load,
      ...(withHead ? { heads } : {}),
    });
    keep(parameters);
    keep(decoder);
    return { decoder, parameters };
  };
  let decoder: Decoder;
  try {
    const trunk = critics && ppo.critic === 'trunk';
    let policy: Role = {};
    let policyParameters: TrainableParameters;
    if (lora === 'none') {
      ({ decoder, parameters: policyParameters } = whole(trunk));
      mark('policy');
    } else {
      decoder = keep(await loadDecoder(device, directory, load));
      mark('base');
      const own = await adapted('policy', 0, trunk ? heads(decoder.config) : []);
      ({ role: policy, parameters: policyParameters } = own);
    }
    const reference = await referenceOf();
    const critic = critics ? await criticOf() : undefined;
    const implicit = reward.implicit.weight === 0 ? undefined : await implicitOf();
    return {
      decoder,
      policy,
      policyParameters,
      policyTrained: trunk ? policyParameters.part((name) => !name.startsWith(VALUE_HEAD)) : policyParameters,
      reference,
      critic,
      implicit,
      held,
      parameters: {
        policy: policyParameters,
        ...(critic?.own ? { critic: critic.own.parameters } : {}),
        ...(implicit ? { implicit: implicit.parameters } : {}),
      },
      async save(fileOf) {
        if (policy.adapter) await policy.adapter.save(fileOf('adapter'));
        else await saveModel(decoder, tokenizer, fileOf('model'));
        if (critic) await saveValueHead(critic.own?.parameters ?? policyParameters, fileOf);
        await implicit?.role.adapter?.save(fileOf('implicit'));
      },
      dispose() {
        for (const item of made.toReversed()) item.dispose();
      },
    };

    async function referenceOf(which = ppo.reference): Promise<PlacedRole | undefined> {
      if (which === 'none') return undefined;
      if (start !== undefined) {
        const adapter = keep(loadAdapter(device, decoder.config, start));
        mark('reference');
        return { decoder, role: { adapter } };
      }
      if (policy.adapter) return { decoder, role: {} };
      const frozen = keep(
        await loadDecoder(device, directory, { dtype: model.dtype, quantize: model.quantize }),
      );
      mark('reference');
      return { decoder: frozen, role: {} };
    }

    async function implicitOf(): Promise<ImplicitRole> {
      const seed = (run.seed ^ IMPLICIT_SEED) >>> 0;
      return {
        ...(await adapted('implicit', IMPLICIT_SEED)),
        reference: reference ?? ((await referenceOf('base')) as PlacedRole),
        dropout: (iteration) => ({ seed, step: iteration }),
      };
    }

    async function criticOf(): Promise<Critic> {
      if (trunk)
        return {
          head: valueHeadOf(policyParameters),
          trained: policyParameters.part((name) => name.startsWith(VALUE_HEAD)),
        };
      const isModel = ppo.critic === 'model' || lora === 'none';
      const own = isModel
        ? { ...whole(true), role: {} }
        : await adapted('critic', CRITIC_SEED, heads(decoder.config));
      if (isModel) mark('critic');
      return { head: valueHeadOf(own.parameters), trained: own.parameters, own };
    }
  } catch (error) {
    for (const item of made.toReversed()) item.dispose();
    throw error;
  }
}
