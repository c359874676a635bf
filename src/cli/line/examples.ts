// The examples of a command's help: each command unbroken on a line of its own, and its description under it.
import type { Argv } from 'yargs';

/** Stands for an example while yargs fits its help into lines; one letter is never broken. */
const FIRST_LETTER = 0xe000;

interface YargsInside {
  getInternalMethods(): {
    getUsageInstance(): {
      example(command: string, description?: string): void;
      help(): string;
    };
  };
}

/** Prints the examples of `line` and its commands so that they can be copied; yargs would break them into a table. */
export function printWholeExamples(line: Argv, name: string): void {
  const usage = (line as unknown as YargsInside).getInternalMethods().getUsageInstance();
  const { example, help } = usage;
  const examples: string[] = [];
  usage.example = (command, description = '') => {
    example(String.fromCodePoint(FIRST_LETTER + examples.length));
    const lines = [
      `  ${command.replaceAll('$0', name)}`,
      ...(description === '' ? [] : [`      ${description}`]),
    ];
    examples.push(lines.join('\n'));
  };
  usage.help = () =>
    help().replaceAll(/^ *([\ue000-\uf8ff])$/gm, (_, letter: string) => {
      return examples[(letter.codePointAt(0) as number) - FIRST_LETTER] as string;
    });
}
