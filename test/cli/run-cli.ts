import { vi } from 'vitest';
import { runCli } from '../../src/cli/cli.js';

export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The output of `action` and the number that it returns. */
export async function capture(action: () => Promise<number>): Promise<Outcome> {
  const printed = { log: [] as string[], error: [] as string[] };
  const log = vi.spyOn(console, 'log').mockImplementation((text) => void printed.log.push(String(text)));
  const error = vi
    .spyOn(console, 'error')
    .mockImplementation((text) => void printed.error.push(String(text)));
  try {
    return { code: await action(), stdout: printed.log.join('\n'), stderr: printed.error.join('\n') };
  } finally {
    log.mockRestore();
    error.mockRestore();
  }
}

/** Runs a command line. */
export function cli(...args: readonly string[]): Promise<Outcome> {
  return capture(() => runCli(args));
}
