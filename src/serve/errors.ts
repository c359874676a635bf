/** What a request is refused with: one sentence, in the shape that OpenAI's clients read. */

export interface RequestErrorDetails {
  /** The field that is to blame. */
  readonly param?: string;
  readonly code?: string;
  /** Seconds after which trying again makes sense. */
  readonly retryAfter?: number;
  /** The connection cannot be used further, such as after a body that was not read. */
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

function typeOf(status: number): string {
  if (status === 429) return 'rate_limit_error';
  return status < 500 ? 'invalid_request_error' : 'server_error';
}
