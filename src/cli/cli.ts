// The command line: the list of commands, and how each of them ends.
import yargs from 'yargs';
import { buildCommand } from './build.js';
import { chatCommand } from './chat.js';
import { dataCommand } from './data.js';
import { doctorCommand } from './doctor.js';
import { describeError, exitCodeOf, UsageError } from './error.js';
import { evalCommand } from './eval.js';
import { generateCommand } from './generate.js';
import { gradeCommand } from './grade.js';
import { judgeCommand } from './judge.js';
import { labelCommand } from './label.js';
import { mergeCommand } from './merge.js';
import { reportCommand } from './report.js';
import { runCommand } from './run.js';
import { scoreCommand } from './score.js';
import { serveCommand } from './serve.js';
import { sweepCommand } from './sweep.js';
import { uiCommand } from './ui.js';
import { packageVersion } from './version.js';

/** Runs one command line (without `node` and the script) and returns the exit code. */
export async function runCli(args: readonly string[]): Promise<number> {
  const parser = yargs([...args])
    .scriptName('steptrain')
    .usage('$0 <command>\n\nTrains language models to reason in steps.')
    .command(runCommand)
    .command(sweepCommand)
    .command(reportCommand)
    .command(uiCommand)
    .command(dataCommand)
    .command(evalCommand)
    .command(generateCommand)
    .command(chatCommand)
    .command(serveCommand)
    .command(gradeCommand)
    .command(judgeCommand)
    .command(scoreCommand)
    .command(labelCommand)
    .command(mergeCommand)
    .command(doctorCommand)
    .command(buildCommand)
    .demandCommand(1, 'name a command; steptrain --help lists them')
    .strict()
    .recommendCommands()
    .version(packageVersion())
    .alias({ h: 'help', V: 'version' })
    .parserConfiguration({ 'dot-notation': false, 'camel-case-expansion': false, 'greedy-arrays': false })
    .wrap(Math.min(100, process.stdout.columns || 100))
    .epilogue(
      'Exit codes: 0; 1 a mistake, in one sentence; 2 an error inside steptrain; 130 interrupted. ' +
        'STEPTRAIN_STACKS=1 shows where an error came from.',
    )
    .exitProcess(false)
    .fail((message, error) => {
      // yargs raises its own errors as YError; everything else comes from a command.
      throw error && error.name !== 'YError'
        ? error
        : new UsageError(usageSentence(message || error.message, args));
    });
  try {
    await parser.parseAsync();
    return 0;
  } catch (error) {
    console.error(describeError(error, { stacks: process.env.STEPTRAIN_STACKS === '1' }));
    return exitCodeOf(error);
  }
}

function usageSentence(message: string, args: readonly string[]): string {
  const sentence = message.replaceAll(/\s+/g, ' ');
  const command = args.find((arg) => !arg.startsWith('-')) ?? '';
  return sentence.startsWith('Did you mean')
    ? `there is no command ${command}; d${sentence.slice(1)}`
    : sentence;
}
