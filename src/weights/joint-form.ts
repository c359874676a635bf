/**
 * The form in which PEFT reads the pairs of experts, see `joint-experts.ts`, where it would misread one pair for each expert: it takes
 * those for a model as of transformers 4, and of these only some.
 */
import { adapterConfigJson, type LoraConfig, parseAdapterConfig } from './adapter-config.js';
import { fromF32, toF32 } from './convert.js';
import { WeightsError } from './error.js';
import {
  type ExpertRanks,
  type JointLayout,
  type JointParameter,
  PARAMETERS,
  PREFIX,
  parameterOf,
} from './joint-experts.js';
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from './json.js';
import type { LoraModule, LoraPlan } from './lora-plan.js';
import { ofExperts } from './modules.js';
import type { TensorData, TensorSource } from './safetensors-writer.js';

/** The key of safetensors' metadata under which stands what this form does not say. */
const OWN = 'steptrain';

/** The modules that PEFT takes for those of experts by their names alone. */
const isOfMixture = ({ module }: LoraModule) => /\.(gate|gate_proj|up_proj|down_proj)$/.test(module);

/**
 * Whether PEFT 0.21 would compute something else, or refuse to, with a pair for each expert. It reads that where `gate_proj`, `up_proj` and
 * `down_proj` of all layers have pairs of the rank and α of the configuration, scaled by α/r. For dropout see {@link apartForm}.
 */
export function needsJointForm({ config, plan }: { readonly config: LoraConfig; readonly plan: LoraPlan }) {
  const own = plan.modules.filter(isOfMixture);
  if (!plan.mixture || own.length === 0) return false;
  const { targetModules, useRslora, excludeModules, layersToTransform, targetParameters } = config;
  const experts = own.filter(({ expert }) => expert);
  const projections = new Set(experts.map(({ module }) => module.split('.').at(-1)));
  return (
    targetParameters !== undefined ||
    useRslora ||
    (excludeModules ?? layersToTransform) !== undefined ||
    targetModules.kind === 'pattern' ||
    (targetModules.kind === 'names' && targetModules.names.some((name) => name.includes('.'))) ||
    own.some(({ module, expert }) => !expert && !module.endsWith('.gate')) ||
    (projections.size !== 3 && projections.size !== 0) ||
    own.some(({ r, alpha }) => r !== config.r || alpha !== config.loraAlpha)
  );
}

/**
 * An adapter with a pair for each expert. PEFT makes pairs of parameters from these, and refuses dropout there: the
 * file says 0, and its metadata keep the dropout.
 */
export function apartForm({ config, plan }: { readonly config: LoraConfig; readonly plan: LoraPlan }): {
  readonly config: LoraConfig;
  readonly metadata: Readonly<Record<string, string>>;
} {
  const { loraDropout } = config;
  if (loraDropout === 0 || !plan.mixture || !plan.modules.some(isOfMixture)) return { config, metadata: {} };
  return {
    config: { ...config, loraDropout: 0 },
    metadata: { [OWN]: JSON.stringify({ lora_dropout: loraDropout }) },
  };
}

/** The dropout that the metadata of a file in {@link apartForm} say. */
export function ownDropout(metadata: ReadonlyMap<string, string>, where: string): number | undefined {
  const dropout = ownOf(metadata, where)?.lora_dropout;
  if (dropout === undefined) return undefined;
  return typeof dropout === 'number' && dropout >= 0 && dropout < 1 ? dropout : damaged(where);
}

/** A tensor of the file, computed from the pairs of experts. */
export interface JointTensor {
  readonly name: string;
  readonly shape: readonly [number, number];
  /** @param read the f32 values of a tensor by its name in a file with a pair for each expert */
  values(read: (name: string) => Promise<Float32Array>): Promise<Float32Array<ArrayBuffer>>;
}

export interface JointForm {
  /** adapter_config.json */
  readonly config: JsonObject;
  /** Tensors that replace those of the experts. */
  readonly tensors: readonly JointTensor[];
  readonly metadata: Readonly<Record<string, string>>;
}

/** @param data the bytes of a tensor by its name in a file with a pair for each expert, in f32 */
export function jointSource(
  { name, shape, values }: JointTensor,
  data: (name: string) => TensorData,
): TensorSource {
  const read = async (own: string) => toF32(Uint8Array.from(await data(own)), 'F32');
  return { name, shape, dtype: 'F32', data: async () => fromF32(await values(read), 'F32') };
}

/**
 * An adapter in the joint form. {@link ownForm} reads back the same configuration and values, except for the last bit
 * of B where scalings of one parameter's parts differ.
 *
 * @throws WeightsError for an α of 0 on experts, which no factor of B undoes
 */
export function jointForm({
  config,
  plan,
}: {
  readonly config: LoraConfig;
  readonly plan: LoraPlan;
}): JointForm {
  const ranks: Record<string, Record<string, number>> = {};
  const factors: Record<string, number> = {};
  const rankPattern: Record<string, number> = {};
  const alphaPattern: Record<string, number> = {};
  const target = (parameter: string, r: number, alpha: number) => {
    rankPattern[parameter] = r;
    alphaPattern[parameter] = alpha;
  };
  const off = plan.modules.find(({ expert, alpha }) => expert && alpha === 0);
  if (off)
    throw new WeightsError(
      `lora_alpha: expected an α other than 0 of ${off.module}, since experts' pairs are written jointly; leave the module out of target_modules instead`,
    );
  const tensors: JointTensor[] = [];
  const byProjection = ofExperts(plan.modules);
  for (const experts of new Set([...byProjection.keys()].map((of) => of.replace(/\.\w+$/, '')))) {
    const has = (module: string) => byProjection.get(`${experts}.${module}`);
    ranks[experts] = {};
    for (const parameter of Object.keys(PARAMETERS) as JointParameter[]) {
      const parts = PARAMETERS[parameter].map((module) => has(module));
      const [first] = parts.flatMap((part) => part?.[0] ?? []);
      if (!first) continue;
      const joint = parts.reduce((sum, part) => sum + (part?.[0]?.r ?? 0), 0);
      for (const [i, module] of PARAMETERS[parameter].entries())
        if (parts[i]?.[0]) {
          const { r, scaling } = parts[i][0];
          ranks[experts][module] = r;
          if (scaling !== first.scaling) factors[`${experts}.${module}`] = scaling / first.scaling;
        }
      // The scaling is that of the first part.
      const growth = joint / first.r;
      target(
        parameterOf({ name: '', ...first }),
        joint,
        first.alpha * (config.useRslora ? Math.sqrt(growth) : growth),
      );
      // PEFT wraps the first inside the second.
      const inner = parameter === 'gate_up_proj' && has('down_proj') ? '.base_layer' : '';
      const name = (side: string) => `${PREFIX}${experts}${inner}.lora_${side}.weight`;
      tensors.push(jointA(name('A'), parts, joint), jointB(name('B'), parts, joint, first.scaling));
    }
  }
  const others = plan.modules.filter(({ expert }) => !expert);
  // Given by module name, PEFT would take them for the experts' modules.
  for (const pair of others.filter(isOfMixture)) target(`${pair.module}.weight`, pair.r, pair.alpha);
  const written: LoraConfig = {
    ...config,
    loraDropout: 0,
    targetModules: {
      kind: 'names',
      names: others.filter((pair) => !isOfMixture(pair)).map(({ module }) => module),
    },
    targetParameters: Object.keys(rankPattern),
    excludeModules: undefined,
    layersToTransform: undefined,
    layersPattern: undefined,
    // The first that fits counts.
    rankPattern: { ...rankPattern, ...config.rankPattern, ...rankPattern },
    alphaPattern: { ...alphaPattern, ...config.alphaPattern, ...alphaPattern },
  };
  const own = { config: adapterConfigJson(config, 'all-linear'), ranks, factors };
  return {
    config: adapterConfigJson(written, []),
    tensors,
    metadata: { [OWN]: JSON.stringify(own) },
  };
}

type Part = readonly LoraModule[] | undefined;

/** A as [E·r, in]: each expert's rows, part by part. */
function jointA(name: string, parts: readonly Part[], joint: number): JointTensor {
  const [{ length, 0: first }] = parts.filter((part) => part !== undefined) as [readonly LoraModule[]];
  const inputs = (first as LoraModule).aShape[1];
  return {
    name,
    shape: [length * joint, inputs],
    async values(read) {
      const values = new Float32Array(length * joint * inputs);
      let at = 0;
      for (let e = 0; e < length; e++)
        for (const part of parts) {
          if (!part) continue;
          const own = await read((part[e] as LoraModule).aName);
          values.set(own, at);
          at += own.length;
        }
      return values;
    },
  };
}

/**
 * B as [out, r·E]: a block of rows and ranks for each part, zeros elsewhere. Where scalings differ, B takes up the
 * difference.
 */
function jointB(name: string, parts: readonly Part[], joint: number, scaling: number): JointTensor {
  const [{ length, 0: first }] = parts.filter((part) => part !== undefined) as [readonly LoraModule[]];
  const rows = (first as LoraModule).bShape[0];
  return {
    name,
    shape: [parts.length * rows, joint * length],
    async values(read) {
      const values = new Float32Array(parts.length * rows * joint * length);
      let from = 0;
      for (const [i, part] of parts.entries()) {
        for (const [e, { bName, r, scaling: own }] of part?.entries() ?? []) {
          const factor = own / scaling;
          const b = await read(bName);
          for (let row = 0; row < rows; row++)
            for (let k = 0; k < r; k++)
              values[((i * rows + row) * joint + from + k) * length + e] =
                factor * (b[row * r + k] as number);
        }
        from += part?.[0]?.r ?? 0;
      }
      return values;
    },
  };
}

/** Reads from the metadata of a file in the joint form the configuration before joining, and the ranks of its parts. */
export function ownForm(
  metadata: ReadonlyMap<string, string>,
  where: string,
): { readonly config: LoraConfig; readonly layout: JointLayout } | undefined {
  const own = ownOf(metadata, where);
  if (!own) return undefined;
  const fail = () => damaged(where);
  const { config, ranks, factors } = own;
  if (!isJsonObject(config) || !isJsonObject(ranks) || !isNumbers(factors)) return fail();
  for (const each of Object.values(ranks))
    if (!isNumbers(each) || !Object.values(each).every((r) => Number.isSafeInteger(r) && r > 0)) fail();
  const apart = ranks as unknown as ExpertRanks;
  return {
    config: parseAdapterConfig(config, `${where}: ${OWN}`),
    layout: { rank: (parameter) => jointRank(apart, parameter), apart, factors },
  };
}

function ownOf(metadata: ReadonlyMap<string, string>, where: string): JsonObject | undefined {
  const text = metadata.get(OWN);
  if (text === undefined) return undefined;
  const own = parseJson(text, `${where}: ${OWN}`);
  return isJsonObject(own) ? own : damaged(where);
}

function damaged(where: string): never {
  throw new WeightsError(`${where}: __metadata__: ${OWN}: expected what was written there`);
}

const isNumbers = (value: JsonValue | undefined): value is Record<string, number> =>
  isJsonObject(value) && Object.values(value).every((each) => typeof each === 'number' && each !== 0);

/** The sum of an `ExpertRanks`' parts in a parameter, undefined where it has none. */
function jointRank(ranks: ExpertRanks, parameter: string): number | undefined {
  const [, experts = '', joint] = /^(.+)\.(\w+)$/.exec(parameter) ?? [];
  const modules: readonly string[] = PARAMETERS[joint as JointParameter] ?? [];
  const sum = modules.reduce((total, module) => total + (ranks[experts]?.[module] ?? 0), 0);
  return sum || undefined;
}
