// `steptrain recipes ls`: the recipes of the package in groups.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { recipeNames, shippedFolder } from '../config/shipped.js';
import { typedCommand } from '../native/typed-command.js';
import { formatTable } from '../terminal/table.js';
import { UsageError } from './line/error.js';

/** Groups in the order in which they are listed, with the line above each. */
export const GROUPS = {
  'try now': 'Try now: generated problems, nothing to download',
  'any model': 'Any model: --set model.base=FILE.gguf, a directory or a hub id',
  'your data': 'Your data: give rows with --set data.train=FILE',
  'published set-ups': 'Published set-ups: models and data sets of publications',
  sweeps: 'Sweeps: runs compared, by steptrain sweep NAME (--dry-run says how many)',
} as const;
export type Group = keyof typeof GROUPS;

export interface ListedRecipe {
  readonly name: string;
  /** The first sentence of its comment. */
  readonly says: string;
  readonly group: Group;
  /** Whether the package has ever trained it, as its comment says. */
  readonly neverTrained: boolean;
}

/** The recipes of the package by name. */
export function shippedRecipes(): ListedRecipe[] {
  return recipeNames().map((name) =>
    described(name, readFileSync(join(shippedFolder, `${name}.yaml`), 'utf8')),
  );
}

/** The sweeps of the package by name. */
export function shippedSweeps(): ListedRecipe[] {
  const folder = join(shippedFolder, 'sweeps');
  return recipeNames(folder).map((name) => ({
    ...described(name, readFileSync(join(folder, `${name}.yaml`), 'utf8')),
    group: 'sweeps',
  }));
}

/** The group and purpose of a recipe: a line `# group: GROUP[, never trained]` precedes the purpose. */
export function described(name: string, text: string): ListedRecipe {
  const [, group = 'try now', mark] = /^# group: ([^,\n]+)(, never trained)?$/m.exec(text) ?? [];
  const comment = /^# (?!yaml-language-server|group:)(.*(?:\n# .*)*)/m.exec(text);
  const words = (comment?.[1] ?? '').replaceAll(/\s*\n# */g, ' ');
  const says = (/^.*?[.:](?= |$)/.exec(words)?.[0] ?? words).replace(/[.:]$/, '');
  return { name, says, group: group as Group, neverTrained: mark !== undefined };
}

/**
 * @param words texts that all have to occur in name, group or description; none for every recipe
 * @throws UsageError where no recipe has them
 */
export function listing(recipes: readonly ListedRecipe[], words: readonly string[] = []): string {
  const wanted = words.map((word) => word.toLowerCase());
  const found = recipes.filter((recipe) => {
    const text = [recipe.name, recipe.group, recipe.says, recipe.neverTrained ? MARK : '']
      .join(' ')
      .toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  if (found.length === 0)
    throw new UsageError(
      `no recipe has ${words.join(' and ')} in it; ${typedCommand('recipes ls')} lists all ${recipes.length}`,
    );
  const blocks = Object.entries(GROUPS).flatMap(([group, title]) => {
    // The quick ones come first.
    const rows = found
      .filter((recipe) => recipe.group === group)
      .sort((a, b) => Number(isQuick(b)) - Number(isQuick(a)));
    if (rows.length === 0) return [];
    const cells = rows.map(({ name, says, neverTrained }) => [
      name,
      `${says}${neverTrained ? ` (${MARK})` : ''}`,
    ]);
    return [`${title}\n${formatTable(cells, { isLeft: () => true, indent: 2 })}`];
  });
  return blocks.join('\n\n');
}

const isQuick = ({ name }: ListedRecipe) => name.startsWith('quickstart');

const MARK = 'never trained';
