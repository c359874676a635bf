// Options of the commands that write text: which model, and how it is sampled.
import type { Argv } from 'yargs';
import type { SamplingOptions } from '../generate/options.js';
import { UsageError } from './error.js';

export interface ModelArguments {
  readonly model?: string;
  readonly run?: string;
  readonly adapter?: string;
  readonly 'other-base'?: boolean;
  readonly tokenizer?: string;
  readonly dtype?: 'f32' | 'bf16';
  readonly device: string;
}

export interface SamplingArguments {
  readonly 'max-new-tokens': number;
  readonly temperature: number;
  readonly 'top-k': number;
  readonly 'top-p': number;
  readonly 'min-p': number;
  readonly seed: number;
  readonly stop?: readonly string[];
}

const text = { type: 'string', requiresArg: true } as const;
const number = { type: 'number', requiresArg: true } as const;

/** @param usual the model where none is named */
export function modelOptions(argv: Argv, usual = 'embedded'): Argv {
  const group = 'Model:';
  return argv
    .option('model', {
      ...text,
      group,
      describe: `Model directory, hub id, or one of the package: embedded, word-problems, word-problems-misread [default: ${usual}]`,
    })
    .option('run', {
      ...text,
      group,
      conflicts: ['model', 'adapter', 'tokenizer'],
      describe: 'The model that the run in this directory trained',
    })
    .option('adapter', { ...text, group, describe: 'PEFT adapter directory' })
    .option('other-base', {
      type: 'boolean',
      group,
      describe: 'Use an adapter on a model that it was not trained on',
    })
    .option('tokenizer', { ...text, group, describe: 'bytes, a directory or a hub id [default: the model]' })
    .option('dtype', {
      ...text,
      group,
      choices: ['f32', 'bf16'] as const,
      describe: 'Of weights and activations [default: f32, or as the run has it]',
    })
    .option('device', { ...text, group, default: 'auto', describe: 'auto, cpu or cuda:N' });
}

export function samplingOptions(
  argv: Argv,
  { maxNewTokens = 256, temperature = 1 }: { maxNewTokens?: number; temperature?: number | string } = {},
): Argv {
  const group = 'Sampling:';
  return argv
    .option('max-new-tokens', {
      ...number,
      group,
      default: maxNewTokens,
      describe: 'Most tokens of a sample',
    })
    .option('temperature', {
      ...number,
      group,
      // A text says what the command does by itself.
      ...(typeof temperature === 'number' ? { default: temperature } : { defaultDescription: temperature }),
      describe: '0 takes the most likely token',
    })
    .option('top-k', {
      ...number,
      group,
      default: 0,
      describe: 'Only so many of the most likely tokens; 0: all',
    })
    .option('top-p', {
      ...number,
      group,
      default: 1,
      describe: 'Only the most likely tokens of this probability together',
    })
    .option('min-p', {
      ...number,
      group,
      default: 0,
      describe: 'Only tokens at least this share as likely as the most likely',
    })
    .option('stop', {
      ...text,
      group,
      array: true,
      describe: 'A text that ends a sample, where \\n is a new line; may be repeated',
    })
    .option('seed', { ...number, group, default: 0, describe: 'The same seed gives the same samples' });
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
