import type { CommandModule } from 'yargs';
import { UsageError } from './error.js';
import { recipeFile, shippedFolder, shippedRecipes } from './recipe-file.js';

interface RecipeArguments {
  readonly recipe: string;
}

const recipe = {
  type: 'string',
  demandOption: true,
  describe: 'The name of a recipe of the package',
} as const;

const lsCommand: CommandModule = {
  command: 'ls',
  describe: 'List the recipes of the package',
  builder: (argv) => argv.example('$0 recipes ls', 'names, and what each is for'),
  handler: () => {
    const recipes = shippedRecipes();
    const width = Math.max(...recipes.map(({ name }) => name.length));
    for (const { name, says } of recipes) console.log(`${name.padEnd(width)}  ${says.replace(/:$/, '')}`);
  },
};

const catCommand: CommandModule<unknown, RecipeArguments> = {
  command: 'cat <recipe>',
  describe: 'Print a recipe with its comments',
  builder: (argv) =>
    argv
      .positional('recipe', recipe)
      .example('$0 recipes cat quickstart', 'what steptrain run does') as never,
  handler: async (args) => {
    const { readFile } = await import('node:fs/promises');
    console.log((await readFile(recipeFile(args), 'utf8')).trimEnd());
  },
};

interface CopyArguments extends RecipeArguments {
  readonly to?: string;
}

const cpCommand: CommandModule<unknown, CopyArguments> = {
  command: 'cp <recipe> [to]',
  describe: 'Copy a recipe, to change it',
  builder: (argv) =>
    argv
      .positional('recipe', recipe)
      .positional('to', { type: 'string', describe: 'New file [default: the name of the recipe, here]' })
      .example('$0 recipes cp quickstart my.yaml', 'then: steptrain run my.yaml') as never,
  handler: async (args) => {
    const { readFile, writeFile } = await import('node:fs/promises');
    const { basename, join } = await import('node:path');
    const { systemReason } = await import('../files/error.js');
    const from = recipeFile(args);
    const to = args.to ?? basename(from);
    // Beside the original the schema is a neighbour; from elsewhere editors need its path.
    const text = (await readFile(from, 'utf8')).replace(
      '$schema=recipe.schema.json',
      `$schema=${join(shippedFolder, 'recipe.schema.json')}`,
    );
    try {
      await writeFile(to, text, { flag: 'wx' });
    } catch (error) {
      throw new UsageError(
        (error as NodeJS.ErrnoException).code === 'EEXIST'
          ? `${to} is there already; name another file`
          : `cannot write ${to}: ${systemReason(error)}`,
      );
    }
    console.log(`wrote ${to}; run it with: steptrain run ${to}`);
  },
};

export const recipesCommand: CommandModule = {
  command: 'recipes',
  describe: 'List, print and copy the recipes of the package',
  builder: (argv) =>
    argv
      .command(lsCommand)
      .command(catCommand)
      .command(cpCommand)
      .demandCommand(1, 'name ls, cat or cp')
      .example('$0 recipes ls', 'what there is')
      .example('$0 recipes cp quickstart my.yaml', 'a copy to change'),
  handler: () => {},
};
