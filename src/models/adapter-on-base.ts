/**
 * A new adapter on a loaded base: weights that it keeps whole start from the base's, or all its values from another
 * adapter's.
 */
import type { ModelConfig } from '../architectures/config.js';
import { modelModules } from '../architectures/table.js';
import type { ParameterSpec } from '../autograd/parameters.js';
import { adapterTensors } from '../weights/adapter.js';
import type { LoraConfig } from '../weights/adapter-config.js';
import { readStoredF32 } from '../weights/checkpoint.js';
import { WeightsError } from '../weights/error.js';
import { loraPlan } from '../weights/lora-plan.js';
import { type Adapter, createAdapter, openAdapterOf } from './adapter.js';
import type { Decoder } from './decoder.js';
import { readWeight } from './save.js';

/**
 * Creates an adapter whose whole weights (`modules_to_save`) begin as those of the base, as in PEFT. `model`: the configuration of the base
 * under another head, see `withHead`; weights that the base does not have in its shape are drawn. `start`: directory of an adapter of the same
 * modules and ranks, whose values it begins with.
 *
 * @throws WeightsError for a `start` that does not fit, or has a head of another shape or one that `model` has not
 */
export async function createAdapterOn(
  decoder: Decoder,
  config: LoraConfig,
  {
    model = decoder.config,
    start,
    ...options
  }: {
    readonly seed: number;
    readonly model?: ModelConfig;
    readonly heads?: readonly ParameterSpec[];
    readonly start?: string | undefined;
  },
): Promise<Adapter> {
  const begun = start === undefined ? undefined : storedValues(decoder.config, start);
  if (start !== undefined && begun) {
    const tensors = adapterTensors(loraPlan(config, modelModules(model)));
    refuseOthers(start, begun, new Map(tensors.map(({ name, shape }) => [name, shape])));
  }
  const first = begun && ((name: string) => begun.get(name)?.values);
  const whole = new Map<string, Float32Array>();
  for (const { weight, shape } of loraPlan(config, modelModules(model)).saved)
    if (decoder.weights.get(weight)?.value.shape.join() === shape.join())
      whole.set(weight, await readWeight(decoder, weight));
  const wholeWeight = (name: string) => whole.get(name);
  const { merged } = decoder.options;
  return createAdapter(decoder.device, model, config, { ...options, wholeWeight, first, merged });
}

interface StoredTensor {
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** All tensors of an adapter by name. */
function storedValues(model: ModelConfig, directory: string): Map<string, StoredTensor> {
  using reader = openAdapterOf(model, directory);
  const { plan, file } = reader;
  const tensors = adapterTensors(plan);
  return new Map(tensors.map(({ name, shape }) => [name, { shape, values: readStoredF32(file, name) }]));
}

/** Refuses stored tensors that the new adapter has no use for, so that none is lost silently. */
function refuseOthers(
  directory: string,
  stored: ReadonlyMap<string, StoredTensor>,
  planned: ReadonlyMap<string, readonly number[]>,
): void {
  for (const [name, { shape }] of stored) {
    const expected = planned.get(name);
    if (expected?.join() === shape.join()) continue;
    throw new WeightsError(
      `${directory}: tensor '${name}': expected ${expected ? `[${expected.join(', ')}]` : 'none in what is trained here'}, ` +
        `found [${shape.join(', ')}]; name an adapter of the same modules, ranks and head`,
    );
  }
}
