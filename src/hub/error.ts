import { StepTrainError } from '../native/errors.js';

/**
 * A failed download from a model hub: one sentence with what was requested, what was found and what to do. `kind` is
 * stable: `missing` (no such repository, revision or file), `refused` (private or gated), `offline` (not in the cache, and
 * the network may not be used), `network` (the hub cannot be reached or its answer is invalid), `content` (the content
 * does not match its size or checksum), `disk` (the cache cannot be written).
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

/** Errors of one kind. */
const ofKind = (kind: HubError['kind']) => (message: string, options?: ErrorOptions) =>
  new HubError(kind, message, options);

export const notOnHub = ofKind('missing');
export const refusedByHub = ofKind('refused');
export const hubFailed = ofKind('network');
export const badContent = ofKind('content');
export const badDisk = ofKind('disk');
