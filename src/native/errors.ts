import { nearestName } from './nearest.js';
import { shown } from './shown.js';

/**
 * Every failure that steptrain reports. `message` names the error and what to do; `code` is stable, and one of a union,
 * so that the compiler finds codes that a `switch` leaves out.
 */
export class StepTrainError extends Error {
  override readonly name: string = 'StepTrainError';
  /** Op that failed, and its number in the device's queue; empty and 0 where no op is involved. */
  readonly op: string;
  readonly opNumber: number;
  /** Label of the innermost `device.scope` that the op was queued in. */
  readonly scope: string;
  /** File and line of the native code that refused. */
  readonly location: string;
  /**
   * The end of the message, kept separately where it says what to do about a failed op, a missing device or a bad row;
   * empty elsewhere.
   */
  readonly hint: string;

  constructor(
    readonly code:
      | 'E_RANGE'
      | 'E_CONFIG'
      | 'E_DATA'
      | 'E_RUN'
      | 'E_RESUME'
      | 'E_WEIGHTS'
      | 'E_ASSET'
      | 'E_HUB'
      | 'E_FILE'
      | 'E_REMOTE'
      | 'E_ENVIRONMENT'
      | 'E_REWARD'
      | 'E_TIMEOUT'
      | 'E_NONFINITE'
      | 'E_DISPOSED'
      | 'E_CANCELLED'
      | 'E_HANDLE'
      | 'E_SHAPE'
      | 'E_DTYPE'
      | 'E_TAPE'
      | 'E_SCOPE'
      | 'E_CAPTURE'
      | 'E_STATE'
      | 'E_MEMORY'
      | 'E_DEVICE'
      | 'E_DEVICE_FAILED'
      | 'E_UNSUPPORTED'
      | 'E_CLUSTER'
      | 'E_ADDON'
      | 'E_SELF_TEST',
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
    // An error that is printed whole shows no empty fields.
    for (const field of ['hint', 'op', 'opNumber', 'scope', 'location'] as const)
      if (!this[field]) Object.defineProperty(this, field, { enumerable: false });
  }

  /** The fields for a log: an error's message is no enumerable key of its own. Empty fields are left out. */
  toJSON(): Readonly<Record<string, unknown>> {
    const { name, code, message, op, opNumber, scope, location, hint } = this;
    const all = Object.entries({ ...this, name, code, message, op, opNumber, scope, location, hint });
    return Object.fromEntries(all.filter(([, value]) => value !== '' && value !== 0));
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

/**
 * @param known the names of all options
 * @throws StepTrainError for an option that is not known, such as a misspelt one, for a promise that was not awaited, and for a
 * `signal` that is none
 */
export function checkOptions(what: string, options: object, known: object): void {
  if (typeof options !== 'object' || options === null)
    throw invalid(`${what}: expected an object of options, found ${shown(options)}`);
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(known, name)) throw noSuchOption(what, name, Object.keys(known));
    if (value instanceof Promise) throw invalid(`${what}: ${name} is a promise; await it`);
    if (name === 'signal' && value !== undefined && typeof value?.throwIfAborted !== 'function')
      throw invalid(
        `${what}: signal: expected an AbortSignal, such as the \`signal\` of an AbortController, found ${shown(value)}`,
      );
  }
}

/** @throws StepTrainError for any value but a text */
export function checkText(what: string, text: unknown): void {
  if (typeof text !== 'string') throw invalid(`${what}: expected a text, found ${shown(text)}`);
}

function noSuchOption(what: string, option: string, known: readonly string[]): StepTrainError {
  const nearest = nearestName(option, known);
  const hint = nearest === undefined ? '' : `did you mean ${nearest}? `;
  const names = known.join(', ');
  return invalid(`${what}: there is no option ${shown(option)}; ${hint}${hint ? 'K' : 'k'}nown are ${names}`);
}
