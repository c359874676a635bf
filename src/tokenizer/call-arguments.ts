// Arguments of calls in a conversation: an object to some templates, JSON in a text to others and in OpenAI's data.
import { DataError } from '../files/data-error.js';
import { parseExact } from '../files/exact-json.js';
import { fromPlain } from '../jinja/from-plain.js';
import { json } from '../jinja/json.js';
import { attempt } from '../native/attempt.js';
import { MessageLeftOut } from './chat-template.js';
import type { ChatMessage } from './tokenizer.js';

/** The layout of `tojson` in chat templates. */
const LAYOUT = {
  ensureAscii: false,
  indent: null,
  itemSeparator: ', ',
  keySeparator: ': ',
  sortKeys: false,
} as const;
const written = (value: unknown) => json(fromPlain(value), LAYOUT);

type Messages = readonly ChatMessage[];

/**
 * Renders a conversation with the arguments of its calls as they are, and otherwise where the template cannot take them so: a text that
 * it would write as JSON once more becomes an object, as in vLLM, and an object that it refuses becomes a text.
 *
 * @throws DataError of the conversation as it is, where neither can be rendered
 */
export function renderedWithCalls(messages: Messages, render: (messages: Messages) => string): string {
  const texts: string[] = [];
  const asObjects = withArguments(messages, (given) => {
    if (typeof given !== 'string' || !given.trimStart().startsWith('{')) return given;
    texts.push(given);
    return attempt(() => parseExact(given), given);
  });
  const other = asObjects === messages ? withArguments(messages, asText) : asObjects;
  if (other === messages) return render(messages);
  const first = attempted(() => render(messages));
  if (typeof first === 'string') {
    const isTwiceEncoded = texts.some((text) => first.includes(written(text)));
    return isTwiceEncoded ? render(asObjects) : first;
  }
  const second = attempted(() => render(other));
  if (typeof second !== 'string') throw first;
  return second;
}

/** The text, or the error of the template. */
function attempted(work: () => string): string | DataError {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof DataError) || error instanceof MessageLeftOut) throw error;
    return error;
  }
}

const asText = (given: unknown) => (typeof given === 'object' && given !== null ? written(given) : given);

/** The same list where nothing changes. */
function withArguments(messages: Messages, change: (given: unknown) => unknown): Messages {
  let changes = false;
  const changed = (called: unknown): unknown => {
    if (typeof called !== 'object' || called === null) return called;
    const { function: inner, arguments: given } = called as { function?: unknown; arguments?: unknown };
    if (inner !== undefined) return { ...called, function: changed(inner) };
    const value = change(given);
    if (value === given) return called;
    changes = true;
    return { ...called, arguments: value };
  };
  const all = messages.map((message) =>
    Array.isArray(message.tool_calls) ? { ...message, tool_calls: message.tool_calls.map(changed) } : message,
  );
  return changes ? all : messages;
}
