import { StepTrainError } from '../native/errors.js';

export { shown as show } from '../native/shown.js';

/** A file of a model or adapter cannot be used as it is: one sentence with the place, the finding and what to do. */
export class WeightsError extends StepTrainError {
  override readonly name = 'WeightsError';
  constructor(message: string, options: ErrorOptions = {}) {
    super('E_WEIGHTS', message, options);
  }
}

const SHOWN_NAMES = 8;

/** "'a', 'b', 'c' and 40 more". */
export function showNames(names: readonly string[]): string {
  const shown = names
    .slice(0, SHOWN_NAMES)
    .map((name) => `'${name.length <= 200 ? name : `${name.slice(0, 200)}…`}'`)
    .join(', ');
  return names.length <= SHOWN_NAMES ? shown : `${shown} and ${names.length - SHOWN_NAMES} more`;
}
