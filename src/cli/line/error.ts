// The end of a failed command: one sentence on standard error and an exit code.
import { systemReason } from '../../files/error.js';
import { StepTrainError } from '../../native/errors.js';
import { INTERRUPTED } from '../../run/interrupt.js';

/** An invalid command line. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The user stopped the command; `message` says how to resume. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted';
}

/** 1 a mistake that one sentence names, 2 an error inside steptrain, 130 interrupted. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof Interrupted) return INTERRUPTED;
  return isForeseen(error) ? 1 : 2;
}

/**
 * The message for the user. It includes the stack for an error inside steptrain, and with `stacks` (STEPTRAIN_STACKS=1)
 * for any error.
 */
export function describeError(error: unknown, { stacks }: { readonly stacks: boolean }): string {
  if (!(error instanceof Error)) return `steptrain failed: ${String(error)}`;
  const lines = [sentence(error)];
  const foreseen = isForeseen(error);
  for (let cause: unknown = error; (stacks || !foreseen) && cause instanceof Error; cause = cause.cause) {
    lines.push(cause.stack ?? String(cause));
  }
  if (!foreseen) lines.push('This is a defect of steptrain; please report it with the lines above.');
  return lines.join('\n');
}

/**
 * The sentence for an error. A system error, such as `ENOSPC: no space left on device, copyfile 'a' -> 'b'`, becomes
 * its file and what to do.
 */
function sentence(error: Error): string {
  const { syscall, path, dest } = error as Error & Partial<Record<'syscall' | 'path' | 'dest', string>>;
  const file = dest ?? path;
  if (syscall === undefined || file === undefined) return error.message || error.name;
  return `${file}: ${systemReason(error)}`;
}

/** Errors of our own checks, and those of the system, such as a full disk. */
function isForeseen(error: unknown): boolean {
  return (
    error instanceof Interrupted ||
    error instanceof UsageError ||
    error instanceof StepTrainError ||
    (error instanceof Error && 'syscall' in error)
  );
}
