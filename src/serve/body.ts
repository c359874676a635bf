/** The JSON body of a request, within limits that hold before anything is parsed. */

import type { IncomingMessage } from 'node:http';
import { reasonOf } from '../files/data-error.js';
import { parseExact } from '../files/exact-json.js';
import { attempt } from '../native/attempt.js';
import { clipped } from '../native/shown.js';
import { RequestError } from './errors.js';

/** Max nesting; no request needs more. */
const MAX_DEPTH = 32;

/**
 * @param signal ends the wait for a body that is not there yet
 * @throws RequestError with status 400, 413 or 415
 */
export async function readJson(
  request: IncomingMessage,
  maxBytes: number,
  signal: AbortSignal,
): Promise<unknown> {
  const { 'content-type': type = '', 'content-encoding': encoding = 'identity' } = request.headers;
  // Web pages of other sites can send any other type without a preflight request.
  if (!/^application\/json\s*(;|$)/i.test(type))
    refuse(
      415,
      `expected the header Content-Type: application/json, found ${type === '' ? 'none' : clipped(type)}`,
    );
  if (encoding !== 'identity')
    refuse(415, `expected a body without compression, found Content-Encoding: ${clipped(encoding)}`);
  const stop = () => request.destroy();
  signal.addEventListener('abort', stop);
  try {
    return parseJson(await readBytes(request, maxBytes));
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

async function readBytes(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const tooLong = () => refuse(413, `the body has more than ${maxBytes} bytes; send less at a time`);
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) tooLong();
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    // The request must outlive the refusal that answers it.
    for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > maxBytes) tooLong();
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof RequestError) throw error;
    refuse(400, 'the body did not come whole');
  }
  return Buffer.concat(chunks);
}

function parseJson(bytes: Buffer): unknown {
  if (bytes.length === 0) throw new RequestError(400, 'the body is empty; expected an object in JSON');
  const text = attempt(() => new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  if (text === undefined) throw new RequestError(400, 'the body is not UTF-8');
  if (depthOf(text) > MAX_DEPTH)
    throw new RequestError(400, `the body is nested more than ${MAX_DEPTH} levels deep`);
  try {
    return parseExact(text);
  } catch (error) {
    throw new RequestError(400, `the body is not JSON: ${reasonOf(error)}`);
  }
}

/** Max depth of open brackets, without recursion. */
function depthOf(text: string): number {
  let depth = 0;
  let max = 0;
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (quoted) {
      if (code === BACKSLASH) i++;
      else if (code === QUOTE) quoted = false;
    } else if (code === QUOTE) quoted = true;
    else if (code === BRACKET || code === BRACE) max = Math.max(max, ++depth);
    else if (code === BRACKET + 2 || code === BRACE + 2) depth--;
  }
  return max;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const BRACKET = 0x5b;
const BRACE = 0x7b;

/** Stops reading the body. */
function refuse(status: number, message: string): never {
  throw new RequestError(status, message, { closes: true });
}
