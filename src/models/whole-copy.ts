/** A copy of a model's weights as a role on that model: an adapter that has no pairs and keeps every weight whole. */
import type { ModelConfig } from '../architectures/config.js';
import { modelModules } from '../architectures/table.js';
import { type ParameterSpec, TrainableParameters } from '../autograd/parameters.js';
import { type LoraConfig, PEFT_DEFAULTS } from '../weights/adapter-config.js';
import { Adapter, scoreHead } from './adapter.js';
import type { Decoder } from './decoder.js';
import { draw } from './initial-values.js';
import { readWeight } from './save.js';

/** An empty configuration of PEFT, which has no such adapters; a copy is saved as a model. */
const NO_PAIRS: LoraConfig = {
  ...PEFT_DEFAULTS,
  r: 0,
  loraAlpha: 0,
  targetModules: { kind: 'names', names: [] },
};

/**
 * A trainable copy of the weights of `decoder`, f32. `model`: its configuration under another head, see `withHead`; weights that the
 * decoder does not have are drawn from `seed`. Names are those of the model.
 */
export async function wholeCopy(
  decoder: Decoder,
  {
    seed,
    model = decoder.config,
    heads = [],
  }: {
    readonly seed: number;
    readonly model?: ModelConfig;
    /** Heads that are trained in the same buffer and saved apart from the model. */
    readonly heads?: readonly ParameterSpec[];
  },
): Promise<Adapter> {
  const saved = modelModules(model).flatMap(({ name: module, weights }) =>
    weights.map((weight) => ({ ...weight, module, weight: weight.name })),
  );
  const specs: ParameterSpec[] = [];
  for (const { name, shape, init } of saved) {
    const values = decoder.weights.has(name)
      ? await readWeight(decoder, name)
      : draw(init, shape, seed, specs.length);
    specs.push({ name, shape, init: values });
  }
  const plan = { modules: [], saved };
  const trainable = new TrainableParameters(decoder.device, [...specs, ...heads]);
  const byName = new Map(trainable.list.map((parameter) => [parameter.name, parameter]));
  return new Adapter(NO_PAIRS, plan, byName, trainable, scoreHead(plan, model));
}
