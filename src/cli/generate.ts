import type { Argv } from 'yargs';
import type { SamplingOptions } from '../generate/options.js';
import type { Sample } from '../generate/rows/sample-row.js';
import type { ChosenModel } from './chosen/chosen-model.js';
import {
  chosenSampling,
  MAX_ROWS,
  modelOptions,
  type NamedRun,
  samplingOptions,
} from './chosen/model-options.js';
import type { GivenPrompt } from './generate/prompts.js';
import { type ArgumentsOf, command, flag, number, text } from './line/command.js';
import { Interrupted, UsageError } from './line/error.js';
import { checkNewFile, checkWhole } from './line/usage.js';

type GenerateArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  samplingOptions(modelOptions(argv))
    .positional('prompts', { type: 'string', array: true, describe: 'Texts to continue' })
    .option('file', {
      ...text,
      describe:
        'Prompts from rows (.jsonl, .json, .csv, .parquet), one from any other file; - is standard input',
    })
    .option('column', {
      ...text,
      default: 'prompt',
      describe: 'Column of the prompts: texts, or lists of messages',
    })
    .option('chat', { ...flag, describe: 'Put each text to the model as a message of a user' })
    .option('system', { ...text, describe: 'A system message before it' })
    .option('n', { ...number, default: 1, describe: 'Samples of each prompt' })
    .option('max-rows', MAX_ROWS)
    .option('output', {
      ...text,
      describe: 'New .jsonl file for the samples; a stopped command goes on where it was',
    })
    .option('json', { ...flag, describe: 'Print the samples as JSON lines' })
    .example(
      '$0 generate --model word-problems "Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?"',
      'a small model of the package that solves word problems',
    )
    .example('$0 generate --model models/qwen --chat "Why is the sky blue?"', 'a chat model')
    .example(
      '$0 generate --model runs/mine --file test.jsonl --column question -n 8 --output out.jsonl',
      'eight solutions a problem',
    )
    .example('$0 grade out.jsonl', 'how many of them are right')
    .example('cat prompt.txt | $0 generate --file - --stop "\\n\\n"', 'from a pipe');

export const generateCommand = command({
  command: 'generate [prompts..]',
  describe: 'Write text after prompts',
  builder: options,
  handler: generate,
});

async function generate(args: GenerateArguments): Promise<void> {
  checkWhole(args, { n: 1, 'max-rows': 1 });
  if (args.system !== undefined && !args.chat) throw new UsageError('--system needs --chat');
  const sampling = chosenSampling(args);
  const { openOutput } = await import('./generate/output.js');
  checkNewFile(args.output, '.jsonl', '--output');
  const given = await givenPrompts(args);
  const { unreadColumns, unaskedWarning } = await import('../data/benchmarks/unasked.js');
  const unread = new Map<string, number>();
  for (const { row } of given)
    for (const part of unreadColumns(row)) unread.set(part, (unread.get(part) ?? 0) + 1);
  for (const warning of unaskedWarning(unread)) console.error(`Warning: ${warning}`);
  const { openChosenModel } = await import('./chosen/chosen-model.js');
  const { Generator } = await import('../generate/generator.js');
  const { roomToGenerate } = await import('../generate/room.js');
  const { createProgress } = await import('../terminal/progress.js');
  const { untilInterrupted } = await import('./line/interrupt.js');
  using chosen = await openChosenModel(args);
  const { model, tokenizer, eosTokenIds } = chosen;
  const prompts = await tokensOf(given, args, tokenizer);
  const options = { ...sampling, n: args.n, tokenizer, eosTokenIds };
  const room = roomToGenerate(model.decoder, prompts, { ...options, maxRows: args['max-rows'] });
  const output =
    args.output === undefined
      ? undefined
      : openOutput(args.output, await settingsOf(args, options, { prompts, chosen }));
  const generator = new Generator(model.decoder, room);
  const interruption = untilInterrupted();
  const generation = generator.generate(prompts, {
    ...options,
    role: { adapter: model.adapter },
    signal: interruption.signal,
    ...(output
      ? {
          skip: output.has,
          onSample: (prompt: number, sample: number, ended: Sample) =>
            output.keep(prompt, sample, { ...given[prompt]?.row, ...sampleColumns(sample, ended) }),
        }
      : {}),
  });
  const total = prompts.length * args.n;
  const kept = output?.size ?? 0;
  if (kept > 0) console.error(`${kept} of ${total} samples are there already`);
  const streams = total === 1 && !args.json && !output && process.stdout.isTTY === true;
  const progress = streams ? undefined : createProgress({ total, start: kept, unit: 'sample' });
  const began = performance.now();
  let tokens = 0;
  let ended = kept;
  for await (const { token, text, finishReason } of generation) {
    if (token !== undefined) tokens++;
    if (finishReason && finishReason !== 'abort') ended++;
    if (streams) process.stdout.write(text ?? '');
    const seconds = (performance.now() - began) / 1000;
    progress?.update(ended, { 'tokens/s': seconds > 0 ? tokens / seconds : 0 });
  }
  progress?.finish();
  interruption.dispose();
  const samples = await generation.samples;
  generator.dispose();
  const stopped = interruption.signal.aborted
    ? `Stopped when ${ended} of ${total} samples were finished; `
    : undefined;
  if (output) {
    if (stopped === undefined) await output.finish(prompts.length, args.n);
    output.close();
    if (stopped !== undefined)
      throw new Interrupted(`${stopped}they are in ${args.output}.part, and the same command again goes on.`);
    console.error(`${total} samples are in ${args.output}`);
    return;
  }
  if (streams) process.stdout.write('\n');
  else await print(args, given, samples);
  if (stopped !== undefined)
    throw new Interrupted(
      `${stopped}those under way have the finish_reason abort, those not begun are left out; with --output FILE the same command again goes on.`,
    );
}

/** Everything that the samples depend on. */
async function settingsOf(
  args: GenerateArguments & NamedRun,
  { tokenizer: _, ...sampling }: SamplingOptions,
  {
    prompts,
    chosen,
  }: {
    readonly prompts: readonly (readonly number[])[];
    readonly chosen: Pick<ChosenModel, 'model' | 'tokenizer'>;
  },
): Promise<Readonly<Record<string, unknown>>> {
  const { drawKey } = await import('../run/draws.js');
  const { modelFingerprint } = await import('../eval/solving/settings.js');
  const { model, run, adapter, tokenizer, dtype, quantize } = args;
  const weights = await modelFingerprint(chosen.model, chosen.tokenizer);
  return {
    ...{ model, run, adapter, tokenizer, dtype, quantize, weights },
    ...sampling,
    prompts: drawKey(prompts),
  };
}

async function givenPrompts({ prompts = [], file, column }: GenerateArguments): Promise<GivenPrompt[]> {
  const { promptsFrom, promptsOf } = await import('./generate/prompts.js');
  // yargs reads the - of standard input as empty text.
  if (file !== undefined && prompts.length > 0) throw new UsageError('name prompts or --file FILE, not both');
  if (file !== undefined) return promptsFrom(file === '' ? '-' : file, column, process.stdin);
  if (prompts.length > 0) return promptsOf(prompts.map(String));
  throw new UsageError('name a prompt, or a file of them with --file FILE (- is standard input)');
}

async function tokensOf(
  given: readonly GivenPrompt[],
  { chat, system }: GenerateArguments,
  tokenizer: Parameters<typeof import('../generate/prompts.js').promptTokens>[0],
): Promise<number[][]> {
  const { promptTokens } = await import('../generate/prompts.js');
  if (!chat && tokenizer.hasChatTemplate && given.some(({ prompt }) => typeof prompt === 'string'))
    console.error(
      'the model has a chat template, and texts are put to it as they are; with --chat each is a message of a user',
    );
  const opening = system === undefined ? [] : [{ role: 'system', content: system }];
  return given.map(({ prompt, where }) => {
    if (system !== undefined && typeof prompt !== 'string')
      throw new UsageError(
        `${where}: --system is for texts, and this prompt is a list of messages; put the system message first among them`,
      );
    const asked =
      chat && typeof prompt === 'string' ? [...opening, { role: 'user', content: prompt }] : prompt;
    try {
      return promptTokens(tokenizer, asked);
    } catch (error) {
      throw error instanceof Error ? new UsageError(`${where}: ${error.message}`, { cause: error }) : error;
    }
  });
}

async function print(
  { json, n }: GenerateArguments,
  given: readonly GivenPrompt[],
  samples: readonly (readonly Sample[])[],
): Promise<void> {
  const { exactText } = await import('../files/exact-json.js');
  const rows = given.flatMap(({ row }, prompt) =>
    (samples[prompt] as readonly Sample[])
      .map((sample, i) => ({ prompt, sample: i, row, of: sample }))
      // In an interrupted command, rows that never began are no samples.
      .filter(({ of }) => of.finishReason !== 'abort' || of.tokens.length > 0),
  );
  for (const { prompt, sample, row, of } of rows) {
    if (json) {
      console.log(exactText({ ...row, ...sampleColumns(sample, of) }));
      continue;
    }
    if (rows.length > 1) console.log(`--- prompt ${prompt + 1}${n > 1 ? `, sample ${sample + 1}` : ''}`);
    console.log(of.text ?? '');
  }
}

function sampleColumns(sample: number, { text, tokens, logprobs, finishReason }: Sample) {
  return {
    sample,
    prediction: text ?? '',
    finish_reason: finishReason,
    tokens,
    logprobs: Array.from(logprobs, (logprob) => Number(logprob.toPrecision(7))),
  };
}
