// A command with its options, which give its handler the types of its arguments.
import type { Argv, CommandModule } from 'yargs';

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
