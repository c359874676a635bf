import type { Argv } from 'yargs';
import { typedCommand } from '../native/typed-command.js';
import { recipeFile } from './chosen/recipe-file.js';
import { type ArgumentsOf, argument, command, commandGroup } from './line/command.js';
import { UsageError } from './line/error.js';

const recipeArguments = (argv: Argv) =>
  argv.positional('recipe', { ...argument, describe: 'The name of a recipe of the package' });

type RecipeArguments = ArgumentsOf<typeof recipeArguments>;

const lsCommand = command({
  command: 'ls [words..]',
  describe: 'List the recipes of the package: to try now, for your data, published set-ups, and sweeps',
  builder: (argv) =>
    argv
      .positional('words', {
        type: 'string',
        array: true,
        describe: 'Only recipes with these words in name, group or description',
      })
      .example('$0 recipes ls', 'names, and what each is for')
      .example('$0 recipes ls your data', 'those that read your rows')
      .example('$0 recipes ls grpo', 'those of a method')
      .example('$0 recipes ls sweeps', 'comparisons'),
  handler: async ({ words }) => {
    const { listing, shippedRecipes, shippedSweeps } = await import('./recipe-list.js');
    console.log(listing([...shippedRecipes(), ...shippedSweeps()], words));
  },
});

const catCommand = command({
  command: 'cat <recipe>',
  describe: 'Print a recipe with its comments',
  builder: (argv) =>
    recipeArguments(argv)
      .example('$0 recipes cat quickstart', 'what steptrain run does')
      .example('$0 config show quickstart', 'every key, explained'),
  handler: async (args) => console.log((await textOf(args)).trimEnd()),
});

const cpCommand = command({
  command: 'cp <recipe> [to]',
  describe: 'Copy a recipe, to change it',
  builder: (argv) =>
    recipeArguments(argv)
      .positional('to', { type: 'string', describe: 'New file [default: the name of the recipe, here]' })
      .example('$0 recipes cp quickstart my.yaml', 'then: steptrain run my.yaml'),
  handler: async (args) => {
    const { writeFile } = await import('node:fs/promises');
    const { basename } = await import('node:path');
    const { systemReason } = await import('../files/error.js');
    const to = args.to ?? basename(recipeFile(args));
    const text = await textOf(args, to);
    try {
      await writeFile(to, text, { flag: 'wx' });
    } catch (error) {
      throw new UsageError(
        (error as NodeJS.ErrnoException).code === 'EEXIST'
          ? `${to} is there already; name another file`
          : `cannot write ${to}: ${systemReason(error)}`,
      );
    }
    console.log(`wrote ${to}; run it with: ${typedCommand(`run ${to}`)}`);
  },
});

/** The text of a copy of the recipe. */
async function textOf(args: RecipeArguments, to?: string): Promise<string> {
  const { dirname, join, relative } = await import('node:path');
  const { shippedFolder } = await import('../config/shipped.js');
  // The path of the schema for editors. A package inside the project gets a relative one, which colleagues have too.
  const absolute = join(shippedFolder, 'recipe.schema.json');
  const isInside = to !== undefined && [to, absolute].every((path) => !relative('.', path).startsWith('..'));
  const near = isInside ? relative(dirname(to), absolute) : absolute;
  const schema = `$schema=${isInside && !near.startsWith('.') ? `./${near}` : near}`;
  const { readFile } = await import('node:fs/promises');
  return (await readFile(recipeFile(args), 'utf8')).replace(/\$schema=\S+/, schema);
}

export const recipesCommand = commandGroup(
  'recipes',
  'List, print and copy the recipes of the package',
  [lsCommand, catCommand, cpCommand],
  [
    ['$0 recipes ls', 'what there is, in groups'],
    ['$0 recipes cp quickstart my.yaml', 'a copy to change'],
  ],
);
