/**
 * The models of a run by role. A method says each role once, as a spec: the memory plan counts what the specs name, and
 * `createRoles` opens it.
 */
import type { ModelConfig } from '../../architectures/config.js';
import { modelModules, modelWeights, newModelConfig } from '../../architectures/table.js';
import type { ParameterBuffer, ParameterSpec, TrainableParameters } from '../../autograd/parameters.js';
import { adapterUse } from '../../config/adapter.js';
import type {
  FrameConfig,
  LoraConfig as LoraSection,
  ModelConfig as ModelSection,
} from '../../config/schema.js';
import { type Adapter, frozenTwin, loadAdapter, withHead } from '../../models/adapter.js';
import { createAdapterOn } from '../../models/adapter-on-base.js';
import { baseDirectory } from '../../models/base.js';
import type { Decoder, PlacedRole } from '../../models/decoder.js';
import { draw } from '../../models/initial-values.js';
import { loadDecoder, loadTrainableDecoder, trainableDecoder } from '../../models/load.js';
import type { LayerHolders } from '../../models/sharded-layers.js';
import { wholeCopy } from '../../models/whole-copy.js';
import { StepTrainError } from '../../native/errors.js';
import type { Device } from '../../runtime/device.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { AdapterHead } from '../../weights/adapter.js';
import type { LoraConfig } from '../../weights/adapter-config.js';
import type { RoleParameters } from '../checkpoint.js';
import { type HeldMemory, heldMemory } from './held-memory.js';
import { loraConfig } from './lora-config.js';
import type { RoleSpec } from './spec.js';
import { valueHead } from './value-head.js';

export interface RolesOptions {
  readonly model: ModelSection;
  readonly lora: LoraSection | 'none';
  readonly seed: number;
  readonly gradientCheckpointing: boolean;
  /** For a new model, whose vocabulary it gives. */
  readonly tokenizer?: Tokenizer;
  /** The processes that hold the layers of the base together. */
  readonly holders?: LayerHolders | undefined;
}

/** The options that a configuration gives. */
export const rolesOptions = ({
  model,
  lora = 'none',
  run,
}: Pick<FrameConfig, 'model' | 'lora' | 'run'>): RolesOptions => ({
  model,
  lora,
  seed: run.seed,
  gradientCheckpointing: run.gradient_checkpointing === true,
});

export type TrainedRole = PlacedRole & { readonly parameters: TrainableParameters };

export interface Roles {
  /** The shared base, else the decoder of the first role. */
  readonly decoder: Decoder;
  /** Trained parameters by role. */
  readonly parameters: RoleParameters;
  readonly held: HeldMemory;
  /** @throws RangeError where there is no such role */
  placed(role: string): PlacedRole;
  trained(role: string): TrainedRole;
  /** The values of a frozen copy. */
  copied(role: string): ParameterBuffer;
  dispose(): void;
}

interface OpenRole extends PlacedRole {
  readonly parameters?: TrainableParameters;
  readonly copied?: ParameterBuffer;
}

/**
 * Opens the roles in the order of `specs`.
 *
 * @throws StepTrainError E_CONFIG for LoRA on a new model
 */
export async function createRoles(
  device: Device,
  options: RolesOptions,
  specs: readonly RoleSpec[],
): Promise<Roles> {
  const { model, lora } = options;
  const { start, merged } = adapterUse(model);
  const { held, mark } = heldMemory(device);
  const made: { dispose(): void }[] = [];
  const keep = <T extends { dispose(): void }>(item: T): T => {
    made.push(item);
    return item;
  };
  const dispose = () => {
    for (const item of made.splice(0).toReversed()) item.dispose();
  };
  const load = {
    dtype: model.dtype,
    quantize: model.quantize,
    gradientCheckpointing: options.gradientCheckpointing,
    routerAuxLossCoef: model.router_aux_loss_coef,
    merged,
  };
  const isShared = lora !== 'none' || specs.some(({ role }) => role === 'base');
  const roles = new Map<string, OpenRole>();
  let base: Decoder | undefined;
  const openers = { trained: openTrained, frozen: openFrozen, loaded: openLoaded };
  try {
    if (isShared) {
      base = keep(await loadDecoder(device, trainedBase(model), { ...load, holders: options.holders }));
      mark('base');
    }
    for (const spec of specs.filter(({ role }) => role !== 'base')) {
      roles.set(spec.role, await openers[spec.held](spec));
      mark(spec.role);
    }
  } catch (error) {
    dispose();
    throw error;
  }
  const named = (role: string): OpenRole => {
    const found = roles.get(role);
    if (!found) throw new RangeError(`there is no role ${role}`);
    return found;
  };
  const [first] = roles.values();
  return {
    decoder: base ?? (first as OpenRole).decoder,
    parameters: Object.fromEntries(
      [...roles].flatMap(([role, { parameters }]) => (parameters ? [[role, parameters]] : [])),
    ),
    held,
    placed: named,
    trained: (role) => named(role) as TrainedRole,
    copied: (role) => named(role).copied as ParameterBuffer,
    dispose,
  };

  async function openTrained({ head, values, whole, stream = 0 }: RoleSpec): Promise<OpenRole> {
    const seed = (options.seed ^ stream) >>> 0;
    const under = (trunk: ModelConfig) => (head ? withHead(trunk, head) : trunk);
    const heads = (trunk: ModelConfig) => (values ? valueHead(trunk, options.seed) : []);
    if (!base || whole) {
      const { decoder, parameters } =
        typeof model.base === 'string'
          ? loadTrainableDecoder(
              device,
              baseDirectory(model.base),
              { ...load, heads },
              head && { of: under, make: ({ init, shape }, i) => draw(init, shape, seed, i) },
            )
          : newDecoder(under(newModelConfig(model.base.init, options.tokenizer as Tokenizer)), seed);
      return { decoder: keep(decoder), role: {}, parameters: keep(parameters) };
    }
    const first = { seed, model: under(base.config), heads: heads(base.config) };
    const adapter = keep(
      lora === 'none'
        ? await wholeCopy(base, first)
        : await createAdapterOn(base, withHeadKept(loraConfig(lora, trainedBase(model)), head, first.model), {
            ...first,
            start,
          }),
    );
    return { decoder: base, role: { adapter }, parameters: adapter.trainable as TrainableParameters };
  }

  function newDecoder(config: ModelConfig, seed: number) {
    return trainableDecoder(device, config, initialWeights(config, seed), load);
  }

  async function openFrozen({ of }: RoleSpec): Promise<OpenRole> {
    const decoder = base as Decoder;
    if (of === undefined)
      return { decoder, role: { adapter: keep(loadAdapter(device, decoder.config, start as string)) } };
    const { adapter, parameters } = await frozenTwin(roles.get(of)?.role.adapter as Adapter);
    return { decoder, role: { adapter }, copied: keep(parameters) };
  }

  async function openLoaded(): Promise<OpenRole> {
    const { dtype, quantize } = model;
    return {
      decoder: keep(await loadDecoder(device, trainedBase(model), { dtype, quantize, merged })),
      role: {},
    };
  }
}

function trainedBase({ base }: ModelSection): string {
  if (typeof base === 'string') return baseDirectory(base);
  throw new StepTrainError(
    'E_CONFIG',
    'lora needs a trained base, and model.base.init starts from random weights; set lora: none or name a base',
  );
}

/**
 * Adds the head, in full, and the pooler before it to the weights that are saved with the pairs, as PEFT does for a
 * classifier.
 */
function withHeadKept(config: LoraConfig, head: AdapterHead | undefined, model: ModelConfig): LoraConfig {
  if (!head) return config;
  const ending = modelModules(model).filter(({ kind }) => kind === 'score' || kind === 'pooler');
  const modulesToSave = [...new Set([...config.modulesToSave, ...ending.map(({ name }) => name)])];
  return { ...config, modulesToSave, taskType: head.kind === 'sequence' ? 'SEQ_CLS' : 'TOKEN_CLS' };
}

function initialWeights(config: ModelConfig, seed: number): ParameterSpec[] {
  return modelWeights(config).map(({ name, shape, init }, index) => {
    return { name, shape, init: draw(init, shape, seed, index) };
  });
}
