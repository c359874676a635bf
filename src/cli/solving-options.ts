// Options of `steptrain eval solve`.
import type { Argv } from 'yargs';
import { LAYOUT_NAMES, type LayoutName } from '../data/benchmarks/layouts.js';
import { AGGREGATIONS, type Aggregation } from '../eval/solving/aggregation.js';
import {
  MAX_ROWS,
  type ModelArguments,
  modelOptions,
  number,
  type SamplingArguments,
  samplingOptions,
  text,
} from './model-options.js';

export interface SolveArguments extends ModelArguments, Omit<SamplingArguments, 'temperature'> {
  readonly 'reward-run'?: string;
  readonly 'reward-scorer'?: string;
  readonly 'reward-model'?: string;
  readonly scores?: string;
  readonly 'score-column'?: string;
  readonly 'reward-oracle'?: boolean;
  readonly judge?: string;
  readonly 'judge-oracle'?: boolean;
  readonly 'accept-weak-reward': boolean;
  readonly data: string;
  readonly layout: LayoutName | 'auto';
  readonly by?: string;
  readonly problem?: string;
  readonly answer?: string;
  readonly 'max-problems'?: number;
  readonly temperature?: number;
  readonly n: number;
  readonly k?: string;
  readonly template?: string;
  readonly chat?: boolean;
  readonly system?: string;
  readonly examples?: string;
  readonly shots: number;
  readonly 'max-rows'?: number;
  readonly expect: 'any' | 'choice';
  readonly units: 'optional' | 'required';
  readonly digits: number;
  readonly aggregate: Aggregation;
  readonly 'until-wrong': boolean;
  readonly curves: boolean;
  readonly search?: boolean;
  readonly beams: number;
  readonly expansions: number;
  readonly rounds: number;
  readonly 'step-end'?: string;
  readonly corrections?: boolean;
  readonly output?: string;
  readonly json: boolean;
}

const prompt = { group: 'Prompt:' } as const;
const answers = { group: 'Answers:' } as const;
const search = { group: 'Search:' } as const;
const rewards = { group: 'Reward models and judges:' } as const;

export function solvingOptions(argv: Argv): Argv {
  return samplingOptions(modelOptions(argv), {
    maxNewTokens: 1024,
    temperature: '0 for one sample, else 1',
  })
    .positional('data', {
      type: 'string',
      demandOption: true,
      describe:
        'Problems with answers: a file (.jsonl, .json, .csv, also .gz, .parquet), a directory, a pattern or a hub id',
    })
    .option('by', {
      ...text,
      describe: 'A column of the data: also show the metrics of each of its values',
    })
    .option('layout', {
      ...text,
      choices: ['auto', ...LAYOUT_NAMES] as const,
      default: 'auto',
      describe: 'Layout of the rows; auto goes by their columns',
    })
    .option('problem', {
      ...text,
      implies: 'answer',
      describe: 'Column of the problems, for files of your own',
    })
    .option('answer', { ...text, implies: 'problem', describe: 'Column of their answers' })
    .option('max-problems', { ...number, alias: 'max-samples', describe: 'Most problems, from the first' })
    .option('n', { ...number, default: 1, describe: 'Samples of each problem' })
    .option('k', {
      ...text,
      describe: 'The k of pass@k and of votes, with commas between [default: 1, 2, 4, … n]',
    })
    .option('template', {
      ...text,
      ...prompt,
      describe:
        'Text around a problem, with {problem}, or a file of it [default: that of the run, if it has one]',
    })
    .option('chat', {
      ...prompt,
      type: 'boolean',
      describe: 'Ask as the user of a chat [default: where the model has a chat template]',
    })
    .option('system', { ...text, ...prompt, describe: 'A system message before it' })
    .option('examples', {
      ...text,
      ...prompt,
      describe: 'File of problems with solutions to show before each',
    })
    .option('shots', { ...number, ...prompt, default: 4, describe: 'How many of them, from the first' })
    .option('max-rows', MAX_ROWS)
    .option('expect', {
      ...answers,
      choices: ['any', 'choice'] as const,
      default: 'any',
      describe: 'choice: where nothing marks the answer, a letter goes before a number',
    })
    .option('units', {
      ...answers,
      choices: ['optional', 'required'] as const,
      default: 'optional',
      describe: 'Whether one side may leave its unit out',
    })
    .option('digits', {
      ...number,
      ...answers,
      default: 6,
      describe: 'Significant digits from which a decimal stands for what it is rounded from',
    })
    .option('reward-run', {
      ...text,
      ...rewards,
      describe: 'Deprecated: the same as --reward-model',
    })
    .option('reward-scorer', {
      ...text,
      ...rewards,
      describe: 'Which of its scorers: verdict, or reward, the network of a StepAMC run [default: verdict]',
    })
    .option('reward-model', {
      ...text,
      ...rewards,
      conflicts: 'reward-run',
      describe:
        'What scores solutions: a run, an adapter, word-problems for the judge of the package, a classification model (a directory or hub id), oracle, or a file of scores',
    })
    .option('reward-oracle', {
      ...rewards,
      type: 'boolean',
      conflicts: ['reward-run', 'reward-model', 'scores'],
      describe: 'The same as --reward-model oracle: the steps of generated problems, exactly',
    })
    .option('scores', {
      ...text,
      ...rewards,
      conflicts: ['reward-run', 'reward-model'],
      describe:
        'The same as --reward-model with a file: rows with problem and sample, as in samples.jsonl, and a score',
    })
    .option('score-column', { ...text, ...rewards, describe: 'Its column [default: score]' })
    .option('aggregate', {
      ...rewards,
      choices: AGGREGATIONS,
      default: 'min',
      describe: 'How the scores of steps become one',
    })
    .option('until-wrong', {
      ...rewards,
      type: 'boolean',
      default: false,
      describe: 'Only the scores up to the first step below one half',
    })
    .option('curves', {
      ...rewards,
      type: 'boolean',
      default: false,
      describe: 'The best of k for every way in which the scores of steps become one',
    })
    .option('search', {
      ...search,
      type: 'boolean',
      conflicts: 'scores',
      describe: 'Also search step by step with the reward model, beside samples for as many tokens',
    })
    .option('beams', { ...number, ...search, default: 4, describe: 'How many go on after each step' })
    .option('expansions', { ...number, ...search, default: 4, describe: 'Continuations of each by one step' })
    .option('rounds', { ...number, ...search, default: 40, describe: 'Most steps' })
    .option('step-end', {
      ...text,
      ...search,
      describe:
        'Text that ends a step, where \\n is a new line [default: a blank line; of generated problems a new line]',
    })
    .option('judge', {
      ...text,
      ...rewards,
      alias: 'judge-run',
      describe:
        'What says which steps of right solutions are wrong: names as for --reward-model, a file of labels, or the address of a server',
    })
    .option('accept-weak-reward', {
      type: 'boolean',
      default: false,
      describe: 'Also by a reward model that eval reward-model has found weak',
    })
    .option('judge-oracle', {
      ...rewards,
      type: 'boolean',
      conflicts: 'judge',
      describe: 'The same as --judge oracle, by the plan in the rows of generated problems',
    })
    .option('corrections', {
      ...rewards,
      type: 'boolean',
      describe: 'A step that the model takes back is no error [default: of a run of method s3c]',
    })
    .option('output', {
      ...text,
      describe: 'Directory for every sample and the report; the same command again goes on there',
    })
    .option('json', { type: 'boolean', default: false, describe: 'Print the report as JSON' });
}
