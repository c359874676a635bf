/** Conversations of a request to /score: their turns of the assistant are scored, as agents' trainers take them. */
import { BadRow } from '../data/bad-row.js';
import { checkCalls } from '../data/sources/turns.js';
import { withoutTableNulls } from '../data/table-nulls.js';
import { defined } from '../native/defined.js';
import type { Message, Step } from '../records/record.js';
import { dividedTurns, readableStep, stepOfTurn, type Turns } from '../records/turns.js';
import type { Solution } from '../scoring/scorer.js';
import { chatMessage } from './chat-message.js';
import type { RequestFields } from './request-fields.js';

const MAX_MESSAGES = 4096;
const MAX_TOOLS = 128;

/** Whether the request is of a conversation: `messages`, or `prompt` and `completion`, as trainers pass them to reward functions. */
export const isConversation = (fields: RequestFields): boolean =>
  fields.has('messages') || (fields.has('prompt') && fields.has('completion'));

/**
 * Reads the fields of a conversation. The function that comes back reads its messages, which a policy wrote.
 *
 * @throws RequestError, both, with the place of the mistake; the function for what is no conversation with a turn of the assistant
 */
export function turnSolution(fields: RequestFields): () => Solution {
  const names = fields.has('messages') ? ['messages'] : ['prompt', 'completion'];
  const [first, last] = [names[0] as string, names.at(-1) as string];
  const given = names.map((name) => fields.list(name, isAny, 'messages', MAX_MESSAGES) ?? []);
  const asked = fields.list('tools', isObject, 'functions', MAX_TOOLS);
  const kwargs = fields.value('chat_template_kwargs');
  if (kwargs !== undefined && !isObject(kwargs)) fields.fail('chat_template_kwargs', 'an object');
  return () => {
    const sent = given.flatMap((list, of) =>
      list.map((message, i) => chatMessage(fields.inner(message, `${names[of]}[${i}]`)) as Message),
    );
    // As rows of training data are read: trainers send the columns of their tables.
    const read = withoutTableNulls({ messages: sent, tools: asked }, () => {});
    const [messages, tools] = [read.messages as readonly Message[], read.tools as typeof asked];
    const { prompt, turns } = dividedTurns(messages);
    if (turns.length === 0) fields.fail(last, 'a conversation with at least one message of the assistant');
    if (prompt.length === 0) fields.fail(first, 'a message before the first one of the assistant');
    try {
      checkCalls(messages, tools ?? []);
    } catch (error) {
      if (!(error instanceof BadRow)) throw error;
      fields.refuse(last, error.message);
    }
    const steps = turns.map(stepOfTurn);
    return {
      problem: prompt.findLast(({ role }) => role === 'user')?.content ?? '',
      steps: steps.map(readableStep),
      turns: defined<Turns>({
        prompt,
        tools: tools?.length ? tools : undefined,
        chat_template_kwargs: kwargs as Turns['chat_template_kwargs'],
        steps: steps as readonly Step[],
      }),
    };
  };
}

const isAny = (item: unknown): item is unknown => true;

const isObject = (item: unknown): item is object =>
  typeof item === 'object' && item !== null && !Array.isArray(item);
