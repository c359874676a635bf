/** The trained model of a run that has one role: a decoder, its adapter if any, and what the optimizer updates. */
import type { TrainableParameters } from '../../autograd/parameters.js';
import type { FrameConfig } from '../../config/schema.js';
import type { Decoder, Role } from '../../models/decoder.js';
import type { Device } from '../../runtime/device.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { AdapterHead } from '../../weights/adapter.js';
import type { RoleParameters } from '../checkpoint.js';
import { dataParallel } from '../sums/data-parallel.js';
import type { HeldMemory } from './held-memory.js';
import { createRoles, type Roles, type RolesOptions, rolesOptions } from './roles.js';
import { saveModel } from './save-model.js';
import type { RoleSpec } from './spec.js';

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

export interface TraineeOptions extends RolesOptions {
  readonly tokenizer: Tokenizer;
  /** Head that replaces the base's. */
  readonly head?: AdapterHead | undefined;
}

/** The role: all weights, or an adapter. */
export const traineeRole = ({ lora = 'none' }: Pick<FrameConfig, 'lora'>, head?: AdapterHead): RoleSpec => ({
  role: lora === 'none' ? 'model' : 'policy',
  held: 'trained',
  head,
});

/** The trained model by the configuration: without a section `lora` every parameter is trained. */
export function configuredTrainee(
  { device, config, tokenizer }: TraineeContext,
  head?: AdapterHead,
): Promise<Trainee> {
  return createTrainee(device, { ...rolesOptions(config), tokenizer, head });
}

export interface TraineeContext {
  readonly device: Device;
  readonly config: Pick<FrameConfig, 'model' | 'lora' | 'run'>;
  readonly tokenizer: Tokenizer;
}

export async function createTrainee(device: Device, options: TraineeOptions): Promise<Trainee> {
  const { holders } = dataParallel(device) ?? {};
  const spec = traineeRole(options, options.head);
  return traineeOf(await createRoles(device, { ...options, holders }, [spec]), spec.role, options.tokenizer);
}

/** The one trained role of `roles`. */
export function traineeOf(
  { decoder, parameters, held, trained, dispose }: Roles,
  name: string,
  tokenizer: Tokenizer,
): Trainee {
  const { role, parameters: own } = trained(name);
  const { adapter } = role;
  return {
    decoder,
    role,
    trained: own,
    parameters,
    held,
    save: (directoryOf) =>
      adapter ? adapter.save(directoryOf('adapter')) : saveModel(decoder, tokenizer, directoryOf('model')),
    dispose,
  };
}
