/** Who may ask: anybody on this machine, and elsewhere whoever has the key. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { RequestError } from './errors.js';

/** Whether only programs of this machine reach an address. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}

/** @throws RequestError with status 401 or 403 */
export function checkAccess({ headers }: IncomingMessage, key: string | undefined): void {
  if (key === undefined) {
    // Without a key, a web page whose name was made to mean this machine could ask in its visitor's place.
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

/** Of one length, whatever the key's. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
