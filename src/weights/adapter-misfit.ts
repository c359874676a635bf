/** An adapter of another model is told by its shape, in one sentence instead of the names of all its tensors. */
import type { LoraConfig } from './adapter-config.js';
import { WeightsError } from './error.js';
import type { ModuleSpec } from './modules.js';
import type { TensorEntry } from './weights-file.js';

const PAIR = /^base_model\.model\.(.+)\.lora_([AB])\.weight$/;

/** @throws WeightsError for more layers, or layers of another width, than the model has */
export function refuseOtherModel({
  directory,
  config,
  tensors,
  modules,
}: {
  readonly directory: string;
  readonly config: LoraConfig;
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly modules: readonly ModuleSpec[];
}): void {
  const fail = (difference: string): never => {
    const { baseModel } = config;
    const base = baseModel === undefined ? '' : ` (it was trained on ${baseModel})`;
    throw new WeightsError(`${directory} is an adapter of another model${base}: ${difference}`);
  };
  const pairs = [...tensors].flatMap(([name, { shape }]) => {
    const [, module, side] = PAIR.exec(name) ?? [];
    return module === undefined ? [] : [{ module, side, shape }];
  });
  const has = layersOf(modules.map(({ name }) => name));
  const needs = layersOf(pairs.map(({ module }) => module));
  if (has > 0 && needs > has) fail(`it changes layer ${needs}, and this one has ${has}`);
  const shapes = new Map(modules.map(({ name, shape }) => [name, shape]));
  for (const { module, side, shape } of pairs) {
    const [out, input] = shapes.get(module) ?? [];
    // Of a pair, A is [rank, inputs] and B [outputs, rank].
    const [expected, found, what] = side === 'A' ? [input, shape[1], 'inputs'] : [out, shape[0], 'outputs'];
    if (expected !== undefined && found !== undefined && expected !== found)
      fail(`its ${module} has ${found} ${what}, and that of this one ${expected}`);
  }
}

/** One more than the largest number of a layer in names such as `model.layers.3.mlp.up_proj`. */
function layersOf(names: readonly string[]): number {
  return names.reduce((most, name) => Math.max(most, 1 + Number(/\.(\d+)\./.exec(name)?.[1] ?? -1)), 0);
}
