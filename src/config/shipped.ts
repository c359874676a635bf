// The recipes of the package.
import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const shippedFolder = fileURLToPath(new URL('../../recipes', import.meta.url));

/** The names of the recipes in `folder`, without extension. */
export function recipeNames(folder: string = shippedFolder): string[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.yaml'))
    .map((file) => basename(file, '.yaml'))
    .sort();
}

/** The file of the recipe of that name in `folder`, with or without extension. */
export function shippedRecipe(name: string, folder: string = shippedFolder): string | undefined {
  const found = recipeNames(folder).find((known) => name === known || name === `${known}.yaml`);
  return found && join(folder, `${found}.yaml`);
}
