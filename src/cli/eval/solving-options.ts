// Options of `steptrain eval solve`.
import type { Argv } from 'yargs';
import { LAYOUT_NAMES } from '../../data/benchmarks/layouts.js';
import { AGGREGATIONS } from '../../eval/solving/aggregation.js';
import { MAX_ROWS, modelOptions, samplingOptions } from '../chosen/model-options.js';
import { argument, flag, number, oneOf, text } from '../line/command.js';

const prompt = { ...text, group: 'Prompt:' } as const;
const answers = { group: 'Answers:' } as const;
const search = { ...number, group: 'Search:' } as const;
const rewards = { ...text, group: 'Reward models and judges:' } as const;

export function solvingOptions(argv: Argv) {
  return samplingOptions(modelOptions(argv), {
    maxNewTokens: 1024,
    temperature: '0 for one sample, else 1',
  })
    .positional('data', {
      ...argument,
      describe:
        'Problems with answers: a file (.jsonl, .json, .csv, also .gz, .parquet), a directory, a pattern or a hub id',
    })
    .option('by', { ...text, describe: 'A column of the data: also show the metrics of each of its values' })
    .option('layout', {
      ...text,
      ...oneOf(['auto', ...LAYOUT_NAMES], 'auto'),
      describe: 'Layout of the rows; auto goes by their columns',
    })
    .option('problem', {
      ...text,
      implies: 'answer',
      describe: 'Column of the problems, for files of your own',
    })
    .option('answer', { ...text, implies: 'problem', describe: 'Column of their answers' })
    .option('max-problems', { ...number, alias: 'max-samples', describe: 'Max problems, from the first' })
    .option('n', { ...number, default: 1, describe: 'Samples of each problem' })
    .option('k', {
      ...text,
      describe: 'The k of pass@k and of votes, with commas between [default: 1, 2, 4, … n]',
    })
    .option('template', {
      ...prompt,
      describe: 'Prompt with {problem}, or a file with such a text [default: that of the run, if it has one]',
    })
    .option('chat', {
      group: prompt.group,
      type: 'boolean',
      describe: 'Ask as the user of a chat [default: where the model has a chat template]',
    })
    .option('system', { ...prompt, describe: 'A system message before it' })
    .option('examples', { ...prompt, describe: 'File of problems with solutions to show before each' })
    .option('shots', {
      ...number,
      group: prompt.group,
      default: 4,
      describe: 'Number of examples, from the first',
    })
    .option('max-rows', MAX_ROWS)
    .option('expect', {
      ...answers,
      ...oneOf(['any', 'choice'], 'any'),
      describe: 'choice: where nothing marks the answer, a letter goes before a number',
    })
    .option('units', {
      ...answers,
      ...oneOf(['optional', 'required'], 'optional'),
      describe: 'Whether one side may leave its unit out',
    })
    .option('digits', {
      ...number,
      ...answers,
      default: 6,
      describe: 'Significant digits from which a decimal stands for what it is rounded from',
    })
    .option('reward-scorer', {
      ...rewards,
      describe: 'Which of its scorers: verdict, or reward, the network of a StepAMC run [default: verdict]',
    })
    .option('reward-model', {
      ...rewards,
      describe:
        'The scorer of solutions: a run, an adapter, word-problems-judge, a classification model (a directory or hub id), oracle, or a file: rows with problem and sample, as in samples.jsonl, and a score',
    })
    .option('score-column', {
      ...rewards,
      implies: 'reward-model',
      describe: 'Column of the scores in such a file [default: score]',
    })
    .option('aggregate', {
      group: rewards.group,
      ...oneOf(AGGREGATIONS, 'min'),
      describe: 'Aggregation of the step scores',
    })
    .option('until-wrong', {
      group: rewards.group,
      ...flag,
      describe: 'Only the scores up to the first step below one half',
    })
    .option('curves', {
      group: rewards.group,
      ...flag,
      describe: 'Best-of-k curves for every aggregation of the step scores',
    })
    .option('search', {
      group: search.group,
      type: 'boolean',
      describe: 'Also search step by step with the reward model, and compare with samples of as many tokens',
    })
    .option('beams', { ...search, default: 4, describe: 'Beams that are kept after each step' })
    .option('expansions', { ...search, default: 4, describe: 'Continuations of each beam by one step' })
    .option('rounds', { ...search, default: 40, describe: 'Max steps' })
    .option('step-end', {
      ...text,
      group: search.group,
      describe:
        'Text that ends a step, where \\n is a new line [default: a blank line; of generated problems a new line]',
    })
    .option('judge', {
      ...rewards,
      describe:
        'The judge of steps of right solutions: names as for --reward-model, a file of labels, or the address of a server',
    })
    .option('accept-weak-reward', {
      ...flag,
      describe: 'Accept a reward model that eval reward-model has found weak',
    })
    .option('corrections', {
      group: rewards.group,
      type: 'boolean',
      describe: 'A step that the model takes back is no error [default: of a run of method s3c]',
    })
    .option('output', {
      ...text,
      describe: 'Directory for every sample and the report; the same command again goes on there',
    })
    .option('json', { ...flag, describe: 'Print the report as JSON' });
}
