/** The trained model of a run: a decoder, its adapter if any, and the parameters that the optimizer updates. */
import type { ModelConfig } from '../architectures/config.js';
import { modelModules, modelWeights, newModelConfig } from '../architectures/table.js';
import type { ParameterSpec, TrainableParameters } from '../autograd/parameters.js';
import { adapterUse } from '../config/adapter.js';
import type {
  FrameConfig,
  LoraConfig as LoraSection,
  ModelConfig as ModelSection,
} from '../config/schema.js';
import { withHead } from '../models/adapter.js';
import { createAdapterOn } from '../models/adapter-on-base.js';
import { baseDirectory } from '../models/base.js';
import type { Decoder, Role } from '../models/decoder.js';
import { draw } from '../models/initial-values.js';
import { loadDecoder, loadTrainableDecoder, trainableDecoder } from '../models/load.js';
import { StepTrainError } from '../native/errors.js';
import type { Device } from '../runtime/device.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import type { AdapterHead } from '../weights/adapter.js';
import type { LoraConfig } from '../weights/adapter-config.js';
import type { RoleParameters } from './checkpoint.js';
import { loraConfig } from './lora-config.js';
import { type HeldMemory, heldMemory } from './plan/held-memory.js';
import { saveModel } from './save-model.js';
import { dataParallel } from './sums/data-parallel.js';

export interface Trainee {
  readonly decoder: Decoder;
  /** Role without dropout; the loop adds it. */
  readonly role: Role;
  readonly trained: TrainableParameters;
  readonly parameters: RoleParameters;
  readonly held: HeldMemory;
  /** Writes the result: `adapter/` in PEFT format, or `model/` as a Hugging Face directory. */
  save(directoryOf: (name: string) => string): Promise<void>;
  dispose(): void;
}

export interface TraineeOptions {
  readonly model: ModelSection;
  readonly lora: LoraSection | 'none';
  readonly tokenizer: Tokenizer;
  readonly seed: number;
  readonly gradientCheckpointing: boolean;
  /** Head that replaces the base's. It is trained in full, and saved as transformers and PEFT do. */
  readonly head?: AdapterHead | undefined;
}

/** The trained model by the configuration: without a section `lora` every parameter is trained. */
export function configuredTrainee(
  {
    device,
    config: { model, lora = 'none', run },
    tokenizer,
  }: {
    readonly device: Device;
    readonly config: Pick<FrameConfig, 'model' | 'lora' | 'run'>;
    readonly tokenizer: Tokenizer;
  },
  head?: AdapterHead,
): Promise<Trainee> {
  const { seed, gradient_checkpointing: gradientCheckpointing } = run;
  return createTrainee(device, { model, lora, tokenizer, seed, gradientCheckpointing, head });
}

export async function createTrainee(device: Device, options: TraineeOptions): Promise<Trainee> {
  const { model, lora, gradientCheckpointing, head, seed } = options;
  const { start, merged } = adapterUse(model);
  const { holders } = dataParallel(device) ?? {};
  const load = {
    dtype: model.dtype,
    quantize: model.quantize,
    gradientCheckpointing,
    routerAuxLossCoef: model.router_aux_loss_coef,
    merged,
  };
  const { held, mark } = heldMemory(device);
  const under = (trunk: ModelConfig) => (head ? withHead(trunk, head) : trunk);
  const fresh =
    typeof model.base === 'string' ? undefined : under(newModelConfig(model.base.init, options.tokenizer));
  const directory = typeof model.base === 'string' ? baseDirectory(model.base) : undefined;
  if (lora === 'none') {
    const { decoder, parameters: trained } = fresh
      ? trainableDecoder(device, fresh, initialWeights(fresh, seed), load)
      : loadTrainableDecoder(
          device,
          directory as string,
          load,
          head && { of: under, make: ({ init, shape }, i) => draw(init, shape, seed, i) },
        );
    mark('model');
    return {
      decoder,
      held,
      role: {},
      trained,
      parameters: { model: trained },
      save: (directoryOf) => saveModel(decoder, options.tokenizer, directoryOf('model')),
      dispose() {
        trained.dispose();
        decoder.dispose();
      },
    };
  }
  if (!directory) {
    throw new StepTrainError(
      'E_CONFIG',
      'lora needs a trained base, and model.base.init starts from random weights; set lora: none or name a base',
    );
  }
  const decoder = await loadDecoder(device, directory, { ...load, holders });
  mark('base');
  try {
    const ending = under(decoder.config);
    const config = withHeadKept(loraConfig(lora, directory), head, ending);
    const adapter = await createAdapterOn(decoder, config, { seed, model: ending, start });
    mark('policy');
    const trained = adapter.trainable as TrainableParameters;
    return {
      decoder,
      role: { adapter },
      held,
      trained,
      parameters: { policy: trained },
      save: (directoryOf) => adapter.save(directoryOf('adapter')),
      dispose() {
        adapter.dispose();
        decoder.dispose();
      },
    };
  } catch (error) {
    decoder.dispose();
    throw error;
  }
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
