import { StepTrainError } from '../native/errors.js';

/** A failure of a server, at once or after all tries: one sentence. */
export class RemoteError extends StepTrainError {
  override readonly name = 'RemoteError';
  constructor(message: string, options: ErrorOptions = {}) {
    super('E_REMOTE', message, options);
  }
}

/** A failure that may pass: the request is tried again. */
export class PassingFailure extends Error {
  override readonly name = 'PassingFailure';

  /** @param retryAfter milliseconds that the server asks for */
  constructor(
    message: string,
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}
