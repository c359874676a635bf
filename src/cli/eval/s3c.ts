import type { Argv } from 'yargs';
import { ending } from '../../native/ending.js';
import { MAX_ROWS, QUANTIZED } from '../chosen/model-options.js';
import { chosenProblems } from '../chosen/problems.js';
import { type ArgumentsOf, argument, command, flag, number, oneOf, text } from '../line/command.js';
import { UsageError } from '../line/error.js';
import { checkNewFile, checkWhole } from '../line/usage.js';
import { printReport } from './output.js';

type S3cArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  argv
    .positional('data', {
      ...argument,
      describe: 'Problems, as in eval solve; those of data problems are judged by the oracle',
    })
    .option('model', { ...text, demandOption: true, describe: 'Run of method s3c' })
    .option('prefixes', {
      ...text,
      describe:
        'Held-out samples after whose wrong and right steps the model continues [default: those of the run]',
    })
    .option('n', { ...number, default: 32, describe: 'Samples of each problem for votes; 0: none' })
    .option('temperature', { ...number, default: 0.7, describe: 'Temperature of these samples' })
    .option('seed', { ...number, default: 0, describe: 'The same seed gives the same samples' })
    .option('max-problems', { ...number, alias: 'max-samples', describe: 'Max problems, from the first' })
    .option('max-new-tokens', { ...number, default: 512, describe: 'Max tokens of a solution' })
    .option('max-rows', MAX_ROWS)
    .option('scope', {
      ...oneOf(['step', 'solution'], 'step'),
      describe:
        'The steps that a correction takes back: the last step, or (corrections.shape instance) all so far',
    })
    .option('quantize', QUANTIZED)
    .option('device', { ...text, default: 'auto', describe: 'auto, cpu or cuda:N' })
    .option('output', { ...text, describe: 'New .json file for the report' })
    .option('json', { ...flag, describe: 'Print the report as JSON' })
    .example(
      '$0 data problems test.jsonl --level 2 --count 500',
      'generated problems, whose oracle judges every step',
    )
    .example(
      '$0 eval s3c test.jsonl --model runs/quickstart_s3c -n 32',
      'pass@1, maj@32, corrections, triggers',
    )
    .example(
      '$0 eval s3c gsm8k/test.jsonl --model runs/mine --prefixes heldout/samples.jsonl -n 0',
      'greedy, with held-out samples of data s3c',
    );

export const s3cEvaluationCommand = command({
  command: 's3c <data>',
  describe: 'Solve problems with a model that corrects itself, and judge its corrections',
  builder: options,
  handler: evaluate,
});

async function evaluate(args: S3cArguments): Promise<void> {
  checkWhole(args, { n: 0, 'max-new-tokens': 1, 'max-rows': 1, 'max-problems': 1 });
  if (!(args.temperature > 0))
    throw new UsageError(`--temperature expects a number above 0, found ${args.temperature}`);
  checkNewFile(args.output, '.json', '--output');
  const { configOfRun } = await import('../../methods/config.js');
  const { requireS3c } = await import('../../methods/s3c/config.js');
  const config = requireS3c(await configOfRun(args.model), `${args.model} is a run`);
  const { resolveData } = await import('../../run/paths.js');
  const { problems } = await chosenProblems(await resolveData(args.data, 'test', () => 'data'));
  const { correctionPrompt, promptLead } = await import('../../methods/s3c/sequences.js');
  const { heldOutSteps } = await import('../../methods/s3c/evaluate-run.js');
  const { evaluateCorrections } = await import('../../corrections/evaluation/evaluate-corrections.js');
  const { formatCorrectionReport } = await import('../../eval/solving/corrections.js');
  const { openChosenModel } = await import('../chosen/chosen-model.js');
  const { untilInterrupted } = await import('../line/interrupt.js');
  const { solvingProgress } = await import('./solving-progress.js');
  const steps = await heldOutSteps(args.model, args.prefixes);
  using chosen = await openChosenModel({
    run: args.model,
    quantize: args.quantize,
    device: args.device,
  });
  const { model, tokenizer, eosTokenIds } = chosen;
  using interruption = ending(untilInterrupted());
  using progress = ending(await solvingProgress());
  const { format } = config;
  const prompt = correctionPrompt(tokenizer, format);
  const report = await evaluateCorrections(
    model,
    tokenizer,
    { problems: problems.slice(0, args['max-problems']), steps: steps.slice(0, args['max-problems']) },
    {
      format: { ...format, chat: prompt.chat },
      prompt: { tokens: prompt.tokens, lead: promptLead(prompt) },
      n: args.n,
      temperature: args.temperature,
      maxNewTokens: args['max-new-tokens'],
      ...(args['max-rows'] === undefined ? {} : { maxRows: args['max-rows'] }),
      seed: args.seed,
      eosTokenIds,
      scope: args.scope,
      signal: interruption.signal,
      onProgress: progress.update,
    },
  );
  progress.finish();
  if (args.output !== undefined) {
    const { writeJson } = await import('../../files/json-file.js');
    await writeJson(args.output, report);
  }
  printReport(report, args.json, formatCorrectionReport);
}
