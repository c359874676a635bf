import { shown } from './shown.js';

/** Every failure that steptrain reports. `code` is stable; `hint` says what to do. */
export class StepTrainError extends Error {
  override readonly name: string = 'StepTrainError';
  /** Op that failed, and its number in the device's queue; empty and 0 where no op is involved. */
  readonly op: string;
  readonly opNumber: number;
  /** Label of the innermost `device.scope` that the op was queued in. */
  readonly scope: string;
  /** File and line of the native code that refused. */
  readonly location: string;
  readonly hint: string;

  constructor(
    readonly code: string,
    message: string,
    details: {
      hint?: string;
      op?: string;
      opNumber?: number;
      scope?: string;
      location?: string;
      cause?: unknown;
    } = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.hint = details.hint ?? '';
    this.op = details.op ?? '';
    this.opNumber = details.opNumber ?? 0;
    this.scope = details.scope ?? '';
    this.location = details.location ?? '';
  }
}

/** The error about a value or a call that cannot be. */
export function invalid(message: string): StepTrainError {
  return new StepTrainError('E_RANGE', message);
}

/** A tensor, graph or device was used after its `dispose()`. */
export class DisposedError extends StepTrainError {
  override readonly name: string = 'DisposedError';
  constructor(what: string) {
    super('E_DISPOSED', `${what} was used after it was disposed`);
  }
}

/** @throws StepTrainError for an option that `known` lacks, such as a misspelt one */
export function checkOptions(what: string, options: object, known: Readonly<Record<string, true>>): void {
  const option = Object.keys(options).find((key) => !Object.hasOwn(known, key));
  if (option === undefined) return;
  const names = Object.keys(known).join(', ');
  throw new StepTrainError('E_RANGE', `${what}: there is no option ${shown(option)}; known are ${names}`);
}
