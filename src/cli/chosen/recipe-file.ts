// Finds the recipe of a command.
import { join } from 'node:path';
import type { Argv } from 'yargs';
import { namedRecipe, shippedFolder } from '../../config/shipped.js';
import { type ArgumentsOf, text } from '../line/command.js';

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
  return recipe === undefined ? join(shippedFolder, DEFAULT) : namedRecipe(recipe);
}
