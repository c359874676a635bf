// How failed commands end: one sentence on standard error and an exit code.
import { ConfigError } from '../config/error.js';
import { INTERRUPTED } from '../run/interrupt.js';

/** An invalid command line. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The user stopped the command; `message` says how to resume. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted';
}

/** 1 a failure, 2 a command line or recipe that cannot be used, 130 interrupted. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof Interrupted) return INTERRUPTED;
  return error instanceof UsageError || error instanceof ConfigError ? 2 : 1;
}

/** The message for the user; with `stacks` (STEPTRAIN_STACKS=1) also the stack. */
export function describeError(error: unknown, { stacks }: { readonly stacks: boolean }): string {
  if (!(error instanceof Error)) return `steptrain failed: ${String(error)}`;
  const lines = [error.message || error.name];
  for (let cause: unknown = error; stacks && cause instanceof Error; cause = cause.cause) {
    lines.push(cause.stack ?? String(cause));
  }
  if (isUnforeseen(error))
    lines.push('This looks like a defect of steptrain; STEPTRAIN_STACKS=1 shows where it came from.');
  return lines.join('\n');
}

// JavaScript's own errors come from no check of ours.
function isUnforeseen(error: Error): boolean {
  return error instanceof TypeError || error instanceof ReferenceError || error instanceof SyntaxError;
}
