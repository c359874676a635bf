import { DEFAULT_MODEL } from '../models/saved.js';
import { modelArgument, namedAs } from './chosen/model-options.js';
import { command } from './line/command.js';

interface InspectArguments {
  readonly 'run-or-model'?: string | undefined;
  readonly model?: string | undefined;
}

export const inspectCommand = command<InspectArguments>({
  command: 'inspect [run-or-model]',
  describe: 'Tell the size, dtype, tokenizer, base and judge of a model or an adapter',
  builder: (argv) =>
    namedAs(modelArgument(argv))
      .example('$0 inspect word-problems', 'architecture, size, dtype, tokenizer')
      .example('$0 inspect runs/my', 'the adapter of a run: rank, modules, base, how it judges'),
  handler: async ({ 'run-or-model': first, model = first ?? DEFAULT_MODEL }) => {
    const { inspected } = await import('./inspect-parts.js');
    const rows = await inspected(model);
    const width = Math.max(...rows.map(([name]) => name.length)) + 2;
    for (const [name, value] of rows) console.log(`${name.padEnd(width)}${value}`);
  },
});
