/** Limits of a server. */

export interface ServeLimits {
  /** Bytes of a request's body. Default 4 MiB. */
  readonly bodyBytes: number;
  /** Samples of one request, prompts × n. Default 128. */
  readonly samples: number;
  /** Max waiting samples, in addition to running ones; further requests are answered 429. Default 1024. */
  readonly queue: number;
  /** New tokens of a sample. Default: the model's max length. */
  readonly newTokens: number;
  /** Open connections. Default 1024. */
  readonly connections: number;
  /** Seconds in which a request's headers and body must arrive. Default 30. */
  readonly requestSeconds: number;
  /** Seconds without reading after which a client is disconnected. Default 60. */
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
