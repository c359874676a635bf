// A command with its options, which give its handler the types of its arguments.
import type { Argv, CommandModule } from 'yargs';
import { joined } from './usage.js';

/** The arguments of the command that `Builder` gives its options. */
export type ArgumentsOf<Builder extends (argv: Argv) => unknown> =
  ReturnType<Builder> extends Argv<infer Arguments> ? Arguments : never;

export interface Command<Arguments> {
  readonly command: string | readonly string[];
  readonly aliases?: readonly string[];
  readonly describe: string;
  readonly builder: (argv: Argv) => Argv<Arguments>;
  readonly handler: (
    args: Arguments & Pick<Parameters<CommandModule['handler']>[0], '_'>,
  ) => void | Promise<void>;
}

export function command<Arguments>(module: Command<Arguments>): CommandModule {
  return module as unknown as CommandModule;
}

/** The name of a command, without its arguments. */
export const nameOf = ({ command }: CommandModule): string => String([command].flat()[0]).split(' ')[0] ?? '';

/** A command that does nothing without the name of one of `commands` behind its own. */
export function commandGroup(
  name: string,
  describe: string,
  commands: readonly CommandModule[],
  examples: readonly (readonly [usage: string, about: string])[],
): CommandModule {
  const names = joined(commands.map(nameOf), 'or');
  return {
    command: name,
    describe,
    builder: (argv) =>
      examples.reduce(
        (line, [usage, about]) => line.example(usage, about),
        commands.reduce((line, each) => line.command(each), argv).demandCommand(1, `name ${names}`),
      ),
    handler: () => {},
  };
}

/** An option with a text, or a number, after it. */
export const text = { type: 'string', requiresArg: true } as const;
export const number = { type: 'number', requiresArg: true } as const;

/** An argument that must be there. */
export const argument = { type: 'string', demandOption: true } as const;

/** An option that is off unless it is given. */
export const flag = { type: 'boolean', default: false } as const;

/** An option with one of these values after it. */
export function oneOf<Choice extends string | number>(
  choices: readonly Choice[],
  byDefault: NoInfer<Choice>,
) {
  return { choices, default: byDefault };
}
