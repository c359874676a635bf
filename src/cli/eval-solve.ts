import type { CommandModule } from 'yargs';
import { LAYOUT_NAMES, type LayoutName } from '../data/benchmarks/layouts.js';
import { Interrupted, UsageError } from './error.js';
import {
  chosenSampling,
  type ModelArguments,
  modelOptions,
  type SamplingArguments,
  samplingOptions,
} from './model-options.js';

export interface SolveArguments extends ModelArguments, Omit<SamplingArguments, 'temperature'> {
  readonly data: string;
  readonly layout: LayoutName | 'auto';
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
  readonly 'max-rows': number;
  readonly expect: 'any' | 'choice';
  readonly units: 'optional' | 'required';
  readonly digits: number;
  readonly output?: string;
  readonly json: boolean;
}

const text = { type: 'string', requiresArg: true } as const;
const number = { type: 'number', requiresArg: true } as const;
const prompt = { group: 'Prompt:' } as const;
const answers = { group: 'Answers:' } as const;

export const solveCommand: CommandModule<unknown, SolveArguments> = {
  command: 'solve <data>',
  describe: 'Solve problems and compare the answers with the expected ones',
  builder: (argv) =>
    samplingOptions(modelOptions(argv as never), {
      maxNewTokens: 1024,
      temperature: '0 for one sample, else 1',
    })
      .positional('data', {
        type: 'string',
        demandOption: true,
        describe:
          'Problems with answers: a file (.jsonl, .json, .parquet, also .gz), a directory or a pattern',
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
      .option('max-problems', { ...number, describe: 'Most problems, from the first' })
      .option('n', { ...number, default: 1, describe: 'Samples of each problem' })
      .option('k', {
        ...text,
        describe: 'The k of pass@k and of votes, with commas between [default: 1, 2, 4, … n]',
      })
      .option('template', {
        ...text,
        ...prompt,
        describe: 'Text around a problem, with {problem}, or a file of it',
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
      .option('max-rows', { ...number, default: 64, describe: 'Most samples at a time' })
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
      .option('output', {
        ...text,
        describe: 'Directory for every sample and the report; the same command again goes on there',
      })
      .option('json', { type: 'boolean', default: false, describe: 'Print the report as JSON' })
      .example(
        '$0 eval solve gsm8k/test.jsonl --model models/qwen --output solved',
        'greedy, one sample each',
      )
      .example(
        '$0 eval solve gsm8k/test.jsonl --run runs/mine -n 8 --output solved',
        'pass@k and majority votes of eight samples',
      )
      .example(
        '$0 eval solve gsm8k/test.jsonl --model models/base --examples gsm8k/train.jsonl.gz --shots 8',
        'a base model, shown eight worked examples',
      )
      .example(
        '$0 eval solve mine.jsonl --problem task --answer result --template "{problem}\\n"',
        'a file of your own',
      ) as never,
  handler: solve,
};

async function solve(args: SolveArguments): Promise<void> {
  const sampling = checked(args);
  const { loadProblems } = await import('../data/benchmarks/load.js');
  const columns =
    args.problem === undefined || args.answer === undefined
      ? undefined
      : { problem: args.problem, answer: args.answer };
  const { files, layouts, problems } = await loadProblems(args.data, { layout: args.layout, columns });
  const examples = args.examples === undefined ? [] : (await loadProblems(args.examples)).problems;
  const template = await (await import('./solving-template.js')).templateFrom(args.template);
  const { openChosenModel } = await import('./chosen-model.js');
  const { evaluateSolving } = await import('../eval/solving/evaluate.js');
  const { formatSolvingTable } = await import('../eval/solving/report.js');
  const { untilInterrupted } = await import('./interrupt.js');
  const { device, model, tokenizer, eosTokenIds } = await openChosenModel(args);
  const interruption = untilInterrupted();
  const progress = await solvingProgress();
  try {
    const { report } = await evaluateSolving(model, tokenizer, problems.slice(0, args['max-problems']), {
      ...sampling,
      eosTokenIds,
      n: args.n,
      template,
      chat: args.chat,
      system: args.system,
      examples: examples.slice(0, args.shots),
      maxRows: args['max-rows'],
      expect: args.expect,
      units: args.units,
      digits: args.digits,
      output: args.output,
      about: {
        model: args.run ?? args.model ?? 'embedded',
        ...(args.adapter === undefined ? {} : { adapter: args.adapter }),
        files: [...files],
        layouts: [...layouts],
      },
      signal: interruption.signal,
      onProgress: progress.update,
    });
    progress.finish();
    console.log(
      args.json
        ? JSON.stringify(report, null, 2)
        : formatSolvingTable(report, { boxed: process.stdout.isTTY === true }),
    );
  } catch (error) {
    progress.finish();
    if (!interruption.signal.aborted) throw error;
    const done = `Stopped after ${progress.done} of ${progress.total} samples`;
    throw new Interrupted(
      args.output === undefined
        ? `${done}; none was kept: with --output DIR the next time can go on.`
        : `${done}; all of them are in ${args.output}, and the same command again goes on there.`,
    );
  } finally {
    interruption.dispose();
    model.dispose();
    device.dispose();
  }
}

function checked(args: SolveArguments) {
  for (const name of ['n', 'max-rows', 'max-problems', 'shots'] as const) {
    const value = args[name];
    if (value !== undefined && !(Number.isSafeInteger(value) && value > 0))
      throw new UsageError(`--${name} expects a whole number of at least 1, found ${value}`);
  }
  const ks = args.k?.split(',').map(Number);
  if (ks?.some((k) => !(Number.isSafeInteger(k) && k >= 1 && k <= args.n)))
    throw new UsageError(
      `--k expects whole numbers from 1 to ${args.n}, the samples of each problem, with commas between; found ${args.k}`,
    );
  if (!(args.digits >= 1)) throw new UsageError('--digits expects a number of at least 1');
  const { temperature = args.n === 1 ? 0 : 1 } = args;
  if (temperature === 0 && args.n > 1)
    throw new UsageError(`at --temperature 0 all ${args.n} samples of a problem are the same`);
  const { stop, ...sampling } = chosenSampling({ ...args, temperature });
  return { ...sampling, ks, ...(args.stop === undefined ? {} : { stop }) };
}

async function solvingProgress() {
  const { createProgress } = await import('../terminal/progress.js');
  let bar: ReturnType<typeof createProgress> | undefined;
  const began = performance.now();
  const state = {
    done: 0,
    total: 0,
    update({ done, total, kept, right, tokens }: import('../eval/solving/evaluate.js').SolvingProgress) {
      Object.assign(state, { done, total });
      bar ??= createProgress({ total, start: kept, unit: 'sample' });
      const seconds = (performance.now() - began) / 1000;
      bar.update(done, {
        ...(done > 0 ? { right: `${((100 * right) / done).toFixed(1)} %` } : {}),
        'tokens/s': seconds > 0 ? tokens / seconds : 0,
      });
    },
    finish: () => bar?.finish(),
  };
  return state;
}
