/** What a server accepts at most. */

export interface ServeLimits {
  /** Bytes of a request's body. Default 4 MiB. */
  readonly bodyBytes: number;
  /** Samples that one request may ask for, prompts × n. Default 128. */
  readonly samples: number;
  /** Samples that may wait beside those that run; beyond them requests are answered 429. Default 1024. */
  readonly queue: number;
  /** New tokens of a sample. Default: as many as the model reads. */
  readonly newTokens: number;
  /** Open connections. Default 1024. */
  readonly connections: number;
  /** Seconds in which a request's headers and body must arrive. Default 30. */
  readonly requestSeconds: number;
  /** Seconds for which a client may not read what is sent to it. Default 60. */
  readonly stallSeconds: number;
}

export const DEFAULT_LIMITS: ServeLimits = {
  bodyBytes: 4 << 20,
  samples: 128,
  queue: 1024,
  newTokens: Number.MAX_SAFE_INTEGER,
  connections: 1024,
  requestSeconds: 30,
  stallSeconds: 60,
};
