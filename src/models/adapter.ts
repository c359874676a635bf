/** LoRA adapters on a shared base: the low-rank pairs and the modules that are kept whole. */
import type { ModelConfig } from '../architectures/config.js';
import type { ModelHead } from '../architectures/heads.js';
import { classifierOf, modelModules } from '../architectures/table.js';
import {
  type Parameter,
  ParameterBuffer,
  type ParameterSpec,
  TrainableParameters,
} from '../autograd/parameters.js';
import { invalid } from '../native/errors.js';
import type { LoraPair } from '../ops/gemm.js';
import { keyOfSeed, philox4x32 } from '../random/philox.js';
import type { Device } from '../runtime/device.js';
import {
  type AdapterHead,
  type AdapterReader,
  adapterTensors,
  openAdapter,
  pairTensors,
  readAdapterHead,
  writeAdapter,
} from '../weights/adapter.js';
import type { LoraConfig } from '../weights/adapter-config.js';
import { readStoredF32 } from '../weights/checkpoint.js';
import { fromF32 } from '../weights/convert.js';
import { type LoraModule, type LoraPlan, loraPlan } from '../weights/lora-plan.js';
import { type Initializer, ofExperts } from '../weights/modules.js';
import { draw } from './initial-values.js';
import { concatenated, type MergedAdapter, type SavedForm } from './merged-adapter.js';

/** The key of a dropout mask, in addition to row, position and feature. */
export interface DropoutSource {
  readonly seed: number;
  readonly step: number;
  /** Number of the role, where several are trained in one step. Default 0. */
  readonly role?: number;
}

export class Adapter {
  private readonly pairs = new Map<string, LoraPair>();
  private readonly whole = new Map<string, Parameter>();
  private readonly indices = new Map<string, number>();

  constructor(
    readonly config: LoraConfig,
    readonly plan: LoraPlan,
    /** Parameters by name in `adapter_model.safetensors`. */
    private readonly parameters: ReadonlyMap<string, Parameter>,
    /** The buffer of the parameters when they are trained. */
    readonly trainable?: TrainableParameters,
    /** The `score` head among the parameters, if any; it replaces the head of the base. */
    readonly head?: ModelHead,
    /**
     * The saved form, where it differs from the trained one: one adapter joined with the adapter that is merged into
     * the weights below.
     */
    readonly form?: SavedForm,
  ) {
    const parameter = (name: string) => parameters.get(name) as Parameter;
    for (const { module, aName, bName, scaling } of plan.modules) {
      this.indices.set(module, this.indices.size);
      this.pairs.set(module, { a: parameter(aName), b: parameter(bName), scale: scaling });
    }
    for (const { weight, name } of plan.saved) this.whole.set(weight, parameter(name));
    for (const [of, experts] of ofExperts(plan.modules)) {
      const [first] = experts as [LoraModule];
      const joint = (side: 'a' | 'b') =>
        joined(
          `${of}.${side}`,
          experts.map((each) => parameter(each[`${side}Name`])),
        );
      this.indices.set(of, this.indices.get(first.module) as number);
      this.pairs.set(of, { a: joint('a'), b: joint('b'), scale: first.scaling });
    }
    for (const [of, experts] of ofExperts(plan.saved))
      this.whole.set(
        `${of}.weight`,
        joined(
          of,
          experts.map(({ name }) => parameter(name)),
        ),
      );
  }

  /** The pair of a module such as `model.layers.0.self_attn.q_proj`, or of all experts: A [E, r, in], B [E, out, r]. */
  pair(module: string): LoraPair | undefined {
    return this.pairs.get(module);
  }

  /** All its parameters. */
  all(): Iterable<Parameter> {
    return this.parameters.values();
  }

  /** The whole weight that replaces the base's, such as `score.weight`. */
  saved(weight: string): Parameter | undefined {
    return this.whole.get(weight);
  }

  /** Dropout rate of the adapter's input, in training. */
  get dropout(): number {
    return this.config.loraDropout;
  }

  /** Key of a module's dropout mask; it differs for every seed, step, module and role. */
  dropoutKey(module: string, { seed, step, role = 0 }: DropoutSource): readonly [number, number] {
    const [a, b] = philox4x32([step, this.indices.get(module) ?? 0, role, 0], keyOfSeed(seed));
    return [a, b];
  }

  /** Writes a directory that PEFT loads. Throws WeightsError for pairs of experts that it would misread. */
  async save(directory: string): Promise<void> {
    const own = async (name: string) =>
      (await (this.parameters.get(name) as Parameter).value.readFloats()) as Float32Array<ArrayBuffer>;
    const { form } = this;
    const data = async (name: string) => fromF32(await (form ? form.values(name, own) : own(name)), 'F32');
    await writeAdapter(directory, form ?? this, data);
  }

  /** Frees the adapter and the buffer of its parameters. */
  dispose(): void {
    for (const buffer of new Set([...this.all()].map((parameter) => parameter.buffer))) buffer?.dispose();
  }
}

/** Neighbours in a buffer. */
function joined(name: string, parameters: readonly Parameter[]): Parameter {
  const [{ buffer }] = parameters as [Parameter];
  const names = parameters.map((each) => each.name);
  return (buffer as ParameterBuffer).joined(name, names);
}

/**
 * A new adapter with trainable parameters, drawn from `seed` as PEFT initialises: A uniform, B zero. A `score` in
 * `modulesToSave` is of the shape that the head of `model` says, see `withHead`.
 */
export function createAdapter(
  device: Device,
  model: ModelConfig,
  config: LoraConfig,
  options: {
    readonly seed: number;
    /** First values of a weight that is kept whole; undefined: drawn, like a new head. */
    readonly wholeWeight?: (name: string) => Float32Array | undefined;
    /** First values by the name in `adapter_model.safetensors`; absent: those of a new adapter. */
    readonly first?: ((name: string) => Float32Array | undefined) | undefined;
    /** Heads that are trained in the same buffer and saved apart from the adapter. */
    readonly heads?: readonly ParameterSpec[];
    /** The adapter that is merged into the weights below. */
    readonly merged?: MergedAdapter | undefined;
  },
): Adapter {
  const plan = loraPlan(config, modelModules(model), { strictPatterns: options.first === undefined });
  const specs: ParameterSpec[] = [];
  const add = (name: string, shape: readonly number[], init: Initializer, given?: Float32Array) => {
    const values = options.first?.(name) ?? given ?? draw(init, shape, options.seed, specs.length);
    specs.push({ name, shape, init: values });
  };
  for (const { name, shape, init } of pairTensors(plan)) add(name, shape, init);
  for (const { name, weight, shape, init } of plan.saved)
    add(name, shape, init, options.wholeWeight?.(weight));
  specs.push(...(options.heads ?? []));
  const form = options.merged && concatenated(options.merged, { config, plan }, modelModules(model));
  return trainableAdapter(device, config, plan, specs, { head: scoreHead(plan, model), form });
}

/** A frozen twin of a trainable adapter, with the values that it has now. Owned by the caller, buffer included. */
export async function frozenTwin({ config, plan, trainable, head, form }: Adapter): Promise<{
  readonly adapter: Adapter;
  readonly parameters: ParameterBuffer;
}> {
  if (!trainable) throw invalid('the adapter is frozen already');
  const values = await trainable.values.readFloats();
  const specs = trainable.list.map(({ name, value }, i): ParameterSpec => {
    const offset = trainable.offsets[i] as number;
    return { name, shape: value.shape, init: values.slice(offset, offset + value.size) };
  });
  const parameters = new ParameterBuffer(trainable.device, specs);
  const byName = new Map(parameters.list.map((parameter) => [parameter.name, parameter]));
  return { adapter: new Adapter(config, plan, byName, undefined, head, form), parameters };
}

/** Opens an adapter of `model`, under the head that the adapter brings along. */
export function openAdapterOf(
  model: ModelConfig,
  directory: string,
): AdapterReader & { readonly target: ModelConfig } {
  const head = readAdapterHead(directory, classifierOf({ modelType: model.modelType }).module);
  const target = head ? withHead(model, head) : model;
  return { ...openAdapter(directory, modelModules(target)), target };
}

/** A PEFT adapter from its directory: frozen, or as the start of further training. */
export function loadAdapter(
  device: Device,
  model: ModelConfig,
  directory: string,
  { trainable = false }: { readonly trainable?: boolean } = {},
): Adapter {
  using reader = openAdapterOf(model, directory);
  const { config, plan, file, target } = reader;
  const specs = adapterTensors(plan).map(
    ({ name, shape }): ParameterSpec => ({ name, shape, init: readStoredF32(file, name) }),
  );
  const score = scoreHead(plan, target);
  if (trainable) return trainableAdapter(device, config, plan, specs, { head: score });
  const { list } = new ParameterBuffer(device, specs);
  return new Adapter(config, plan, new Map(list.map((each) => [each.name, each])), undefined, score);
}

function trainableAdapter(
  device: Device,
  config: LoraConfig,
  plan: LoraPlan,
  specs: readonly ParameterSpec[],
  { head, form }: { readonly head: ModelHead | undefined; readonly form?: SavedForm | undefined },
): Adapter {
  const trainable = new TrainableParameters(device, specs);
  const parameters = new Map(trainable.list.map((parameter) => [parameter.name, parameter]));
  return new Adapter(config, plan, parameters, trainable, head, form);
}

/** The configuration of the same trunk under a classification head. */
export function withHead(model: ModelConfig, head: AdapterHead): ModelConfig {
  const { kind, numLabels, bias } = head;
  const own = 'numLabels' in model.head ? model.head : undefined;
  const labels = head.labels ?? (own?.numLabels === numLabels ? own.labels : undefined);
  return {
    ...model,
    head: kind === 'sequence' ? { kind, numLabels, labels } : { kind, numLabels, labels, bias, dropout: 0 },
  };
}

export function scoreHead({ saved }: LoraPlan, { head }: ModelConfig): ModelHead | undefined {
  return saved.some(({ kind }) => kind === 'score') ? head : undefined;
}
