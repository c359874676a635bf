// The recipes of the package.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const shippedFolder = fileURLToPath(new URL('../../recipes', import.meta.url));

/** The family of recipes for a model of any size. */
const FAMILY = 'base';

/** The names of the recipes in `folder`, without extension: `quickstart`, `base/judge`. */
export function recipeNames(folder: string = shippedFolder): string[] {
  const files = readdirSync(folder);
  const family = files.includes(FAMILY) ? readdirSync(join(folder, FAMILY)) : [];
  return [...files, ...family.map((file) => `${FAMILY}/${file}`)]
    .filter((name) => name.endsWith('.yaml'))
    .map((file) => file.slice(0, -'.yaml'.length))
    .sort();
}

/** The file of the recipe of that name in `folder`, with or without extension. */
export function shippedRecipe(name: string, folder: string = shippedFolder): string | undefined {
  const found = recipeNames(folder).find((known) => name === known || name === `${known}.yaml`);
  return found && join(folder, `${found}.yaml`);
}
