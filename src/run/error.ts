/** A run directory that cannot be used or written: one sentence with the place, the finding and what to do. */
export class RunError extends Error {
  override readonly name = 'RunError';
  readonly code = 'ERR_RUN';
}
