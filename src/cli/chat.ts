import { chosenSampling, modelArgument, modelOptions, samplingOptions } from './chosen/model-options.js';
import { command, text } from './line/command.js';

export const chatCommand = command({
  command: 'chat [run-or-model]',
  describe: 'Talk with a model',
  builder: (argv) =>
    samplingOptions(modelOptions(modelArgument(argv)))
      .option('system', { ...text, describe: 'System message at the start of the conversation' })
      .example(
        '$0 chat models/qwen-instruct',
        'Ctrl-C ends a reply, /reset the conversation, Ctrl-D the program',
      )
      .example('$0 chat runs/mine --temperature 0 --system "Answer in one word."', 'the model of a run')
      .example(
        'printf "Hello.\\nWhat did I say?\\n" | $0 chat --model models/qwen-instruct',
        'a line is a turn',
      ),
  handler: async (args) => {
    const sampling = chosenSampling(args);
    const { createInterface } = await import('node:readline');
    const { openChosenModel } = await import('./chosen/chosen-model.js');
    const { chat } = await import('./chat-loop.js');
    using chosen = await openChosenModel(args);
    const interactive = process.stdin.isTTY === true && process.stdout.isTTY === true;
    const input = createInterface({
      input: process.stdin,
      ...(interactive ? { output: process.stdout, prompt: '> ' } : {}),
      terminal: interactive,
    });
    try {
      await chat(chosen, {
        ...sampling,
        system: args.system,
        lines: input,
        write: (text) => process.stdout.write(text),
        ready: () => interactive && input.prompt(),
        onInterrupt: (listener) => {
          input.on('SIGINT', () => listener() || input.close());
        },
      });
    } finally {
      input.close();
    }
  },
});
