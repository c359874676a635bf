/** The refusal of a request: one sentence, in OpenAI's error format. */

export interface RequestErrorDetails {
  /** The invalid field. */
  readonly param?: string;
  readonly code?: string;
  /** Seconds after which the client may retry. */
  readonly retryAfter?: number;
  /** Close the connection, for example after a body that was not read. */
  readonly closes?: boolean;
}

export class RequestError extends Error {
  override readonly name = 'RequestError';

  /** @param status of the HTTP response */
  constructor(
    readonly status: number,
    message: string,
    readonly details: RequestErrorDetails = {},
  ) {
    super(message);
  }

  /** The body of the response. */
  get body(): { readonly error: Readonly<Record<string, unknown>> } {
    const { param = null, code = null } = this.details;
    return { error: { message: this.message, type: typeOf(this.status), param, code } };
  }
}

/** The refusal of a conversation whose turns the scorer cannot read, by its chat template; others of the request may be scored. */
export class UnreadTurns extends RequestError {}

export function fieldError(param: string, reason: string, status = 400): RequestError {
  return new RequestError(status, `${param}: ${reason}`, { param });
}

function typeOf(status: number): string {
  if (status === 429) return 'rate_limit_error';
  return status < 500 ? 'invalid_request_error' : 'server_error';
}
