import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { CommandModule } from 'yargs';
import { dotted } from '../config/dotted.js';
import { recipeFile, recipeOptions } from './chosen/recipe-file.js';
import { argument, command, commandGroup } from './line/command.js';

const schemaCommand: CommandModule = {
  command: 'schema',
  describe: 'Print the JSON Schema of recipes, for editors',
  builder: (argv) =>
    argv.example(
      '$0 config schema > recipe.schema.json',
      'then, as first line of a recipe: # yaml-language-server: $schema=recipe.schema.json',
    ),
  handler: async () => {
    const { recipeSchema } = await import('../methods/config.js');
    console.log(JSON.stringify(recipeSchema(), null, 1));
  },
};

const showCommand = command({
  command: 'show [recipe]',
  describe: 'Print the complete configuration of a recipe or a run, with every default and what it means',
  builder: (argv) =>
    recipeOptions(argv)
      .example('$0 config show my.yaml --set lora.r=8', 'what a run would do')
      .example('$0 config show runs/my', 'what a run does'),
  handler: async (args) => {
    const { formatRunConfig, loadRunConfig } = await import('../methods/config.js');
    const file = fileOf(args.recipe);
    const { config } = await loadRunConfig(file, args.set);
    console.log(formatRunConfig(config, { head: `The complete configuration of ${file}` }).trimEnd());
  },
});

const diffCommand = command({
  command: 'diff <from> <to>',
  describe: 'List the values in which two recipes or runs differ, defaults included',
  builder: (argv) =>
    argv
      .positional('from', { ...argument, describe: 'Recipe or run directory' })
      .positional('to', { ...argument, describe: 'Recipe or run directory' })
      .example('$0 config diff quickstart my.yaml', 'what was changed')
      .example('$0 config diff runs/a runs/b', 'why do they differ?'),
  handler: async ({ from, to }) => {
    const { loadRunConfig } = await import('../methods/config.js');
    const [a, b] = await Promise.all(
      [from, to].map(async (name) => {
        const { config } = await loadRunConfig(fileOf(name));
        return new Map(dotted(config).map(([key, value]) => [key, JSON.stringify(value)]));
      }),
    );
    const keys = [...new Set([...(a?.keys() ?? []), ...(b?.keys() ?? [])])].sort();
    const changed = keys.filter((key) => a?.get(key) !== b?.get(key));
    for (const key of changed)
      console.log(`${key}: ${a?.get(key) ?? '(no such key)'} → ${b?.get(key) ?? '(no such key)'}`);
    if (changed.length === 0) console.log('no difference');
  },
});

export const configCommand = commandGroup(
  'config',
  'Show and compare configurations, print their schema',
  [showCommand, diffCommand, schemaCommand],
  [
    ['$0 config show my.yaml', 'every key with its value'],
    ['$0 config diff quickstart my.yaml', 'what was changed'],
  ],
);

/** The path of the recipe that `name` means; for a run directory, its config.yaml. */
function fileOf(name: string | undefined): string {
  const config = name === undefined ? undefined : join(name, 'config.yaml');
  return config !== undefined && existsSync(config) ? config : recipeFile({ recipe: name } as never);
}
