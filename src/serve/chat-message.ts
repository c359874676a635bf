/** A message of a conversation, as clients write it and as they send a server's answer back. */

import { parseExact } from '../files/exact-json.js';
import { attempt } from '../native/attempt.js';
import { defined } from '../native/defined.js';
import { nearestName } from '../native/nearest.js';
import { contentOf } from '../tokenizer/content-parts.js';
import type { ChatMessage } from '../tokenizer/tokenizer.js';
import { RequestFields } from './request-fields.js';

const ROLES = ['system', 'developer', 'user', 'assistant', 'tool'];

/** Calls of functions in one message. */
const MAX_CALLS = 128;

/** The keys that chat templates read: those that are null or empty are left out. */
export function chatMessage(fields: RequestFields): ChatMessage {
  const role = roleOf(fields);
  const calls = fields.list('tool_calls', (item): item is unknown => true, 'calls', MAX_CALLS) ?? [];
  const reasoning = fields.text('reasoning_content') ?? fields.text('reasoning');
  const message = defined<ChatMessage>({
    role,
    // A reply that calls functions, or that was cut off while it reasoned, has no content.
    ...contentOf(role === 'assistant' && !fields.has('content') ? [] : messageTexts(fields)),
    name: fields.text('name'),
    reasoning_content: reasoning,
    tool_calls: calls.length === 0 ? undefined : calls.map((call, i) => toolCall(fields, call, i)),
    tool_call_id: fields.text('tool_call_id'),
  });
  // Keys of a reply by other servers: the positions of cited text, and features that do not exist here.
  fields.ignore('annotations', 'reasoning');
  for (const name of ['refusal', 'audio', 'function_call']) fields.neutral(name);
  fields.end();
  return message;
}

/** Templates read arguments as an object, where OpenAI's are JSON in a text; vLLM parses them too. */
function toolCall(message: RequestFields, call: unknown, index: number): object {
  const fields = message.inner(call, `tool_calls[${index}]`);
  const id = fields.text('id');
  fields.neutral('type', 'function');
  fields.ignore('index');
  const called = fields.section('function') ?? fields.fail('function', 'an object with name and arguments');
  const name = called.requiredText('name');
  const written = called.value('arguments') ?? '';
  // Servers write nothing for a call without arguments.
  const given =
    typeof written === 'string' ? (written.trim() === '' ? {} : attempt(() => parseExact(written))) : written;
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    called.fail('arguments', 'an object in JSON');
  called.end();
  fields.end();
  return { ...(id === undefined ? {} : { id }), type: 'function', function: { name, arguments: given } };
}

/** Templates may know further roles; one that is nearly a usual one is misspelt. */
function roleOf(fields: RequestFields): string {
  const role = fields.requiredText('role');
  // The longest misspelling of a role is short; comparing takes time in proportion.
  const isKnown = ROLES.includes(role) || role.length > 20;
  const nearest = isKnown ? undefined : nearestName(role, ROLES);
  if (nearest === undefined) return role;
  return fields.fail(
    'role',
    `${ROLES.join(', ')} or another role of the template`,
    `${JSON.stringify(role)}; did you mean ${nearest}?`,
  );
}

/** The text, or those of its parts. */
function messageTexts(fields: RequestFields): string[] {
  const value = fields.value('content');
  if (typeof value === 'string') return [value];
  const parts = Array.isArray(value)
    ? value
    : fields.fail('content', 'a text, or a list of parts of type text');
  return parts.map((part, i) => {
    const inner = new RequestFields(part, `content[${i}].`);
    if (inner.requiredText('type') !== 'text') inner.fail('type', '"text", as the model reads text alone');
    const text = inner.requiredText('text');
    inner.end();
    return text;
  });
}
