import { StepTrainError } from '../native/errors.js';

/** A configuration that cannot be used. One sentence per problem, each on its own line. */
export class ConfigError extends StepTrainError {
  override readonly name = 'ConfigError';
  constructor(message: string, options: ErrorOptions = {}) {
    super('E_CONFIG', message, options);
  }
}
