// Options of the commands that write text: which model, and how it is sampled.
import type { Argv } from 'yargs';
import type { SamplingOptions } from '../../generate/options.js';
import { QUANTIZE } from '../../models/quantize.js';
import { DEFAULT_MODEL, namedModel } from '../../models/saved.js';
import { type ArgumentsOf, number, text } from '../line/command.js';
import { UsageError } from '../line/error.js';

/** Max rows at a time; without the option `roomToGenerate` chooses. */
export const MAX_ROWS = {
  ...number,
  describe:
    'Max samples at a time [default: 64 on a CPU, 256 on a GPU, fewer where memory has no room for them]',
} as const;

/** `--quantize` of every command that opens a model. */
export const QUANTIZED = {
  ...text,
  choices: QUANTIZE,
  describe: 'Linear weights in 4 or 8 bits [default: keep those that are stored so, or as the run has it]',
} as const;

/** `--unsure` of every command whose verdicts may be none. */
export const UNSURE =
  'Min probability of a verdict, from 0.5 to 1; below it the judge is unsure [default: that of the card]';

/** `--votes` of every command that a generative judge can serve. */
export const VOTES =
  'Sampled answers of a judge that reasons, which vote (Maj@k); at its temperature, or 0.7 [default: that of the card]';

/** The value of `--threshold`. @throws UsageError for what is neither a probability nor `greedy` */
export function chosenThreshold(given: string | undefined): 'greedy' | number | undefined {
  if (given === undefined || given === 'greedy') return given;
  const value = Number(given);
  if (given.trim() !== '' && value >= 0 && value <= 1) return value;
  throw new UsageError(`--threshold expects greedy or a number from 0 to 1, found ${given}`);
}

/** Accepted values of `--model`, or of an argument in its place; the same in every command. */
export const MODEL_NAME =
  'A run, an adapter, a model directory, a GGUF file, a hub id, or a model of the package';

/** The model as the first argument, for commands that take no other. */
export function modelArgument<T>(argv: Argv<T>, describe = MODEL_NAME) {
  return argv.positional('run-or-model', { type: 'string', conflicts: 'model', describe });
}

/** The columns of rows with solutions. */
export function columnOptions<T>(argv: Argv<T>) {
  return argv
    .option('problem', {
      ...text,
      describe: 'Column of the problems [default: problem, question or prompt]',
    })
    .option('solution', {
      ...text,
      describe: 'Column of the steps, a list or a text [default: steps, completions, solution, …]',
    });
}

/** `--model` of commands that read a model's files and run none. */
export function namedAs<T>(argv: Argv<T>) {
  return argv.option('model', { ...text, describe: 'The same as the argument' });
}

export type ModelArguments = Partial<ArgumentsOf<typeof modelOptions> & ArgumentsOf<typeof modelArgument>>;

/** The run that `--model` names, where it is one. */
export interface NamedRun {
  readonly run?: string | undefined;
}

export function modelOptions<T>(argv: Argv<T>, otherwise = DEFAULT_MODEL) {
  const group = 'Model:';
  const ofModel = { ...text, group } as const;
  return argv
    .option('model', {
      ...ofModel,
      describe: `${MODEL_NAME}: embedded, word-problems, word-problems-attempts, word-problems-judge, word-problems-misread, word-problems-turns [default: ${otherwise}]`,
    })
    .option('adapter', { ...ofModel, describe: 'An adapter on top of --model, where that is its base' })
    .option('other-base', {
      type: 'boolean',
      group,
      describe: 'Use an adapter on a model that it was not trained on',
    })
    .option('tokenizer', { ...ofModel, describe: 'bytes, a directory or a hub id [default: the model]' })
    .option('dtype', {
      ...ofModel,
      choices: ['f32', 'bf16'] as const,
      describe: 'Type of weights and activations [default: f32, or as the run has it]',
    })
    .option('quantize', { ...QUANTIZED, group })
    .option('device', { ...ofModel, default: 'auto', describe: 'auto, cpu or cuda:N' });
}

/**
 * The arguments with a run that `--model` names as `run`, so that its prompt, tokenizer and dtype apply; without a
 * name, `otherwise`.
 */
export function withModel<Arguments extends Partial<ModelArguments>>(
  args: Arguments,
  otherwise = DEFAULT_MODEL,
): Arguments & NamedRun {
  const { 'run-or-model': first, adapter } = args;
  const { model = first } = args;
  if (model === undefined) return adapter === undefined ? { ...args, model: otherwise } : args;
  // With a tokenizer or adapter of its own, the name gives the weights alone.
  const whole = adapter === undefined && args.tokenizer === undefined;
  return whole && namedModel(model).kind === 'run'
    ? { ...args, model: undefined, run: model }
    : { ...args, model };
}

export type SamplingArguments = ArgumentsOf<typeof samplingOptions>;

export function samplingOptions<T>(
  argv: Argv<T>,
  { maxNewTokens = 256, temperature = 1 }: { maxNewTokens?: number; temperature?: number | string } = {},
) {
  const group = 'Sampling:';
  const ofSampling = { ...number, group } as const;
  return argv
    .option('max-new-tokens', { ...ofSampling, default: maxNewTokens, describe: 'Max tokens of a sample' })
    .option('temperature', {
      ...ofSampling,
      // A text describes the default of the command.
      ...((typeof temperature === 'number'
        ? { default: temperature }
        : { defaultDescription: temperature }) as { default?: number; defaultDescription?: string }),
      describe: '0 takes the most likely token',
    })
    .option('top-k', {
      ...ofSampling,
      default: 0,
      describe: 'Only this many of the most likely tokens; 0: all',
    })
    .option('top-p', {
      ...ofSampling,
      default: 1,
      describe: 'Only the most likely tokens whose probabilities add up to this',
    })
    .option('min-p', {
      ...ofSampling,
      default: 0,
      describe: 'Only tokens with at least this share of the highest probability',
    })
    .option('stop', {
      ...text,
      group,
      array: true,
      describe: 'A text that ends a sample, where \\n is a new line; may be repeated',
    })
    .option('seed', { ...ofSampling, default: 0, describe: 'The same seed gives the same samples' });
}

/** @throws UsageError that names the option */
export function chosenSampling(args: SamplingArguments): SamplingOptions {
  const check = (name: keyof SamplingArguments, holds: (value: number) => boolean, expected: string) => {
    const value = args[name] as number;
    if (!holds(value)) throw new UsageError(`--${name} expects ${expected}, found ${value}`);
    return value;
  };
  const whole = (least: number) => (value: number) => Number.isSafeInteger(value) && value >= least;
  return {
    maxNewTokens: check('max-new-tokens', whole(1), 'a whole number of at least 1'),
    temperature: check('temperature', (value) => value >= 0 && value < Infinity, 'a number of at least 0'),
    topK: check('top-k', whole(0), 'a whole number of at least 0'),
    topP: check('top-p', (value) => value > 0 && value <= 1, 'a number above 0 and at most 1'),
    minP: check('min-p', (value) => value >= 0 && value <= 1, 'a number from 0 to 1'),
    seed: check('seed', whole(0), 'a whole number of at least 0'),
    stop: (args.stop ?? []).map((text) => text.replaceAll('\\n', '\n')),
  };
}
