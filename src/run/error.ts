import { StepTrainError } from '../native/errors.js';

/** A run directory that cannot be used or written: one sentence with where, what was found and what to do. */
export class RunError extends StepTrainError {
  override readonly name = 'RunError';
  constructor(message: string, options: ErrorOptions = {}) {
    super('E_RUN', message, options);
  }
}

/** No checkpoint of the run is whole: trying again to resume it would fail in the same way. */
export class DamagedRunError extends RunError {}
