import { existsSync } from 'node:fs';
import type { Argv } from 'yargs';
import { SOURCE_NAMES } from '../../data/sources/source.js';
import { ending } from '../../native/ending.js';
import { plural } from '../../native/shown.js';
import { chosenDevice } from '../chosen/device.js';
import {
  chosenThreshold,
  MODEL_NAME,
  type NamedRun,
  QUANTIZED,
  UNSURE,
  VOTES,
  withModel,
} from '../chosen/model-options.js';
import { type ArgumentsOf, command, flag, number, text } from '../line/command.js';
import { UsageError } from '../line/error.js';
import { checkWhole } from '../line/usage.js';
import type { CorrectionOptions, ModelChoice } from './correction-task.js';
import { printEvaluation } from './output.js';

const model = { ...text, group: 'For a model that is no run:' } as const;
const prompt = { ...text, group: 'Prompt [default: as in the run]:' } as const;

type CorrectionArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  argv
    .positional('run-or-model', {
      type: 'string',
      conflicts: 'model',
      describe: `${MODEL_NAME}. A run is judged on its own test data, with thresholds chosen on its validation data`,
    })
    .option('model', { ...text, alias: 'reward-model', describe: 'The same as an option' })
    .option('adapter', { ...model, implies: 'model', describe: 'PEFT adapter directory' })
    .option('tokenizer', {
      ...model,
      implies: 'model',
      describe: 'bytes, or a directory [default: the model]',
    })
    .option('dtype', {
      ...model,
      implies: 'model',
      choices: ['f32', 'bf16'] as const,
      describe: 'Dtype of weights and activations [default: f32]',
    })
    .option('data', { ...text, describe: 'File or directory to judge [default: the test part of the run]' })
    .option('validation', {
      ...text,
      describe: 'File to choose thresholds on [default: the validation part of the run; none for a model]',
    })
    .option('source', {
      ...text,
      choices: ['auto', ...SOURCE_NAMES] as const,
      describe: 'Layout of these files [default: auto]',
    })
    .option('max-samples', {
      alias: 'max-problems',
      ...text,
      describe: 'all, or how many solutions to judge, drawn by data.seed [default: all of --data]',
    })
    .option('neutral', {
      ...text,
      choices: ['positive', 'negative', 'drop'] as const,
      describe: 'Class of neutral steps [default: as in the run]',
    })
    .option('neutral-score', {
      ...text,
      choices: ['positive', 'negative', 'drop'] as const,
      describe: 'How the class of neutral steps counts, where a model has one [default: as in the run]',
    })
    .option('by', { ...text, describe: 'A column of the data: also show the metrics of each of its values' })
    .option('on-bad-row', {
      ...text,
      choices: ['error', 'skip'] as const,
      describe:
        'A row of --data that cannot be read stops the command, or is skipped and counted [default: error]',
    })
    .option('template', { ...prompt, describe: 'compact, chat, or a text with {problem} and {steps}' })
    .option('pos-word', { ...prompt, describe: 'The word for a right step' })
    .option('neg-word', { ...prompt, describe: 'The word for a wrong step' })
    .option('max-length', { ...number, group: prompt.group, describe: 'Max sequence length in tokens' })
    .option('threshold', {
      ...prompt,
      describe: 'greedy (the most likely token of all), or the least probability of a right step',
    })
    .option('unsure', { ...number, group: prompt.group, describe: UNSURE })
    .option('votes', { ...number, group: prompt.group, describe: VOTES })
    .option('quantize', QUANTIZED)
    .option('device', { ...text, default: 'auto', describe: 'auto, cpu or cuda:N' })
    .option('output', { ...text, describe: 'Directory for eval.json and verdicts.jsonl' })
    .option('json', { ...flag, describe: 'Print the report as JSON' })
    .option('details', {
      ...flag,
      describe: 'Also show other thresholds and the calibration of the probabilities',
    })
    .example('$0 eval correction runs/mine', 'the run on its test data, with thresholds and intervals')
    .example('$0 eval correction runs/mine --data processbench/ --output pb', 'on another benchmark')
    .example(
      '$0 eval correction --reward-model Qwen/Qwen2.5-Math-PRM-7B --data prmbench.jsonl',
      'a published reward model',
    )
    .example('$0 eval correction models/qwen --data steps.jsonl', 'a model without training');

export const correctionCommand = command({
  command: 'correction [run-or-model]',
  describe: 'Judge held-out steps with the model of a run, or with any model',
  builder: options,
  handler: judge,
});

async function judge(given: CorrectionArguments): Promise<void> {
  const named = [given['run-or-model'], given.model].some((name) => name !== undefined);
  const args: CorrectionArguments & NamedRun = named ? withModel(given) : given;
  const options = checkedOptions(args);
  const { evaluateCorrection, makeOutputDirectory, writeCorrection } = await import(
    '../../eval/correction.js'
  );
  const { taskOfModel, taskOfRun } = await import('./correction-task.js');
  const { createProgress } = await import('../../terminal/progress.js');
  const { openDevice } = await import('../../runtime/device.js');
  const deviceName = await chosenDevice(args.device);
  const { run } = args;
  const task =
    run === undefined
      ? await taskOfModel(modelOf(args), { ...options, data: dataOf(args) })
      : await taskOfRun(run, options);
  if (args.output !== undefined) await makeOutputDirectory(args.output);
  using device = openDevice(deviceName);
  if (task.validation.length > 0)
    console.error(
      `judging ${plural(task.test.length, 'solution')}, and ${task.validation.length} of validation, which choose thresholds`,
    );
  using progress = ending(
    createProgress({ total: task.test.length + task.validation.length, unit: 'solution' }),
  );
  const result = await evaluateCorrection(
    device,
    { ...task, judge: { ...task.judge, quantize: args.quantize } },
    (done) => progress.update(done),
  );
  progress.finish();
  if (args.output !== undefined) await writeCorrection(args.output, result, task.test, task.seen);
  await printEvaluation(result.report, args);
}

function checkedOptions(args: CorrectionArguments): CorrectionOptions {
  const { 'max-length': maxLength, 'max-samples': samples } = args;
  checkWhole(args, { 'max-length': 1 });
  if (args.data === undefined && args.validation === undefined)
    for (const name of ['source', 'on-bad-row'] as const)
      if (args[name] !== undefined)
        throw new UsageError(
          `--${name} is about the rows of --data and --validation, and a run reads its own data as its config.yaml says; leave it out`,
        );
  if (
    samples !== undefined &&
    samples !== 'all' &&
    !(Number.isSafeInteger(Number(samples)) && Number(samples) > 0)
  )
    throw new UsageError(`--max-samples expects all or a whole number of at least 1, found ${samples}`);
  return {
    data: args.data,
    validation: args.validation,
    source: args.source,
    maxSamples: samples === undefined || samples === 'all' ? samples : Number(samples),
    neutral: args.neutral,
    neutralScore: args['neutral-score'],
    by: args.by,
    onBadRow: args['on-bad-row'],
    maxLength,
    threshold: chosenThreshold(args.threshold),
    unsure: args.unsure,
    votes: args.votes,
    template: args.template,
    positiveWord: args['pos-word'],
    negativeWord: args['neg-word'],
  };
}

function modelOf({ model, adapter, tokenizer, dtype }: CorrectionArguments): ModelChoice {
  if (model !== undefined) return { model, adapter, tokenizer, dtype };
  throw new UsageError('name a run, or a model with --data FILE');
}

function dataOf({ data, model }: CorrectionArguments): string {
  if (data !== undefined) return data;
  if (model?.includes('/') && !existsSync(model))
    throw new UsageError(`there is no run ${model}; name one, or the steps to judge with --data FILE`);
  throw new UsageError(`${model} is no run with steps of its own: name those to judge with --data FILE`);
}
