import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { CommandModule } from 'yargs';
import { recipeFile, recipeOptions } from './chosen/recipe-file.js';
import { command } from './line/command.js';

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

export const configCommand: CommandModule = {
  command: 'config',
  describe: 'Show a configuration, print the schema of recipes',
  builder: (argv) =>
    argv
      .command(showCommand)
      .command(schemaCommand)
      .demandCommand(1, 'name show or schema')
      .example('$0 config show my.yaml', 'every key with its value'),
  handler: () => {},
};

/** The path of the recipe that `name` means; for a run directory, its config.yaml. */
function fileOf(name: string | undefined): string {
  const config = name === undefined ? undefined : join(name, 'config.yaml');
  return config !== undefined && existsSync(config) ? config : recipeFile({ recipe: name } as never);
}
