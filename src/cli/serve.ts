import { existsSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import type { Argv } from 'yargs';
import { DEFAULT_JUDGE, DEFAULT_MODEL } from '../models/saved.js';
import type { OpenScorers } from '../scoring/kinds.js';
import { MAX_ROWS, modelArgument, modelOptions, withModel } from './chosen/model-options.js';
import { type ArgumentsOf, command, number, text } from './line/command.js';
import { UsageError } from './line/error.js';
import { checkFolder, checkPort, checkWhole } from './line/usage.js';

type ServeArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  modelOptions(modelArgument(argv))
    .option('host', {
      ...text,
      default: '127.0.0.1',
      describe: 'Address to listen on; any other needs a key',
    })
    .option('port', { ...number, default: 8000, describe: '0 takes one that is free' })
    .option('name', {
      ...text,
      describe: 'Name by which requests ask for the model [default: from the model]',
    })
    .option('lora', { ...text, array: true, describe: 'NAME=DIRECTORY of a PEFT adapter; may be repeated' })
    .option('judge', {
      ...text,
      describe:
        'The scorer for /score: a run, an adapter, word-problems-judge, or a classification model [default: the model itself, where it scores]',
    })
    .option('adapter-root', { ...text, describe: 'Lets requests load adapters from inside this directory' })
    .option('key-env', {
      ...text,
      default: 'STEPTRAIN_API_KEY',
      describe: 'Environment variable with the key that clients must send',
    })
    .option('max-rows', MAX_ROWS)
    .option('max-queue', { ...number, default: 1024, describe: 'Max samples that wait' })
    .option('max-new-tokens', { ...number, describe: 'Max tokens that a request may ask for' })
    .option('cache-gb', {
      ...number,
      describe: 'Memory for keys and values [default: half of what is free]',
    })
    .option('grace-seconds', {
      ...number,
      default: 30,
      describe: 'How long running requests may go on after SIGTERM or Ctrl-C',
    })
    .example('$0 serve models/qwen', 'on http://127.0.0.1:8000/v1')
    .example('$0 serve runs/mine --name mine --port 9000', 'the model that a run trained')
    .example('$0 serve runs/policy --judge runs/prm', 'two models: one writes, the other scores steps')
    .example(
      'STEPTRAIN_API_KEY=… $0 serve --model models/qwen --host 0.0.0.0',
      'for other machines too, with a key',
    );

export const serveCommand = command({
  command: 'serve [run-or-model]',
  describe: "Answer OpenAI's completions and chat completions, and scores of steps, over HTTP",
  builder: options,
  handler: serveModel,
});

async function serveModel(given: ServeArguments): Promise<void> {
  const args = withModel(given);
  checkWhole(args, { 'max-rows': 1, 'max-new-tokens': 1, 'max-queue': 0, 'grace-seconds': 0 });
  checkPort(args.port);
  const gigabytes = args['cache-gb'];
  if (gigabytes !== undefined && !(gigabytes > 0 && gigabytes < Infinity))
    throw new UsageError(`--cache-gb expects a number above 0, found ${gigabytes}`);
  if (args['adapter-root'] !== undefined) checkFolder('--adapter-root', args['adapter-root']);
  const adapters = Object.fromEntries((args.lora ?? []).map(loraOption));
  const { openChosenModel } = await import('./chosen/chosen-model.js');
  const { scorersIfAny } = await import('../scoring/kinds.js');
  const { openScorers } = await import('../scoring/open.js');
  const { serve } = await import('../serve/server.js');
  const { changesNothing } = await import('../weights/no-change.js');
  const { isLoopback } = await import('../serve/access.js');
  if (!isLoopback(args.host) && !process.env[args['key-env']])
    throw new UsageError(
      `--host ${args.host} can be reached from other machines: set ${args['key-env']} to a key that clients must send, or listen on 127.0.0.1`,
    );
  using chosen = await openChosenModel(args);
  const warn = (warning: string) => console.error(`warning: ${warning}`);
  const own = chosen.model.files?.adapter;
  const unchanged = own === undefined ? undefined : changesNothing(own);
  if (unchanged !== undefined) warn(unchanged);
  let scoring: OpenScorers | undefined;
  try {
    if (gigabytes !== undefined) checkMemory(gigabytes, chosen.device.info().memoryTotal);
    const { model = DEFAULT_MODEL } = args;
    // The default model also scores, by the judge of the package.
    const isDefault = args.run === undefined && args.adapter === undefined && model === DEFAULT_MODEL;
    const { judge = isDefault ? DEFAULT_JUDGE : undefined } = args;
    scoring =
      judge === undefined
        ? await scorersIfAny(chosen.model, { ...chosen, run: args.run })
        : await openScorers(chosen.device, judge);
    const scorers = scoring?.scorers ?? {};
    const found = new Set(Object.values(scorers).flatMap(({ warnings = [] }) => warnings));
    for (const warning of found) warn(`of what answers /score, ${warning}`);
    const name = args.name ?? (args.run || existsSync(model) ? basename(resolve(args.run ?? model)) : model);
    const { model: loaded, tokenizer, eosTokenIds } = chosen;
    const server = await serve(
      { name, model: loaded, tokenizer, eosTokenIds, scorers },
      {
        host: args.host,
        port: args.port,
        key: process.env[args['key-env']],
        adapters,
        adapterRoot: args['adapter-root'],
        otherBase: args['other-base'] === true,
        ...(args['max-rows'] === undefined ? {} : { maxRows: args['max-rows'] }),
        ...(gigabytes === undefined ? {} : { cacheBytes: Math.floor(gigabytes * 1e9) }),
        limits: {
          queue: args['max-queue'],
          ...(args['max-new-tokens'] === undefined ? {} : { newTokens: args['max-new-tokens'] }),
        },
        onWarning: warn,
        onError: (error) => console.error(error instanceof Error ? (error.stack ?? error.message) : error),
      },
    );
    const scored = Object.keys(scorers);
    if (scored.length > 0) console.error(`Steps are scored on ${server.url}/score, by ${scored.join(', ')}.`);
    console.log(`${name} is served on ${server.url}/v1; Ctrl-C ends it.`);
    const failure = await Promise.race([server.failure, untilStopped()]);
    if (failure === undefined)
      console.log(
        `Going down; requests that run may take ${args['grace-seconds']} s more. Ctrl-C again ends them now.`,
      );
    const now = failure === undefined ? untilStopped() : Promise.resolve();
    const closed = server.close(failure === undefined ? args['grace-seconds'] : 0);
    await Promise.race([closed, now]);
    await server.close(0);
    if (failure !== undefined) throw failure;
  } finally {
    scoring?.dispose();
  }
}

/** The cache is made at the first request, which would then fail, and all that follow. */
function checkMemory(gigabytes: number, total: number): void {
  if (gigabytes * 1e9 > total)
    throw new UsageError(
      `--cache-gb expects less than the ${(total / 1e9).toFixed(1)} GB of the device, found ${gigabytes}`,
    );
}

function loraOption(given: string): [name: string, directory: string] {
  const at = given.indexOf('=');
  if (at < 1 || at === given.length - 1)
    throw new UsageError(`--lora expects NAME=DIRECTORY, found ${JSON.stringify(given)}`);
  return [given.slice(0, at), given.slice(at + 1)];
}

/** Resolves at the next Ctrl-C or SIGTERM. */
function untilStopped(): Promise<undefined> {
  return new Promise((resolve) => {
    const stop = () => {
      process.off('SIGINT', stop).off('SIGTERM', stop);
      resolve(undefined);
    };
    process.on('SIGINT', stop).on('SIGTERM', stop);
  });
}
