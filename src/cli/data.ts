import type { CommandModule } from 'yargs';
import type { RunConfig } from '../config/schema.js';
import type { Part } from '../data/split.js';
import { UsageError } from './error.js';
import { type RecipeArguments, recipeFile, recipeOptions } from './recipe-file.js';

const statsCommand: CommandModule<unknown, RecipeArguments> = {
  command: 'stats [recipe]',
  describe: 'Count solutions, labels and tokens of each part, and what was left out',
  builder: (argv) =>
    recipeOptions(argv).example(
      '$0 data stats my.yaml --set data.train=steps.jsonl',
      'before training on it',
    ) as never,
  handler: async (args) => {
    const { dataStats, formatDataStats } = await import('./data-stats.js');
    console.log(formatDataStats(await dataStats(await readConfig(args))));
  },
};

interface PreviewArguments extends RecipeArguments {
  readonly part: Part;
  readonly samples: number;
}

const previewCommand: CommandModule<unknown, PreviewArguments> = {
  command: 'preview [recipe]',
  describe: 'Show samples as the model sees them: text, ids, step spans and loss mask',
  builder: (argv) =>
    recipeOptions(argv)
      .option('part', {
        choices: ['train', 'validation', 'test'] as const,
        default: 'train',
        describe: 'Part to show',
      })
      .option('samples', { alias: 'n', type: 'number', default: 2, describe: 'Samples to show' })
      .example('$0 data preview my.yaml -n 5', 'the first five samples') as never,
  handler: async (args) => {
    if (!(Number.isSafeInteger(args.samples) && args.samples > 0)) {
      throw new UsageError('--samples expects a whole number of at least 1');
    }
    const { dataPreview } = await import('./data-preview.js');
    const config = await readConfig(args);
    const width = Math.max(40, process.stdout.columns || 100) - 2;
    console.log(await dataPreview(config, { part: args.part, samples: args.samples, width }));
  },
};

export const dataCommand: CommandModule = {
  command: 'data',
  describe: 'Look at the data of a recipe before training on it',
  builder: (argv) =>
    argv.command(statsCommand).command(previewCommand).demandCommand(1, 'name stats or preview'),
  handler: () => {},
};

async function readConfig(args: RecipeArguments): Promise<RunConfig> {
  const { loadRunConfig } = await import('../config/load.js');
  const { resolveInputs } = await import('../run/inputs.js');
  const { config, locate } = await loadRunConfig(recipeFile(args), args.set);
  return resolveInputs(config, locate);
}
