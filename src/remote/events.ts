/** Server-sent events, as JSON, up to their end. */
import { attempt } from '../native/attempt.js';
import { PassingFailure } from './errors.js';

/** No event of a server that works is longer. */
const MAX_EVENT_BYTES = 32 << 20;

/**
 * The events of a response, which ends with `[DONE]`. It is read to its last byte, so that the connection serves again.
 *
 * @throws PassingFailure for a stream that ends before, goes on after, or is no JSON
 */
export async function* jsonEvents(chunks: AsyncIterable<Buffer>): AsyncGenerator<unknown> {
  let done = false;
  for await (const data of events(chunks)) {
    if (done) throw new PassingFailure('the stream went on after its end');
    done = data === '[DONE]';
    if (!done) yield parsedAnswer(data);
  }
  if (!done) throw new PassingFailure('the stream ended before its end');
}

/** @throws PassingFailure for what is no JSON */
export function parsedAnswer(text: string): unknown {
  const answer: unknown = attempt(() => JSON.parse(text));
  if (answer !== undefined) return answer;
  throw new PassingFailure(`the server wrote what is no JSON: ${text.slice(0, 60)}`);
}

async function* events(chunks: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  let data: string[] = [];
  for await (const chunk of chunks) {
    rest += decoder.decode(chunk, { stream: true });
    if (rest.length > MAX_EVENT_BYTES) throw new PassingFailure('the server wrote a line without end');
    const lines = rest.split(/\r?\n/);
    rest = lines.pop() as string;
    for (const line of lines) {
      if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
      else if (line === '' && data.length > 0) {
        yield data.join('\n');
        data = [];
      }
    }
  }
}
