import type { Argv } from 'yargs';
import { DEFAULT_MODEL } from '../models/saved.js';
import { MODEL_NAME, modelArgument, namedAs } from './chosen/model-options.js';
import { argument, command, commandGroup } from './line/command.js';
import { UsageError } from './line/error.js';

const KINDS = {
  model: [
    `${MODEL_NAME}; of a run or an adapter its base`,
    'architecture, size, dtype, tokenizer',
    'word-problems',
  ],
  adapter: ['A run or an adapter', 'rank, modules, base, how it judges', 'runs/my/adapter'],
  checkpoint: [
    'A checkpoints/step-N of a run',
    'step, stage, whether every file is whole',
    'runs/my/checkpoints/step-40',
  ],
  run: ['Run directory', 'method, progress, results, what can be resumed', 'runs/my'],
  data: [
    'File, directory, pattern or hub id with step-labelled solutions, or with problems and answers',
    'layout, rows, labels, the first bad row',
    'prm.jsonl',
  ],
} as const;

type Kind = keyof typeof KINDS;

interface InspectArguments {
  readonly path?: string;
  readonly 'run-or-model'?: string | undefined;
  readonly model?: string | undefined;
}

const commandOf = (kind: Kind) => {
  const [what, says, example] = KINDS[kind];
  const isModel = kind === 'model' || kind === 'adapter';
  return command<InspectArguments>({
    command: isModel ? `${kind} [run-or-model]` : `${kind} <path>`,
    describe: `${kind === 'data' ? 'Data file' : kind[0]?.toUpperCase() + kind.slice(1)}: ${says}`,
    builder: (argv) =>
      (isModel
        ? namedAs(modelArgument(argv, what))
        : argv.positional('path', { ...argument, describe: what })
      ).example(`$0 inspect ${kind} ${example}`, says) as Argv<InspectArguments>,
    handler: async ({ path: given, 'run-or-model': first, model = first }) => {
      const path = given ?? model ?? DEFAULT_MODEL;
      const describe = await import('./inspect-parts.js');
      const rows: (readonly [string, string])[] = await describe[kind](path);
      const { formatTable } = await import('../terminal/table.js');
      console.log(formatTable(rows, { isLeft: () => true }));
      // Damage is printed like everything else; scripts read the exit code.
      if (kind === 'checkpoint' && rows.some(([, value]) => value.startsWith(describe.DAMAGED)))
        throw new UsageError(`${path} is damaged; another checkpoint of the run may be whole`);
    },
  });
};

export const inspectCommand = commandGroup(
  'inspect',
  'Tell what a model, adapter, checkpoint, run or data file is',
  (Object.keys(KINDS) as Kind[]).map(commandOf),
  [
    ['$0 inspect run runs/my', 'how far it is, and what came of it'],
    ['$0 inspect adapter runs/my/adapter', 'what it was trained on'],
  ],
);
