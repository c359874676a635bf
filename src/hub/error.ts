import { StepTrainError } from '../native/errors.js';

/**
 * Something on a model hub cannot be had: one sentence with what was asked for, what was found and what to do. `kind` is
 * stable: `missing` (no such repository, revision or file), `refused` (private or gated), `offline` (not in the cache and the
 * network may not be used), `network` (the hub cannot be reached or answers nonsense), `content` (what came is not what was
 * announced), `disk` (the cache cannot be written).
 */
export class HubError extends StepTrainError {
  override readonly name = 'HubError';
  constructor(
    readonly kind: 'missing' | 'refused' | 'offline' | 'network' | 'content' | 'disk',
    message: string,
    options: ErrorOptions = {},
  ) {
    super('E_HUB', message, options);
  }
}
