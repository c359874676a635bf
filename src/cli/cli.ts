// The command line: the list of commands, and how each of them ends.
import yargs, { type Argv } from 'yargs';
import { typedCommand } from '../native/typed-command.js';
import { packageVersion } from '../native/version.js';
import { buildCommand } from './build.js';
import { chatCommand } from './chat.js';
import { configCommand } from './config.js';
import { dataCommand } from './data.js';
import { doctorCommand } from './doctor.js';
import { EVAL_COMMANDS, evalCommand } from './eval.js';
import { exportCommand } from './export.js';
import { generateCommand } from './generate.js';
import { gradeCommand } from './grade.js';
import { hubCommand } from './hub.js';
import { inspectCommand } from './inspect.js';
import { judgeCommand } from './judge.js';
import { labelCommand } from './label.js';
import { describeError, exitCodeOf, UsageError } from './line/error.js';
import { printWholeExamples } from './line/examples.js';
import { givenTwice, noNumber, usageSentence } from './line/usage.js';
import { mergeCommand } from './merge.js';
import { recipesCommand } from './recipes.js';
import { reportCommand } from './report.js';
import { runCommand } from './run.js';
import { scoreCommand } from './score.js';
import { serveCommand } from './serve.js';
import { sweepCommand } from './sweep.js';
import { uiCommand } from './ui.js';

const NAME = 'steptrain';

/** Runs one command line (without `node` and the script) and returns the exit code. */
export async function runCli(args: readonly string[]): Promise<number> {
  try {
    await commandLine(args).parseAsync();
    return 0;
  } catch (error) {
    console.error(describeError(error, { stacks: process.env.STEPTRAIN_STACKS === '1' }));
    return exitCodeOf(error);
  }
}

export function commandLine(
  args: readonly string[],
  { width = Math.min(100, process.stdout.columns || 100) }: { readonly width?: number } = {},
): Argv {
  const line: Argv = yargs([...args]);
  printWholeExamples(line, NAME);
  return line
    .scriptName(NAME)
    .usage(
      '$0 <command>\n\nProcess supervision: trains judges, reward models and policies from labels on every reasoning step.',
    )
    .command(runCommand)
    .command(sweepCommand)
    .command(reportCommand)
    .command(exportCommand)
    .command(uiCommand)
    .command(dataCommand)
    .command(evalCommand)
    .command(generateCommand)
    .command(chatCommand)
    .command(serveCommand)
    .command(judgeCommand)
    .command(gradeCommand)
    .command(scoreCommand)
    .command(labelCommand)
    .command(mergeCommand)
    .command(inspectCommand)
    .command(hubCommand)
    .command(recipesCommand)
    .command(configCommand)
    .command(doctorCommand)
    .command(buildCommand)
    .completion('completion', 'Print a script that lets the shell complete commands and options')
    .example('$0 run', 'train the built-in example')
    .example('$0 recipes ls', 'what else there is to train')
    .demandCommand(1, `name a command; ${typedCommand('--help')} lists them`)
    .strict()
    .check((argv) => {
      const sentence =
        noNumber(argv, args) ?? givenTwice(argv, (line as unknown as YargsInside).getOptions());
      if (sentence !== undefined) throw new UsageError(sentence);
      return true;
    })
    .version(packageVersion())
    .alias({ h: 'help', V: 'version' })
    .parserConfiguration({ 'dot-notation': false, 'camel-case-expansion': false, 'greedy-arrays': false })
    .wrap(width)
    .epilogue(
      'Exit codes: 0; 1 a mistake, in one sentence; 2 an error inside steptrain; 130 interrupted. ' +
        'STEPTRAIN_STACKS=1 shows where an error came from.',
    )
    .exitProcess(false)
    .fail((message, error) => {
      // yargs raises its own errors as YError; everything else comes from a command.
      if (error && error.name !== 'YError') throw error;
      throw new UsageError(usageSentence(message || error.message, args, reached(line)));
    });
}

/** The command that yargs has reached; its types do not give access to it. */
function reached(parser: unknown) {
  const line = parser as YargsInside;
  const inner = line.getInternalMethods();
  const words = inner.getContext().commands;
  return {
    options: Object.keys(line.getOptions().key).filter((name) => name.length > 1),
    words,
    // `eval` without a known subcommand is a command of its own, behind which yargs knows no others.
    commands:
      words.length === 1 && words[0] === 'eval' ? EVAL_COMMANDS : inner.getCommandInstance().getCommands(),
  };
}

interface YargsInside {
  getOptions(): { readonly key: object; readonly array: readonly string[] };
  getInternalMethods(): {
    getContext(): { readonly commands: readonly string[] };
    getCommandInstance(): { getCommands(): readonly string[] };
  };
}
