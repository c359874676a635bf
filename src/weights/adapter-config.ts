/**
 * `adapter_config.json` of a PEFT 0.21 LoRA adapter. Every key that PEFT writes is either understood, known not to change the maths, or
 * refused by name unless it is off.
 */
import { show, WeightsError } from './error.js';
import { Fields, isOff } from './fields.js';
import type { JsonObject, JsonValue } from './json.js';

/** The modules that get a LoRA pair. */
export type TargetModules =
  /** Names, or the last parts of names */
  | { readonly kind: 'names'; readonly names: readonly string[] }
  /** A Python regular expression over the whole name */
  | { readonly kind: 'pattern'; readonly pattern: string }
  /** All linear layers but the output head */
  | { readonly kind: 'allLinear' };

export interface LoraConfig {
  readonly r: number;
  readonly loraAlpha: number;
  readonly loraDropout: number;
  /** Scaling α/√r instead of α/r. */
  readonly useRslora: boolean;
  readonly targetModules: TargetModules;
  readonly excludeModules: TargetModules | undefined;
  /** Indices of the layers that get pairs; undefined: all. */
  readonly layersToTransform: readonly number[] | undefined;
  /** Names of the list of layers, such as `layers`; undefined: the first numbered part of a name counts. */
  readonly layersPattern: readonly string[] | undefined;
  /** Pattern over the end of module names → rank. */
  readonly rankPattern: Readonly<Record<string, number>>;
  /** Pattern over the end of module names → α. */
  readonly alphaPattern: Readonly<Record<string, number>>;
  /** true: A kaiming-uniform, B zero; 'gaussian': A normal with deviation 1/r, B zero; false: both kaiming-uniform. */
  readonly initLoraWeights: boolean | 'gaussian';
  /** Last parts of the names of modules that are trained and saved whole. */
  readonly modulesToSave: readonly string[];
  readonly taskType: string | undefined;
  readonly baseModel: string | undefined;
  /** Ends of the names of parameters with pairs, in an adapter whose file joins those of all experts. */
  readonly targetParameters?: readonly string[];
}

/** PEFT's defaults for keys that a file lacks; default targets come from the model. */
export const PEFT_DEFAULTS: Omit<LoraConfig, 'targetModules'> = {
  r: 8,
  loraAlpha: 8,
  loraDropout: 0,
  useRslora: false,
  excludeModules: undefined,
  layersToTransform: undefined,
  layersPattern: undefined,
  rankPattern: {},
  alphaPattern: {},
  initLoraWeights: true,
  modulesToSave: [],
  taskType: undefined,
  baseModel: undefined,
};

/** Keys that do not change the maths: bookkeeping, and settings of features that must be off. */
const HARMLESS: ReadonlySet<string> = new Set([
  'auto_mapping',
  'inference_mode',
  'megatron_core',
  'peft_version',
  'qalora_group_size',
  'revision',
]);

/** Features of PEFT that are not implemented, with the value that PEFT writes when they are off. */
const OFF: Readonly<Record<string, JsonValue>> = {
  alora_invocation_tokens: null,
  arrow_config: null,
  corda_config: null,
  ensure_weight_tying: false,
  eva_config: null,
  fan_in_fan_out: false,
  kasa_config: null,
  layer_replication: null,
  loftq_config: {},
  lora_bias: false,
  lora_ga_config: null,
  megatron_config: null,
  monteclora_config: null,
  target_parameters: null,
  trainable_token_indices: null,
  use_bdlora: null,
  use_dora: false,
  use_qalora: false,
  velora_config: null,
};

/** The version of PEFT whose keys are written. */
const PEFT_VERSION = '0.21.0';

/**
 * @param where the file, for errors
 * @throws WeightsError naming the key
 */
export function parseAdapterConfig(json: JsonObject, where: string): LoraConfig {
  const fields = new Fields(json, where);
  const type = fields.string('peft_type');
  if (type !== 'LORA') fields.fail('peft_type', "'LORA'; other kinds of adapter are not supported");
  const bias = fields.string('bias') ?? 'none';
  if (bias !== 'none') fields.fail('bias', "'none'; trained biases are not supported");
  const targetParameters = parseParameters(fields);
  const config: LoraConfig = {
    r: fields.integer('r', 1) ?? PEFT_DEFAULTS.r,
    loraAlpha: fields.number('lora_alpha') ?? PEFT_DEFAULTS.loraAlpha,
    loraDropout: parseDropout(fields),
    useRslora: fields.boolean('use_rslora') ?? false,
    targetModules:
      parseTargets(fields, 'target_modules') ??
      (targetParameters
        ? { kind: 'names', names: [] }
        : fields.fail('target_modules', 'a list of names or a pattern')),
    excludeModules: parseTargets(fields, 'exclude_modules'),
    ...parseLayers(fields),
    rankPattern: parsePattern(fields, 'rank_pattern', (values, key) => values.requiredInteger(key, 1)),
    alphaPattern: parsePattern(
      fields,
      'alpha_pattern',
      (values, key) => values.number(key) ?? values.fail(key, 'a number'),
    ),
    initLoraWeights: parseInit(fields),
    modulesToSave: [...new Set(fields.strings('modules_to_save') ?? [])],
    taskType: fields.string('task_type'),
    baseModel: fields.string('base_model_name_or_path'),
    ...(targetParameters ? { targetParameters } : {}),
  };
  if (targetParameters && config.targetModules.kind !== 'names')
    fields.fail('target_modules', 'a list of names beside target_parameters');
  for (const [key, value] of fields.unread()) {
    if (HARMLESS.has(key) || isOff(value)) continue;
    if (Object.hasOwn(OFF, key))
      fields.fail(key, `${JSON.stringify(OFF[key])} (this feature of PEFT is not supported)`);
    throw new WeightsError(
      `${where}: ${key}: expected only keys of PEFT ${PEFT_VERSION}, found ${show(value)}; an unknown key may change what the adapter computes`,
    );
  }
  return config;
}

/** Names of parameters that may have a pair: those of all experts of a layer, and weights of linear modules. */
function parseParameters(fields: Fields): readonly string[] | undefined {
  const parameters = fields.strings('target_parameters');
  if (!parameters?.length) return undefined;
  if (!parameters.every((entry) => /(^|\.)(gate_up_proj|down_proj|\w+\.weight)$/.test(entry)))
    fields.fail(
      'target_parameters',
      'only gate_up_proj and down_proj of experts, and weights of linear modules such as gate.weight of their router',
    );
  return parameters;
}

/**
 * The configuration as PEFT writes it.
 *
 * @param targets written as `target_modules` in place of `allLinear`, which other readers than PEFT do not know
 */
export function adapterConfigJson(config: LoraConfig, targets: readonly string[] | 'all-linear'): JsonObject {
  const { targetModules, excludeModules } = config;
  return {
    ...OFF,
    alpha_pattern: config.alphaPattern,
    auto_mapping: null,
    base_model_name_or_path: config.baseModel ?? null,
    bias: 'none',
    exclude_modules: excludeModules === undefined ? null : targetsJson(excludeModules, []),
    inference_mode: true,
    init_lora_weights: config.initLoraWeights,
    layers_pattern: config.layersPattern ?? null,
    layers_to_transform: config.layersToTransform ?? null,
    lora_alpha: config.loraAlpha,
    lora_dropout: config.loraDropout,
    megatron_core: 'megatron.core',
    modules_to_save: config.modulesToSave.length === 0 ? null : config.modulesToSave,
    peft_type: 'LORA',
    peft_version: PEFT_VERSION,
    qalora_group_size: 16,
    r: config.r,
    rank_pattern: config.rankPattern,
    revision: null,
    target_modules: targetsJson(targetModules, targets),
    target_parameters: config.targetParameters ?? null,
    task_type: config.taskType ?? null,
    use_rslora: config.useRslora,
  };
}

function targetsJson(targets: TargetModules, all: readonly string[] | 'all-linear'): JsonValue {
  if (targets.kind === 'pattern') return targets.pattern;
  return targets.kind === 'names' ? targets.names : all;
}

function parseDropout(fields: Fields): number {
  const dropout = fields.number('lora_dropout') ?? 0;
  if (dropout < 0 || dropout >= 1) fields.fail('lora_dropout', 'a number from 0 to below 1');
  return dropout;
}

function parseTargets(fields: Fields, key: string): TargetModules | undefined {
  const value = fields.value(key);
  if (value === undefined) return undefined;
  if (typeof value === 'string') {
    // PEFT knows this word only for the targets; among the exclusions it is a pattern like any other.
    if (key === 'target_modules' && value.toLowerCase() === 'all-linear') return { kind: 'allLinear' };
    return value === '' ? undefined : { kind: 'pattern', pattern: value };
  }
  const names = fields.strings(key)!;
  return names.length === 0 ? undefined : { kind: 'names', names };
}

function parseLayers(fields: Fields): Pick<LoraConfig, 'layersToTransform' | 'layersPattern'> {
  const layers = fields.integers('layers_to_transform');
  const pattern =
    typeof fields.value('layers_pattern') === 'string'
      ? [fields.string('layers_pattern')!]
      : fields.strings('layers_pattern');
  const byString = typeof fields.value('target_modules') === 'string';
  if (byString && layers !== undefined)
    fields.fail('layers_to_transform', 'nothing beside a target_modules that is a string');
  if (byString && pattern !== undefined)
    fields.fail('layers_pattern', 'nothing beside a target_modules that is a string');
  const patterns = pattern?.filter((name) => name !== '');
  if (patterns?.length && layers === undefined)
    fields.fail('layers_pattern', 'layers_to_transform beside it');
  return {
    layersToTransform: layers?.length ? layers : undefined,
    layersPattern: patterns?.length ? patterns : undefined,
  };
}

function parsePattern(
  fields: Fields,
  key: string,
  read: (values: Fields, key: string) => number,
): Readonly<Record<string, number>> {
  const values = fields.nested(key);
  if (values === undefined) return {};
  return Object.fromEntries(Object.keys(values.object).map((pattern) => [pattern, read(values, pattern)]));
}

function parseInit(fields: Fields): boolean | 'gaussian' {
  const value = fields.value('init_lora_weights') ?? true;
  if (typeof value === 'boolean') return value;
  if (typeof value === 'string' && value.toLowerCase() === 'gaussian') return 'gaussian';
  return fields.fail(
    'init_lora_weights',
    "true, false or 'gaussian'; others may change the base weights and are not supported",
  );
}
