/** The modules that an adapter changes, with names, shapes, ranks and scalings, by PEFT's matching rules. */
import type { LoraConfig, TargetModules } from './adapter-config.js';
import { show, showNames, WeightsError } from './error.js';
import { PREFIX, parameterOf } from './joint-experts.js';
import {
  type ExpertPlace,
  type Initializer,
  type ModuleKind,
  type ModuleSpec,
  ofExperts,
  type WeightSpec,
} from './modules.js';
import { byPattern, endsWithAny, idlePatterns, matchNames, translatePattern } from './name-pattern.js';

/** A pair on one linear module: y += scaling · (dropout(x) Aᵀ) Bᵀ. */
export interface LoraModule {
  /** Name, such as `model.layers.0.self_attn.q_proj`. */
  readonly module: string;
  readonly r: number;
  readonly alpha: number;
  /** α/r, or α/√r */
  readonly scaling: number;
  /** Names in `adapter_model.safetensors` */
  readonly aName: string;
  readonly bName: string;
  /** [r, in] */
  readonly aShape: readonly [number, number];
  /** [out, r] */
  readonly bShape: readonly [number, number];
  readonly aInit: Initializer;
  readonly bInit: Initializer;
  readonly expert?: ExpertPlace;
  /** See `ModuleSpec`. */
  readonly isParameter?: boolean;
}

/** A weight of `modules_to_save`, which replaces that of the base. */
export interface SavedWeight extends Pick<WeightSpec, 'kind' | 'shape' | 'expert'> {
  readonly module: string;
  /** Name in the base model, such as `score.weight` */
  readonly weight: string;
  /** Name in `adapter_model.safetensors` */
  readonly name: string;
  /** First values in a new adapter; PEFT starts from the base's. */
  readonly init: Initializer;
}

export interface LoraPlan {
  readonly modules: readonly LoraModule[];
  readonly saved: readonly SavedWeight[];
  /** Whether the model has experts that PEFT takes for modules, also if they are not among `modules`. */
  readonly mixture?: boolean;
}

export interface LoraPlanOptions {
  /** The file or section that the configuration comes from, for errors. */
  readonly where?: string;
  /** Whether an entry of `target_modules` that fits no module is refused (default); PEFT ignores it if another fits. */
  readonly strictTargets?: boolean;
  /** Whether a key of `rank_pattern` or `alpha_pattern` that fits no module with a pair is refused; PEFT ignores it. Default false. */
  readonly strictPatterns?: boolean;
}

/** Kinds of modules that may have a pair. */
const ADAPTED: ReadonlySet<ModuleKind> = new Set(['linear', 'router', 'pooler']);

/** Heads that PEFT always adds to `modules_to_save` for classification, whether the model has them or not. */
const CLASSIFIERS: readonly string[] = ['classifier', 'score'];

/**
 * @param modules every module of the base model with weights, see `modelModules`
 * @throws WeightsError when nothing fits, an entry or a pattern fits nothing, or it fits a module that cannot have an adapter
 */
export function loraPlan(
  config: LoraConfig,
  modules: readonly ModuleSpec[],
  { where = 'lora', strictTargets = true, strictPatterns = false }: LoraPlanOptions = {},
): LoraPlan {
  const names = modules.map(({ name }) => name);
  const savedModules = findSaved(config, modules, where);
  const excluded = union(
    config.excludeModules === undefined
      ? []
      : fits(config.excludeModules, names, `${where}: exclude_modules`),
    guarded(config.modulesToSave, names, `${where}: modules_to_save`),
  );
  const targeted = findTargets(config, modules, where, strictTargets);
  // In PEFT neither layers_to_transform nor exclude_modules reaches parameters, and patterns match their names.
  const asParameter = modules.map(parameterOf).map(endsWithAny(config.targetParameters ?? []));
  const places = modules.flatMap((module, index) =>
    asParameter[index]
      ? [{ module, matched: parameterOf(module) }]
      : targeted[index] && !excluded[index]
        ? [{ module, matched: module.name }]
        : [],
  );
  const chosen = places.map(({ module }) => module);
  const wrong = chosen.filter(({ kind }) => !ADAPTED.has(kind)).map(({ name }) => name);
  if (wrong.length > 0) {
    throw new WeightsError(
      `${where}: target_modules fits ${showNames(wrong)}: expected only the linear layers before the head; ` +
        'train a head whole with modules_to_save',
    );
  }
  if (chosen.length === 0)
    throw new WeightsError(
      `${where}: target_modules fits no module of the model, see its names in model.safetensors`,
    );

  const chosenNames = places.map(({ matched }) => matched);
  const ranks = byPattern(config.rankPattern, chosenNames, config.r, `${where}: rank_pattern`);
  const alphas = byPattern(config.alphaPattern, chosenNames, config.loraAlpha, `${where}: alpha_pattern`);
  if (strictPatterns) refuseIdle(config, chosenNames, where);
  const planned = chosen.map((module, index) => loraModule(config, module, ranks[index]!, alphas[index]!));
  refuseUnequalExperts(planned, where);
  const plan: LoraPlan = {
    modules: planned,
    mixture: modules.some(({ expert, isParameter }) => expert && !isParameter),
    saved: savedModules.flatMap(({ name: module, kind, weights }) =>
      weights.map(({ name: weight, shape, init }) => {
        return { module, kind, weight, name: `${PREFIX}${weight}`, shape, init };
      }),
    ),
  };
  if (strictTargets) refuseMisread(config, plan, where);
  return plan;
}

/** Whether PEFT takes a module for one of experts, by its name alone. */
export const isOfMixture = ({ module }: LoraModule) => /\.(gate|gate_proj|up_proj|down_proj)$/.test(module);

/**
 * Refuses an adapter that PEFT 0.21 would read as another one, or not at all. It takes a pair for each expert for those of a model as
 * of transformers 4, and of these it reads only pairs of one rank and α, scaled by α/r, on `gate_proj`, `up_proj` and
 * `down_proj` of all layers, or on none of them.
 *
 * @throws WeightsError naming the key that it would misread
 */
export function refuseMisread(config: LoraConfig, { modules, mixture }: LoraPlan, where: string): void {
  if (modules.some(({ isParameter }) => isParameter))
    throw new WeightsError(
      `${where}: target_parameters: expected target_modules alone: pairs on experts and routers of this model can be read and merged, and not written`,
    );
  const own = modules.filter(isOfMixture);
  if (!mixture || own.length === 0) return;
  const { targetModules, excludeModules, layersToTransform, targetParameters, useRslora } = config;
  const projections = new Set(own.flatMap(({ module, expert }) => (expert ? module.split('.').at(-1) : [])));
  const isPlain =
    targetModules.kind !== 'pattern' &&
    !(targetModules.kind === 'names' && targetModules.names.some((name) => name.includes('.')));
  const isWhole = projections.size === 3 || projections.size === 0;
  const isOnExperts = own.every(({ module, expert }) => expert || module.endsWith('.gate'));
  const misread: Readonly<Record<string, boolean>> = {
    target_parameters: targetParameters !== undefined,
    use_rslora: useRslora,
    exclude_modules: excludeModules !== undefined,
    layers_to_transform: layersToTransform !== undefined,
    'rank_pattern and alpha_pattern': own.some(
      ({ r, alpha }) => r !== config.r || alpha !== config.loraAlpha,
    ),
    target_modules: !isPlain || !isWhole || !isOnExperts,
  };
  const key = Object.keys(misread).find((name) => misread[name]);
  if (key !== undefined)
    throw new WeightsError(
      `${where}: ${key}: PEFT would misread the pairs of experts: expected in target_modules the names gate_proj, up_proj and down_proj, or none of ` +
        'these, in a model whose layers all have experts, with one rank and alpha and without use_rslora',
    );
}

/** Refuses patterns without which the plan would be the same. */
function refuseIdle(config: LoraConfig, names: readonly string[], where: string): void {
  for (const [key, patterns] of [
    ['rank_pattern', config.rankPattern],
    ['alpha_pattern', config.alphaPattern],
  ] as const) {
    const idle = idlePatterns(patterns, names, `${where}: ${key}`);
    if (idle.length > 0)
      throw new WeightsError(
        `${where}: ${key}: no module with a pair is called ${showNames(idle)}; a key is the end of a name such as ` +
          `${show(names[0])}, or a regular expression of it`,
      );
  }
}

/** The pairs of experts are multiplied in one product. */
function refuseUnequalExperts(modules: readonly LoraModule[], where: string): void {
  for (const [of, experts] of ofExperts(modules)) {
    const [{ r, alpha, expert }] = experts as [LoraModule];
    if (experts.length !== expert?.count)
      throw new WeightsError(
        `${where}: target_modules fits ${experts.length} of the ${expert?.count} experts of ${of}: expected all of them or none`,
      );
    if (experts.some((other) => other.r !== r || other.alpha !== alpha))
      throw new WeightsError(
        `${where}: rank_pattern and alpha_pattern: expected one rank and one alpha for all experts of ${of}`,
      );
  }
}

function loraModule(
  config: LoraConfig,
  { name, shape, expert, isParameter }: ModuleSpec,
  r: number,
  alpha: number,
): LoraModule {
  const [out, input] = shape as [number, number];
  const { initLoraWeights } = config;
  // kaiming_uniform with a = √5 is uniform in ±1/√(inputs), for A and B alike.
  const uniform = (inputs: number): Initializer => ({ kind: 'uniform', bound: 1 / Math.sqrt(inputs) });
  return {
    module: name,
    r,
    alpha,
    scaling: alpha / (config.useRslora ? Math.sqrt(r) : r),
    aName: `${PREFIX}${name}.lora_A.weight`,
    bName: `${PREFIX}${name}.lora_B.weight`,
    aShape: [r, input],
    bShape: [out, r],
    aInit: initLoraWeights === 'gaussian' ? { kind: 'normal', deviation: 1 / r } : uniform(input),
    bInit: initLoraWeights === false ? uniform(r) : { kind: 'zero' },
    ...(expert ? { expert } : {}),
    ...(isParameter ? { isParameter } : {}),
  };
}

function findTargets(
  config: LoraConfig,
  modules: readonly ModuleSpec[],
  where: string,
  strict: boolean,
): boolean[] {
  const names = modules.map(({ name }) => name);
  const { targetModules, layersToTransform } = config;
  if (targetModules.kind === 'allLinear') {
    // PEFT leaves out the output embedding and the head of sequence classification. Here no head gets a pair.
    return modules.map(({ kind, isParameter }) => ADAPTED.has(kind) && !isParameter);
  }
  if (targetModules.kind === 'names' && strict) {
    const unmatched = targetModules.names.filter(
      (target) => !modules.some(({ name, isParameter }) => !isParameter && endsWithAny([target])(name)),
    );
    if (unmatched.length > 0) {
      throw new WeightsError(
        `${where}: target_modules: no module of the model is called ${showNames(unmatched)}`,
      );
    }
  }
  const fitting = fits(targetModules, names, `${where}: target_modules`).map(
    (does, index) => does && !modules[index]?.isParameter,
  );
  if (targetModules.kind === 'pattern' || layersToTransform === undefined) return fitting;
  const layers = layerNumbers(config, names, where);
  return names.map((name, index) => {
    // A full name is taken whatever its layer.
    if (targetModules.names.includes(name)) return true;
    return fitting[index]! && layersToTransform.includes(layers[index] ?? -1);
  });
}

function layerNumbers(
  { layersPattern }: LoraConfig,
  names: readonly string[],
  where: string,
): (number | undefined)[] {
  if (layersPattern === undefined) return names.map((name) => numberIn(/^.*?\.[^.]*\.(\d+)\./.exec(name)));
  const patterns = layersPattern.map((pattern) => {
    const source = `(?:^|.*?\\.)(?:${translatePattern(pattern, `${where}: layers_pattern`)})\\.`;
    // The number itself is read outside of the time limit, from names that are known to fit.
    return { source: `${source}\\d+\\.`, number: new RegExp(`^${source}(?<layer>\\d+)\\.`) };
  });
  const fitting = matchNames(
    patterns.map(({ source }) => source),
    names,
    `${where}: layers_pattern`,
  );
  return names.map((name, index) => {
    const pattern = patterns.find((_, which) => fitting[which]![index]);
    const layer = pattern?.number.exec(name)?.groups?.layer;
    return layer === undefined ? undefined : Number(layer);
  });
}

function findSaved(config: LoraConfig, modules: readonly ModuleSpec[], where: string): readonly ModuleSpec[] {
  // Whether an entry names a module or one that contains it. As in PEFT, it matches the end of a name, not a whole part
  // of it.
  const fitsEntry = ({ name }: ModuleSpec, entry: string) =>
    name.endsWith(entry) || name.includes(`${entry}.`);
  const saved = modules.filter((module) => config.modulesToSave.some((entry) => fitsEntry(module, entry)));
  const unmatched = config.modulesToSave.filter(
    (entry) => !CLASSIFIERS.includes(entry) && !modules.some((module) => fitsEntry(module, entry)),
  );
  const kept = (kind: ModuleKind) => !['linear', 'router', 'norm', 'convolution'].includes(kind);
  const wrong = saved.filter(({ kind }) => !kept(kind)).map(({ name }) => name);
  if (unmatched.length + wrong.length > 0) {
    throw new WeightsError(
      `${where}: modules_to_save: expected only heads and embeddings of the model, found ${showNames([...unmatched, ...wrong])}`,
    );
  }
  const entangled = saved.filter(
    ({ kind, weights }) => kind === 'tiedEmbedding' || (kind === 'head' && weights.length === 0),
  );
  if (entangled.length > 0) {
    throw new WeightsError(
      `${where}: modules_to_save: ${showNames(entangled.map(({ name }) => name))}: the model ties its embedding to its head; saving one of them apart is not supported`,
    );
  }
  return saved;
}

function fits(targets: TargetModules, names: readonly string[], where: string): boolean[] {
  switch (targets.kind) {
    case 'names':
      return names.map(endsWithAny(targets.names));
    case 'pattern':
      return matchNames([`(?:${translatePattern(targets.pattern, where)})$`], names, where)[0]!;
    case 'allLinear':
      throw new TypeError('allLinear is not a set of names');
  }
}

/** Modules that belong to an entry of `modules_to_save`, which is a pattern here; they never get a LoRA pair. */
function guarded(entries: readonly string[], names: readonly string[], where: string): boolean[] {
  const sources = entries.map((entry) => `(?:^|.*\\.)(?:${translatePattern(entry, where)})(?:$|\\..*)`);
  const matches = sources.length === 0 ? [] : matchNames(sources, names, where);
  return names.map((_, index) => matches.some((row) => row[index]));
}

function numberIn(match: RegExpExecArray | null): number | undefined {
  return match === null ? undefined : Number(match[1]);
}

function union(a: readonly boolean[], b: readonly boolean[]): boolean[] {
  return b.map((value, index) => value || a[index] === true);
}
