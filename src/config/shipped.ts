// The recipes of the package.
import { existsSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { nearestName } from '../native/nearest.js';
import { typedCommand } from '../native/typed-command.js';
import { ConfigError } from './error.js';

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

/**
 * The file that a name means: a path, else a file of the package, with or without folder and extension.
 *
 * @throws ConfigError where there is none
 */
export function namedRecipe(
  path: string,
  folder: string = shippedFolder,
  kind: 'recipe' | 'sweep' = 'recipe',
): string {
  if (existsSync(path)) return path;
  // A mistyped folder of one's own must not become the recipe of the package.
  const found = shippedRecipe(path.replace(/^(recipes\/)?(sweeps\/)?/, ''), folder);
  if (found !== undefined) return found;
  const sweeps = join(shippedFolder, 'sweeps');
  const [other, elsewhere] = kind === 'recipe' ? ['sweep', sweeps] : ['run', shippedFolder];
  if (folder === shippedFolder || folder === sweeps)
    if (shippedRecipe(basename(path), elsewhere) !== undefined)
      throw new ConfigError(
        `${path} is a ${kind === 'recipe' ? 'sweep' : 'recipe'}: ${typedCommand(`${other} ${path}`)}`,
      );
  const nearest = nearestName(basename(path, '.yaml'), recipeNames(folder));
  const lists = `a YAML file, or one of those that ${typedCommand(`recipes ls${kind === 'sweep' ? ' sweeps' : ''}`)} lists`;
  throw new ConfigError(
    `there is no ${kind} ${path}; ${nearest === undefined ? `name ${lists}` : `did you mean ${nearest}? Name ${lists}`}`,
  );
}
