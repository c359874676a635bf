/** Lines to type that start this program again, by the way in which it was started. */
import { basename, dirname, relative } from 'node:path';

/** How a process was started: `process.argv[1]`, and npm's word on it. */
export interface Started {
  readonly script: string | undefined;
  /** `npm_command` of the environment: `exec` under npx. */
  readonly npm: string | undefined;
  readonly folder: string;
}

/** Scripts of this package that are the command. */
const OWN = /[/\\](?:bin[/\\]steptrain\.mjs|dist[/\\]cli[/\\]main\.js)$/;

/**
 * `npx steptrain run --resume runs/my` for `run --resume runs/my`. Without `npx` where `steptrain` itself was typed, and
 * by `node` where that was given the file. A program that has this package installed finds the command by npx.
 */
export function typedCommand(
  args: string,
  started: Started = { script: process.argv[1], npm: process.env.npm_command, folder: process.cwd() },
): string {
  return `${programOf(started)} ${args}`;
}

function programOf({ script, npm, folder }: Started): string {
  const isOfNpm = npm === 'exec' || script === undefined || basename(dirname(script)) === '.bin';
  if (isOfNpm) return 'npx steptrain';
  if (basename(script) === 'steptrain') return 'steptrain';
  if (!OWN.test(script)) return 'npx steptrain';
  const path = relative(folder, script);
  return `${runtime()} ${path.startsWith('..') ? script : path}`;
}

function runtime(): string {
  if ('deno' in process.versions) return 'deno run -A';
  return 'bun' in process.versions ? 'bun' : 'node';
}
