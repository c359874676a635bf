// One request to the hub: token, redirects, and the meaning of its refusals.
import { type HubError, hubFailed, notOnHub, refusedByHub } from './error.js';
import type { HubSettings } from './settings.js';

/** A request, described in words for the message of a refusal. */
export interface HubRequest {
  readonly settings: HubSettings;
  /** `model a/b` */
  readonly what: string;
  /** Path of its web page, relative to the endpoint. */
  readonly page: string;
  readonly revision: string;
}

/** Timeout of a silent connection. */
export const SILENCE_MS = 30_000;

const MAX_REDIRECTS = 5;

/** The signal for a short answer: aborts when nothing has come for long, or with `signal`. */
export const silentOr = (signal: AbortSignal | undefined): AbortSignal =>
  AbortSignal.any([AbortSignal.timeout(SILENCE_MS), ...(signal ? [signal] : [])]);

/**
 * Sends a GET request. Redirects are followed here, so that the token goes to the endpoint and nowhere else.
 *
 * @returns a response with a status below 300, or 416 if a range was requested
 * @throws HubError; of kind `network` if trying again may help
 */
export async function hubFetch(
  request: HubRequest,
  url: string,
  {
    headers = {},
    signal,
  }: { readonly headers?: Readonly<Record<string, string>>; readonly signal?: AbortSignal } = {},
): Promise<Response> {
  const { settings } = request;
  const endpoint = new URL(settings.endpoint);
  for (let at = new URL(url), redirects = 0; ; redirects++) {
    const authorization =
      at.origin === endpoint.origin && settings.token !== undefined
        ? { authorization: `Bearer ${settings.token}` }
        : {};
    const response = await fetch(at, {
      headers: { 'user-agent': 'steptrain', ...headers, ...authorization },
      redirect: 'manual',
      signal: signal ?? silentOr(undefined),
    }).catch((error: unknown) => {
      throw unreachable(at, error);
    });
    if (response.ok || (response.status === 416 && 'range' in headers)) return response;
    await response.body?.cancel();
    const location = response.headers.get('location');
    if (response.status < 300 || response.status >= 400 || location === null)
      throw refusal(request, at, response);
    if (redirects === MAX_REDIRECTS) {
      throw hubFailed(`${at.origin} redirects ${request.what} without end; check HF_ENDPOINT`);
    }
    at = redirected(request, at, location);
  }
}

function redirected({ what }: HubRequest, from: URL, location: string): URL {
  const to = URL.canParse(location, from.href) ? new URL(location, from) : undefined;
  if (to && (to.protocol === 'https:' || to.protocol === 'http:')) return to;
  throw hubFailed(
    `${from.origin} redirects ${what} to ${JSON.stringify(location.slice(0, 80))}, which is no web address; check HF_ENDPOINT`,
  );
}

/** The error about an unreachable host. */
export function unreachable(url: URL, error: unknown): HubError {
  const cause = (error as { cause?: { code?: unknown; message?: unknown } }).cause;
  const isSilent = (error as Error).name === 'TimeoutError';
  const reason = isSilent
    ? `no answer for ${SILENCE_MS / 1000} s`
    : String(cause?.code ?? cause?.message ?? (error as Error).message);
  return hubFailed(
    `cannot reach ${url.origin} (${reason}); check the network and HF_ENDPOINT, or give a local path`,
    { cause: error },
  );
}

function refusal({ settings, what, page, revision }: HubRequest, url: URL, response: Response): HubError {
  const { status, headers } = response;
  const code = headers.get('x-error-code') ?? '';
  const at = `${settings.endpoint}/${page}`;
  const token = settings.token === undefined ? 'set HF_TOKEN' : 'use a token that may read it';
  if (code === 'GatedRepo') {
    return refusedByHub(`the ${what} is gated: accept its terms at ${at} and ${token}`);
  }
  if (code === 'RevisionNotFound') {
    return notOnHub(`the ${what} has no revision ${revision} (${at})`);
  }
  if (status === 403) {
    return refusedByHub(`${settings.endpoint} does not let you read the ${what}; see ${at}, and ${token}`);
  }
  // The hub answers 401 for missing repositories too, so as not to reveal which private ones exist.
  if (status === 401 || status === 404) {
    return notOnHub(
      `there is no ${what} on ${settings.endpoint}, or it is private; check the name${
        status === 401 || settings.token === undefined ? `, or ${token}` : ''
      }`,
    );
  }
  return hubFailed(
    `${url.origin} answers ${status} ${response.statusText} for the ${what}; try again later, or give a local path`,
  );
}
