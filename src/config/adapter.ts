/** `model.adapter`: where it lies, and the section `lora` that describes it. */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { typedCommand } from '../native/typed-command.js';
import { adaptedModules, isAdapter, readAdapterConfig } from '../weights/adapter.js';
import { WeightsError } from '../weights/error.js';
import { ConfigError } from './error.js';
import type { Locate } from './issues.js';
import type { LoraConfig, ModelConfig } from './schema.js';
import { isSection } from './values.js';

/** How `model.adapter` is used: every adapter of the run starts as it, or it is merged into the weights under them. */
export function adapterUse({ adapter, adapter_mode }: Pick<ModelConfig, 'adapter' | 'adapter_mode'>): {
  readonly start: string | undefined;
  readonly merged: string | undefined;
} {
  return adapter_mode === 'stack'
    ? { start: undefined, merged: adapter }
    : { start: adapter, merged: undefined };
}

/**
 * The directory of the adapter that `path` names: itself, or that of a run.
 *
 * @param place where the path was written, the start of the sentence of an error
 * @throws ConfigError where there is none
 */
export function adapterDirectory(path: string, place: string, cwd = process.cwd()): string {
  const directory = resolve(cwd, path);
  const fail = (reason: string): never => {
    throw new ConfigError(`${place}: ${reason}`);
  };
  if (!existsSync(directory))
    fail(`model.adapter leads nowhere: there is no ${path} (looked for from ${cwd})`);
  for (const found of [directory, join(directory, 'adapter')]) if (isAdapter(found)) return found;
  if (existsSync(join(directory, 'model', 'config.json')))
    fail(`model.adapter ${path} is a run that trained every weight; name it as model.base`);
  if (existsSync(join(directory, 'config.yaml')))
    fail(
      `model.adapter ${path} is a run with no adapter yet; let it end first: ${typedCommand(`run --resume ${path}`)}`,
    );
  return fail(
    `model.adapter ${path} is no adapter: expected a directory with adapter_config.json, or a finished run`,
  );
}

/**
 * The section `lora` of an adapter. Modules that it has no names for, such as those of some layers alone, are listed in full.
 *
 * @throws WeightsError for a damaged adapter, and for one on `target_parameters`
 */
export function adapterSection(directory: string): LoraConfig {
  const config = readAdapterConfig(directory);
  if (config.targetParameters)
    throw new WeightsError(
      `${directory}: target_parameters: expected target_modules, since pairs of whole parameters can be read and not continued; set model.adapter_mode to stack, or train a new adapter`,
    );
  return {
    r: config.r,
    lora_alpha: config.loraAlpha,
    lora_dropout: config.loraDropout,
    target_modules: targetsOf(config, directory),
    use_rslora: config.useRslora,
    rank_pattern: { ...config.rankPattern },
    alpha_pattern: { ...config.alphaPattern },
    modules_to_save: config.modulesToSave.filter((name) => !isEnding(name)),
  };
}

type PeftConfig = ReturnType<typeof readAdapterConfig>;

function targetsOf(
  { targetModules, excludeModules, layersToTransform }: PeftConfig,
  directory: string,
): LoraConfig['target_modules'] {
  if (excludeModules === undefined && layersToTransform === undefined) {
    if (targetModules.kind === 'allLinear') return 'all-linear';
    if (targetModules.kind === 'names') return usedNames(targetModules.names, adaptedModules(directory));
  }
  return adaptedModules(directory);
}

/** PEFT passes over a name that fits no module; a section would be refused for it. */
function usedNames(names: readonly string[], modules: readonly string[]): string[] {
  return names.filter((name) => modules.some((module) => `.${module}`.endsWith(`.${name}`)));
}

/** Heads of classifiers and what lies before them; a method that trains one adds it itself. */
export function isEnding(name: string): boolean {
  return name === 'score' || name === 'classifier' || name.startsWith('pooler');
}

/**
 * Writes what a recipe with `model.adapter` leaves open of `lora` into `value`. A complete section needs no adapter, so that a
 * run can be read where the adapter that it began with is no longer there.
 *
 * @returns the sentence that refuses the recipe, if any
 */
export function fillLora(value: Record<string, unknown>, locate: Locate): string | undefined {
  const { model, lora = undefined } = value;
  const path = isSection(model) ? model.adapter : undefined;
  // The schema refuses a wrong type; a conflict of `none` with an adapter is reported with the other conflicts.
  if (typeof path !== 'string' || path === '' || !(lora === undefined || lora === null || isSection(lora)))
    return undefined;
  if (isSection(model) && model.adapter_mode === 'stack') {
    // A new adapter on top of another is of the recipe's own shape.
    value.lora = lora ?? {};
    return undefined;
  }
  const given = lora ?? {};
  if (KEYS.every((key) => Object.hasOwn(given, key))) return undefined;
  const place = locate(['model', 'adapter']);
  try {
    value.lora = { ...adapterSection(adapterDirectory(path, place)), ...given };
    return undefined;
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    if (error instanceof WeightsError) return `${place}: ${error.message}`;
    throw error;
  }
}

const KEYS: readonly (keyof LoraConfig)[] = [
  'r',
  'lora_alpha',
  'lora_dropout',
  'target_modules',
  'use_rslora',
  'rank_pattern',
  'alpha_pattern',
  'modules_to_save',
];
