/** An adapter that is merged into the weights of a decoder, under the adapters that are trained there; and both as one. */
import type { ModelConfig } from '../architectures/config.js';
import { classifierOf, modelModules } from '../architectures/table.js';
import { grouped } from '../native/grouped.js';
import { linear } from '../ops/gemm.js';
import type { Tensor } from '../runtime/tensor.js';
import { adapterTensors, openAdapter, readAdapterHead } from '../weights/adapter.js';
import type { LoraConfig } from '../weights/adapter-config.js';
import { readStoredF32 } from '../weights/checkpoint.js';
import { WeightsError } from '../weights/error.js';
import { type LoraModule, type LoraPlan, loraPlan } from '../weights/lora-plan.js';
import type { ModuleSpec } from '../weights/modules.js';

type Values = Float32Array<ArrayBuffer>;

/** An adapter that was added to a decoder's weights as they were loaded, kept on the host. */
export interface MergedAdapter {
  /** Pairs by the name of the weight that each is added to. */
  readonly pairs: ReadonlyMap<string, LoraModule>;
  /**
   * Values by name in `adapter_model.safetensors`: adapters trained on top are saved together with them, even if the
   * directory is gone by then.
   */
  readonly values: ReadonlyMap<string, Float32Array<ArrayBuffer>>;
}

/** @throws WeightsError for an adapter that does not fit `model`, or that keeps weights whole */
export function readMergedAdapter(model: ModelConfig, directory: string): MergedAdapter {
  if (readAdapterHead(directory, classifierOf({ modelType: model.modelType }).module))
    refuseWhole(directory, ['a head']);
  using reader = openAdapter(directory, modelModules(model));
  const { plan, file } = reader;
  refuseWhole(
    directory,
    plan.saved.map(({ weight }) => weight),
  );
  return {
    pairs: new Map(plan.modules.map((pair) => [`${pair.module}.weight`, pair])),
    values: new Map(adapterTensors(plan).map(({ name }) => [name, readStoredF32(file, name)])),
  };
}

/** Refuses weights kept whole: they are no product that could be added, nor can two adapters be joined with them. */
function refuseWhole(directory: string, whole: readonly string[]): void {
  if (whole.length === 0) return;
  throw new WeightsError(
    `${directory}: modules_to_save: expected none in an adapter that another is stacked on, found ${whole.join(', ')}; ` +
      'continue the adapter, or merge it into its base with steptrain merge and train on the result',
  );
}

/**
 * weight += scaling·B·A, in place.
 *
 * @param weight f32 [out, in], not packed
 * @param read the values of a tensor by its name in `adapter_model.safetensors`
 */
export function addPair(
  weight: Tensor,
  { aName, bName, aShape, bShape, scaling }: LoraModule,
  read: (name: string) => Values,
): void {
  const { device } = weight;
  const [rank, inputs] = aShape;
  const a = read(aName);
  const transposed = new Float32Array(a.length);
  for (let r = 0; r < rank; r++)
    for (let k = 0; k < inputs; k++) transposed[k * rank + r] = a[r * inputs + k] as number;
  device.scope(() => {
    const b = device.tensor(read(bName), bShape);
    const product = linear(b, { name: aName, value: device.tensor(transposed, [inputs, rank]) });
    device.ops.axpy({ y: weight, x: product, factor: scaling });
  });
}

/** The form in which an adapter is saved. */
export interface SavedForm {
  readonly config: LoraConfig;
  readonly plan: LoraPlan;
  /**
   * The f32 values of a tensor of `adapter_model.safetensors`, row-major, by its name there.
   *
   * @param own the values that the adapter itself has now, by name
   */
  values(
    name: string,
    own: (name: string) => Promise<Float32Array<ArrayBuffer>>,
  ): Promise<Float32Array<ArrayBuffer>>;
}

/**
 * `first` and the adapter that is trained above it as one on the base without either: A = [A₁; A₂] and B = [s₁·B₁, s₂·B₂], of scale 1.
 * A module that `second` keeps whole holds the first's product already.
 *
 * @param modules of the base under the head of `second`
 */
export function concatenated(
  first: MergedAdapter,
  second: Pick<SavedForm, 'config' | 'plan'>,
  modules: readonly ModuleSpec[],
): SavedForm {
  const whole = new Set(second.plan.saved.map(({ module }) => module));
  const ofFirst: Part['read'] = async (name) => first.values.get(name) as Values;
  const parts = grouped(
    [
      ...Array.from(first.pairs.values(), (pair): Part => ({ pair, read: ofFirst })),
      ...second.plan.modules.map((pair): Part => ({ pair, read: (name, own) => own(name) })),
    ],
    ({ pair: { module } }) => (whole.has(module) ? undefined : module),
  );
  const ranks = new Map([...parts].map(([module, each]) => [module, sum(each.map(({ pair }) => pair.r))]));
  const config = withRanks(
    second.config,
    ranks,
    modules.map(({ name }) => name),
  );
  const plan = loraPlan(config, modules);
  const moduleOf = new Map(
    plan.modules.flatMap((pair) => [pair.aName, pair.bName].map((name) => [name, pair])),
  );
  return {
    config,
    plan,
    async values(name, own) {
      const target = moduleOf.get(name);
      if (!target) return own(name);
      const each = parts.get(target.module) as Part[];
      const values = await Promise.all(each.map(({ read }) => read(name, own)));
      const pairs = each.map(({ pair }) => pair);
      return name === target.aName ? rows(values) : columns(values, pairs, target.bShape);
    },
  };
}

interface Part {
  readonly pair: LoraModule;
  readonly read: (name: string, own: (name: string) => Promise<Values>) => Promise<Values>;
}

/** The ranks of `config` in as few patterns as there can be, since some readers of PEFT's adapters know none; α is the rank. */
function withRanks(
  config: LoraConfig,
  ranks: ReadonlyMap<string, number>,
  all: readonly string[],
): LoraConfig {
  const chosen = [...ranks.keys()];
  const ofRank = (r: number) => chosen.filter((module) => ranks.get(module) === r);
  const [r = config.r, ...others] = [...new Set(ranks.values())].sort(
    (one, other) => ofRank(other).length - ofRank(one).length,
  );
  const pattern = Object.fromEntries(
    others.flatMap((rank) => shortNames(ofRank(rank), chosen).map((name) => [name, rank])),
  );
  return {
    ...config,
    r,
    loraAlpha: r,
    useRslora: false,
    targetModules: { kind: 'names', names: shortNames(chosen, all) },
    excludeModules: undefined,
    layersToTransform: undefined,
    layersPattern: undefined,
    rankPattern: pattern,
    alphaPattern: pattern,
  };
}

/** Short names of the chosen modules: the last part of a name, where all modules that end with it are chosen. */
function shortNames(chosen: readonly string[], all: readonly string[]): string[] {
  const last = (name: string) => name.split('.').at(-1) as string;
  const others = new Set(all.filter((name) => !chosen.includes(name)).map(last));
  return [...new Set(chosen.map((name) => (others.has(last(name)) ? name : last(name))))].sort();
}

function rows(parts: readonly Values[]): Values {
  const joined = new Float32Array(sum(parts.map(({ length }) => length)));
  let offset = 0;
  for (const part of parts) {
    joined.set(part, offset);
    offset += part.length;
  }
  return joined;
}

/** [out, r₁ + r₂], each part times its scaling. */
function columns(
  parts: readonly Values[],
  pairs: readonly LoraModule[],
  [out, rank]: readonly [number, number],
): Values {
  const joined = new Float32Array(out * rank);
  let offset = 0;
  for (const [i, { r, scaling }] of pairs.entries()) {
    const part = parts[i] as Values;
    for (let row = 0; row < out; row++)
      for (let k = 0; k < r; k++) joined[row * rank + offset + k] = scaling * (part[row * r + k] as number);
    offset += r;
  }
  return joined;
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
