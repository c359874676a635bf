/** Access control: programs on this machine may send requests, all others need the key. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { RequestError } from './errors.js';

/** Whether an address can be reached only from this machine. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}

/** @throws RequestError with status 401 or 403 */
export function checkAccess({ headers }: IncomingMessage, key: string | undefined): void {
  if (key === undefined) {
    // Without this check a web page could reach the server by DNS rebinding, with its own host name.
    const host = /^(\[[^\]]*\]|[^:]*)/.exec(headers.host ?? '')?.[0].replace(/^\[|\]$/g, '') ?? '';
    if (!isLoopback(host.toLowerCase()))
      throw new RequestError(403, 'this server is asked as localhost or 127.0.0.1 alone');
    return;
  }
  const [, given = ''] = /^Bearer (.+)$/i.exec(headers.authorization ?? '') ?? [];
  if (!timingSafeEqual(digest(given), digest(key)))
    throw new RequestError(401, 'the key is missing or wrong; send the header Authorization: Bearer KEY', {
      code: 'invalid_api_key',
    });
}

/** A digest, so that the comparison does not depend on the key's length. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
