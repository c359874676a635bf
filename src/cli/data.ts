import type { Argv } from 'yargs';
import { TEMPLATE_CHOICES } from '../data/problems/choices.js';
import type { RunConfig } from '../methods/table.js';
import { SEGMENTATIONS } from '../records/segment.js';
import { columnOptions, modelOptions } from './chosen/model-options.js';
import { type RecipeArguments, recipeFile, recipeOptions } from './chosen/recipe-file.js';
import { type ArgumentsOf, argument, command, commandGroup, number, oneOf, text } from './line/command.js';
import { UsageError } from './line/error.js';
import { checkWhole } from './line/usage.js';

type BadRowArguments = ArgumentsOf<typeof badRowOption>;
type DataArguments = RecipeArguments & BadRowArguments;

const statsCommand = command({
  command: 'stats [recipe]',
  describe: 'Count solutions, labels and tokens of each part, and what was left out',
  builder: (argv) =>
    badRowOption(recipeOptions(argv)).example(
      '$0 data stats my.yaml --set data.train=steps.jsonl',
      'before training on it',
    ),
  handler: async (args) => {
    const { dataStats, formatDataStats } = await import('./data/stats.js');
    console.log(formatDataStats(await dataStats(await readConfig(args))));
  },
});

const previewCommand = command({
  command: 'preview [recipe]',
  describe: 'Show samples as the model sees them: text, ids, step spans and loss mask',
  builder: (argv) =>
    badRowOption(recipeOptions(argv))
      .option('part', { ...oneOf(['train', 'validation', 'test'], 'train'), describe: 'Part to show' })
      .option('count', { ...number, default: 2, describe: 'Samples to show' })
      .example('$0 data preview my.yaml --count 5', 'the first five samples'),
  handler: async (args) => {
    checkWhole(args, { count: 1 });
    const { dataPreview } = await import('./data/preview.js');
    const config = await readConfig(args);
    const width = Math.max(40, process.stdout.columns || 100) - 2;
    console.log(await dataPreview(config, { part: args.part, samples: args.count, width }));
  },
});

const convertCommand = command({
  command: 'convert <from> <to>',
  describe: 'Write step-labelled data of any known layout as records, one JSON line each',
  builder: (argv) =>
    badRowOption(argv)
      .positional('from', { ...argument, describe: 'File, directory, pattern or hub id, as in data.train' })
      .positional('to', { ...argument, describe: 'New .jsonl or .jsonl.gz file' })
      .option('set', {
        ...text,
        array: true,
        describe: 'Option for reading, such as --set data.neutral=negative; may be repeated',
      })
      .example('$0 data convert trl-lib/prm800k prm800k.jsonl.gz', 'from the Hugging Face hub'),
  handler: async ({ from, to, set = [], 'on-bad-row': onBadRow }) => {
    const { checkReading, convertData } = await import('./data/convert.js');
    const { formatLoadReport } = await import('../data/summary.js');
    const { parseRunConfig } = await import('../methods/config.js');
    const { resolveInputs } = await import('../run/paths.js');
    checkReading(set);
    const settings = [...set, ...badRowSetting({ 'on-bad-row': onBadRow })];
    const recipe = JSON.stringify({ method: 'sft', data: { train: from } });
    const { config, locate } = parseRunConfig(recipe, { name: 'data convert', settings });
    const { data } = await resolveInputs(config, (key) =>
      key.join('.') === 'data.train' ? 'data convert' : locate(key),
    );
    const report = await convertData(data, to, from);
    console.log([...formatLoadReport(report), `wrote ${to}`].join('\n'));
  },
});

const segmentCommand = command({
  command: 'segment <from> <to>',
  describe: 'Cut texts with chains of thought into steps by a versioned rule, with their places',
  builder: (argv) =>
    columnOptions(argv)
      .positional('from', { ...argument, describe: 'Rows with a problem and a text: a file or a pattern' })
      .positional('to', { ...argument, describe: 'New .jsonl file' })
      .option('rule', {
        ...oneOf(SEGMENTATIONS, 'thoughts/1'),
        describe: 'Rule, which a judge of such steps has too',
      })
      .example('$0 data segment r1.jsonl steps.jsonl', 'rows for label, and for a judge after that')
      .example(
        '$0 run my_steps --set data.train=labelled.jsonl --set prompt.segmentation=thoughts/1',
        'the judge then cuts texts by the same rule',
      ),
  handler: async (args) => {
    const { formatSegmented, segmentData } = await import('./data/segment.js');
    console.log(formatSegmented(await segmentData(args)));
  },
});

const problemsCommand = command({
  command: 'problems <to>',
  describe: 'Write generated word problems with their answers, one JSON line each',
  builder: (argv) =>
    argv
      .positional('to', { ...argument, describe: 'New .jsonl file' })
      .option('level', { ...oneOf([1, 2, 3, 4], 1), describe: 'Level of difficulty' })
      .option('count', { ...number, default: 2000, describe: 'Number of problems' })
      .option('part', {
        ...oneOf(['train', 'validation', 'test'], 'test'),
        describe: 'Part of the split whose computations the problems have',
      })
      .option('templates', {
        ...oneOf(TEMPLATE_CHOICES, 'seen'),
        describe: 'Templates of training, held-out ones, or all',
      })
      .option('seed', { ...number, default: 0, describe: 'The same seed gives the same problems' })
      .example('$0 data problems level2.jsonl --level 2', 'columns problem, answer, level, plan, …'),
  handler: async ({ to, level, count, part, templates, seed }) => {
    checkWhole({ count, seed }, { count: 0, seed: 0 });
    const { writeProblems } = await import('./data/problems.js');
    const levels = Array.from({ length: level }, (_, i) => (i === level - 1 ? 1 : 0));
    await writeProblems(to, { seed, samples: count, levels, part, templates });
    console.log(`${count} problems are in ${to}`);
  },
});

const plantCommand = command({
  command: 'plant <from> <to>',
  describe: 'Write worked solutions with planted errors of several kinds, each step labelled',
  builder: (argv) =>
    argv
      .positional('from', { ...argument, describe: 'Problems with worked solutions, such as GSM8K' })
      .positional('to', { ...argument, describe: 'New .jsonl file' })
      .option('kinds', {
        ...text,
        describe:
          'Kinds of errors with their shares, such as operand=2,slip=1: slip, operand, operator, relation, omitted, unit, ' +
          'double_counted, skipped, total [default: all alike]',
      })
      .option('wrong', {
        ...number,
        default: 0.6,
        describe: 'Share of the solutions with an error',
      })
      .option('max-samples', { ...number, describe: 'Max solutions [default: all]' })
      .option('apart', {
        ...text,
        array: true,
        describe: 'File whose problems are left out, such as that of a test; may be repeated',
      })
      .option('seed', { ...number, default: 0, describe: 'The same seed gives the same solutions' })
      .example(
        '$0 data plant gsm8k/train.jsonl.gz planted.jsonl --apart processbench/gsm8k.json.gz',
        'to train a judge on',
      )
      .example('$0 run base/judge --set data.train=planted.jsonl', 'the judge')
      .example('$0 eval correction runs/judge --data planted-test.jsonl', 'has a table by kind'),
  handler: async (args) => {
    checkWhole(args, { 'max-samples': 1, seed: 0 });
    const { plantErrors } = await import('./data/plant.js');
    for (const line of await plantErrors(args)) console.log(line);
  },
});

const s3cCommand = command({
  command: 's3c <recipe> <to>',
  describe: 'Make solutions with self-corrections, with wrong steps sampled from the model of the recipe',
  builder: (argv) =>
    badRowOption(recipeOptions(argv))
      .positional('to', {
        ...argument,
        describe: 'Directory for samples.jsonl; the same command again goes on there',
      })
      .option('part', {
        ...oneOf(['train', 'validation', 'test', 'all'], 'all'),
        describe: 'Part of the data to make them of',
      })
      .example(
        '$0 data s3c qwen2-math-7b_s3c_metamathqa s3c --set data.train=MetaMathQA.jsonl',
        'of MetaMathQA, with the model in this process',
      )
      .example(
        '$0 data s3c my.yaml s3c --set corrections.annotate.url=http://127.0.0.1:8000 --set corrections.annotate.model=teacher',
        'with a teacher behind an endpoint',
      ),
  handler: async (args) => {
    const { makeCorrections } = await import('./data/s3c.js');
    const { requireS3c } = await import('../methods/s3c/config.js');
    const config = requireS3c(await readConfig(args), 'the recipe is one');
    for (const line of await makeCorrections(config, args.to, args.part)) console.log(line);
  },
});

const rationalesCommand = command({
  command: 'rationales <recipe> <to>',
  describe: 'Sample reasons for labelled steps from a model, and keep those whose verdict is the label',
  builder: (argv) =>
    badRowOption(recipeOptions(modelOptions(argv)))
      .positional('to', {
        ...argument,
        describe: 'Directory for rationales.jsonl; the same command again goes on there',
      })
      .option('k', { ...number, default: 4, describe: 'Max attempts for each step' })
      .option('temperature', { ...number, default: 1, describe: 'Temperature of sampling' })
      .option('seed', { ...number, default: 0, describe: 'The same seed gives the same reasons' })
      .example(
        '$0 data rationales my.yaml reasons --model Qwen/Qwen2.5-7B-Instruct',
        'for a recipe with prompt.response_format: rationale_then_verdict',
      ),
  handler: async (args) => {
    checkWhole(args, { k: 1 });
    if (!(args.temperature > 0))
      throw new UsageError(`--temperature expects a number above 0, found ${args.temperature}`);
    const { makeRationales } = await import('./data/rationales.js');
    for (const line of await makeRationales(await readConfig(args), args.to, args)) console.log(line);
  },
});

export const dataCommand = commandGroup(
  'data',
  'Look at the data of a recipe before training on it, convert data, generate problems, planted errors, corrections or reasons',
  [
    statsCommand,
    previewCommand,
    convertCommand,
    segmentCommand,
    problemsCommand,
    plantCommand,
    s3cCommand,
    rationalesCommand,
  ],
  [
    ['$0 data stats my.yaml', 'what a run would train on'],
    ['$0 data convert trl-lib/prm800k prm800k.jsonl.gz', 'from the Hugging Face hub'],
  ],
);

function badRowOption<T>(argv: Argv<T>) {
  return argv.option('on-bad-row', {
    choices: ['error', 'skip'] as const,
    describe: 'Stop at a row that cannot be read, or skip and count it [default: data.on_bad_row]',
  });
}

function badRowSetting({ 'on-bad-row': choice }: BadRowArguments): readonly string[] {
  return choice === undefined ? [] : [`data.on_bad_row=${choice}`];
}

async function readConfig(args: DataArguments): Promise<RunConfig> {
  const { loadRunConfig } = await import('../methods/config.js');
  const { resolveInputs } = await import('../run/paths.js');
  const settings = [...(args.set ?? []), ...badRowSetting(args)];
  const { config, locate } = await loadRunConfig(recipeFile(args), settings);
  return resolveInputs(config, locate);
}
