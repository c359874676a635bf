import type { Argv } from 'yargs';
import { ending } from '../native/ending.js';
import { typedCommand } from '../native/typed-command.js';
import { type ArgumentsOf, argument, command, commandGroup, flag, text } from './line/command.js';
import { UsageError } from './line/error.js';

type PushArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  argv
    .positional('run-or-repo', {
      ...argument,
      describe: 'A run, or an adapter (then the card has neither data nor metrics); may be named by --model',
    })
    .positional('repo', { type: 'string', describe: 'owner/name on the hub; made if it is not there' })
    .option('model', { ...text, describe: 'The run, or the adapter' })
    .option('base', {
      ...text,
      describe:
        'The base on the hub, owner/name [default: the one that it was trained on, where that came from the hub]',
    })
    .option('revision', { ...text, default: 'main', describe: 'Branch' })
    .option('message', {
      ...text,
      default: 'Upload an adapter trained with steptrain',
      describe: 'Message of the commit',
    })
    .option('private', { ...flag, describe: 'Make a repository that only its owner sees' })
    .option('dry-run', { ...flag, describe: 'Show the files and the card, send nothing' })
    .epilogue('The token is that of HF_TOKEN, or of hf auth login; HF_ENDPOINT names another hub.')
    .example('$0 hub push runs/mine me/my-adapter --dry-run', 'what would be sent')
    .example('$0 hub push runs/mine me/my-adapter --private', 'send it');

const pushCommand = command({
  command: 'push <run-or-repo> [repo]',
  describe: 'Send an adapter to the Hugging Face hub, with a model card made from its run',
  builder: options,
  handler: push,
});

export const hubCommand = commandGroup(
  'hub',
  'The Hugging Face hub',
  [pushCommand],
  [['$0 hub push runs/mine me/my-adapter --dry-run', 'what would be sent']],
);

async function push(args: PushArguments): Promise<void> {
  const { parseHubId } = await import('../hub/hub-id.js');
  const { hubSettings } = await import('../hub/settings.js');
  const { publishedAdapter } = await import('./published-adapter.js');
  const { base, revision, message } = args;
  const [model, repo] =
    args.model === undefined ? [args['run-or-repo'], args.repo] : [args.model, args['run-or-repo']];
  if (repo === undefined)
    throw new UsageError(`name the repository too: ${typedCommand(`hub push ${model} owner/name`)}`);
  if (args.model !== undefined && args.repo !== undefined)
    throw new UsageError(`name one run or adapter: ${args['run-or-repo']}, or --model ${model}`);
  for (const [name, id] of [
    ['repo', repo],
    ['--base', base],
  ] as const)
    if (id !== undefined && parseHubId(id)?.repo !== id)
      throw new UsageError(`${name}: expected owner/name on the hub, found ${JSON.stringify(id)}`);
  const settings = hubSettings();
  const files = await publishedAdapter(model, { repo, base, settings });
  if (args['dry-run']) {
    console.log(`to ${settings.endpoint}/${repo}, branch ${revision}${args.private ? ', private' : ''}:`);
    for (const { path, content } of files) console.log(`  ${path}  ${size(content.length)}`);
    console.log(`\n${new TextDecoder().decode(files.find(({ path }) => path === 'README.md')?.content)}`);
    return;
  }
  const { pushFiles } = await import('../hub/push.js');
  const { untilInterrupted } = await import('./line/interrupt.js');
  const { Interrupted } = await import('./line/error.js');
  using interruption = ending(untilInterrupted());
  try {
    const page = await pushFiles(files, {
      settings,
      repo,
      revision,
      message,
      private: args.private,
      signal: interruption.signal,
      onFile: (path, bytes) => console.error(`stored ${path}, ${size(bytes)}`),
    });
    console.log(page);
  } catch (error) {
    if (!interruption.signal.aborted) throw error;
    throw new Interrupted('Stopped; nothing was committed, and the same command sends what is missing.');
  }
}

function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
