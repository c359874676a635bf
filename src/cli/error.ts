// How commands end when they do not succeed: one sentence on standard error and an exit code.
import { ConfigError } from '../config/error.js';
import { INTERRUPTED } from '../run/interrupt.js';

/** A command line that cannot be understood. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The person stopped the command; `message` says how to go on. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted';
}

/** 1 a failure, 2 a command line or recipe that cannot be used, 130 interrupted. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof Interrupted) return INTERRUPTED;
  return error instanceof UsageError || error instanceof ConfigError ? 2 : 1;
}

/** What the person reads. With `stacks` (STEPTRAIN_STACKS=1) also where it came from. */
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

// The language's own errors are raised by no check of ours.
function isUnforeseen(error: Error): boolean {
  return error instanceof TypeError || error instanceof ReferenceError || error instanceof SyntaxError;
}
