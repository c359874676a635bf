// Finds the recipe of a command.
import { existsSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { Argv } from 'yargs';
import { recipeNames, shippedFolder, shippedRecipe } from '../config/shipped.js';
import { nearestName } from '../native/nearest.js';
import { type ArgumentsOf, text } from './command.js';
import { UsageError } from './error.js';

const DEFAULT = 'quickstart.yaml';

/** Adds the options of every command that reads a recipe: the recipe and `--set`. */
export function recipeOptions<T>(argv: Argv<T>) {
  return argv
    .positional('recipe', {
      type: 'string',
      describe: 'A YAML file, or the name of a recipe of the package [default: quickstart]',
    })
    .option('set', {
      ...text,
      array: true,
      describe: 'Replace a value of the recipe, as in --set sft.learning_rate=1e-4; may be repeated',
    });
}

export type RecipeArguments = ArgumentsOf<typeof recipeOptions>;

/** The file that `recipe` names: a path, else a recipe of the package, with or without folder and extension. */
export function recipeFile({ recipe }: Partial<RecipeArguments>): string {
  return recipe === undefined ? join(shippedFolder, DEFAULT) : fileOrShipped(recipe, shippedFolder, 'recipe');
}

/** The same for a sweep. */
export function sweepFile(name: string): string {
  return fileOrShipped(name, join(shippedFolder, 'sweeps'), 'sweep');
}

function fileOrShipped(path: string, folder: string, kind: string): string {
  if (existsSync(path)) return path;
  // A mistyped folder of one's own must not become the recipe of the package.
  const found = shippedRecipe(path.replace(/^(recipes\/)?(sweeps\/)?/, ''), folder);
  if (found !== undefined) return found;
  const names = recipeNames(folder);
  const nearest = nearestName(basename(path, '.yaml'), names);
  throw new UsageError(
    `there is no ${kind} ${path}; ${nearest === undefined ? '' : `did you mean ${nearest}? `}` +
      `${nearest === undefined ? 'name' : 'Name'} a YAML file or one of ${names.join(', ')}`,
  );
}
