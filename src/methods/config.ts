/** Reading and writing the configurations of the methods in the table. */
import { join } from 'node:path';
import { recipeSchema as schemaOf } from '../config/json-schema.js';
import { configReader, type LoadedConfig, type ParseOptions } from '../config/load.js';
import { methodOutline, outlineAt } from '../config/outline.js';
import { formatConfig } from '../config/write.js';
import { readRunConfig } from '../run/directory.js';
import { methodOf, methods, type RunConfig } from './table.js';

const reader = configReader<RunConfig>(methods);

/** Reads a recipe file; `settings` are the texts after `--set`. Throws ConfigError. */
export const loadRunConfig: (file: string, settings?: readonly string[]) => Promise<LoadedConfig<RunConfig>> =
  reader.load;

/** Reads a recipe that is already in memory. Throws ConfigError. */
export const parseRunConfig: (content: string, options: ParseOptions) => LoadedConfig<RunConfig> =
  reader.parse;

/** The configuration of the run in `directory`. Throws RunError where there is none, and ConfigError. */
export const configOfRun = async (directory: string): Promise<RunConfig> =>
  parseRunConfig(await readRunConfig(directory), { name: join(directory, 'config.yaml') }).config;

/** Checks an object built by a program, and fills in the defaults. Throws ConfigError. */
export const completeRunConfig: (value: unknown) => RunConfig = reader.complete;

/** `config.yaml` of a run: complete, with the meaning of every key. `head` is written above it as a comment. */
export function formatRunConfig(config: RunConfig, options: { readonly head?: string } = {}): string {
  return formatConfig(config, methodOutline(methodOf(config)), options);
}

/** Whether the method of `config` has a key, dotted. */
export function hasKey(config: RunConfig, key: string): boolean {
  return outlineAt(methodOutline(methodOf(config)), key.split('.')) !== undefined;
}

/** The method that a recipe names. Throws ConfigError. */
export const methodOfRecipe: (file: string) => string = reader.methodOf;

/** Whether a method reads the section of a dotted key. One that no method has is left to those who read it. */
export const hasSection: (method: string, key: string) => boolean = reader.hasSection;

/** The JSON Schema of recipes: recipes/recipe.schema.json. */
export const recipeSchema = () => schemaOf(methods);
