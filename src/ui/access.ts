/** Admits only requests of pages that this server made, on this machine, under its own host name. */
import type { IncomingMessage } from 'node:http';
import { isLoopback } from '../serve/access.js';

/** Why a request is refused; undefined where it may pass. */
export function refusal({ headers, method }: IncomingMessage, port: number): string | undefined {
  const host = (headers.host ?? '').toLowerCase();
  const [, name = '', asked] = /^(\[[^\]]*\]|[^:]*)(?::(\d+))?$/.exec(host) ?? [];
  // A foreign web page could reach the server by DNS rebinding, with its own host name.
  if (!isLoopback(name.replace(/^\[|\]$/g, '')) || Number(asked ?? 80) !== port)
    return 'this page is asked for as localhost or 127.0.0.1 alone';
  const { origin } = headers;
  if (origin !== undefined && origin !== `http://${host}`) return 'requests of other pages are refused';
  if (headers['sec-fetch-site'] === 'cross-site') return 'requests of other pages are refused';
  // A form or an image of another page sends no JSON header, and fetch from it sends its origin.
  if (method === 'POST' && (origin === undefined || headers['content-type'] !== 'application/json'))
    return 'what changes a run is asked by this page alone';
  return undefined;
}
