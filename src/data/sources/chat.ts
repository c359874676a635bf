// Conversations in rows: lists of turns, with the words that each tool has for the speakers.
import { exactText, parseExact } from '../../files/exact-json.js';
import { attempt } from '../../native/attempt.js';
import {
  MESSAGE_EXTRAS,
  type Message,
  type MessageExtras,
  type Step,
  type StepRecord,
  type TemplateInputs,
} from '../../records/record.js';
import { areParts, contentOf } from '../../tokenizer/content-parts.js';
import { BadRow } from '../bad-row.js';
import { checkedText, describeValue, isRow, labelValue, misfit, type Row } from '../columns.js';
import { isNoError, objectSays } from '../turn-results.js';
import type { ConversionLog, ReadingOptions } from './source.js';

const SPEAKERS: Readonly<Record<string, string>> = { human: 'user', gpt: 'assistant', observation: 'tool' };

/** ShareGPT's speaker whose text is a call of functions, in JSON. */
const CALLING = 'function_call';

/**
 * Turns as `{role, content}` or as ShareGPT's `{from, value}`.
 *
 * @param mayBeEmpty whether a reply may say and call nothing, as turns of agents do
 * @throws BadRow for anything else
 */
export function messagesOf(value: unknown, where: string, mayBeEmpty = false): Message[] {
  if (!Array.isArray(value) || value.length === 0) {
    throw misfit(`${where} holds`, value, 'a list of messages');
  }
  return value.map((turn, i) => messageOf(turn, `message ${i + 1} of ${where}`, mayBeEmpty));
}

/** One turn. */
export function messageOf(turn: unknown, where: string, mayBeEmpty = false): Message {
  if (!isRow(turn)) {
    throw misfit(`${where} is`, turn, 'an object with role and content');
  }
  const role = checkedText(turn.role ?? turn.from, `the role of ${where}`);
  if (role === CALLING)
    return { role: 'assistant', content: '', tool_calls: callsOf(turn.content ?? turn.value, where) };
  const extras = extrasOf(turn);
  const lost = LOST.find((key) => isThere(turn[key]));
  if (lost !== undefined)
    throw new BadRow(
      'unread_part',
      `${where} has ${lost}, which is not read and would be lost; expected calls as tool_calls, results as messages of "tool", and the rest as content or reasoning_content`,
    );
  const given = turn.content ?? turn.value;
  // A reply that calls functions may have no text, and a command may print none.
  const speaker = SPEAKERS[role] ?? role;
  const mayBeSilent =
    extras.tool_calls !== undefined || speaker === 'tool' || (mayBeEmpty && speaker === 'assistant');
  const isSilent = (given === undefined || given === null || given === '') && mayBeSilent;
  checkCalls(turn.tool_calls, where);
  const elsewhere = RESULTS.find((key) => isSilent && speaker === 'tool' && isResult(key, turn[key]));
  if (elsewhere !== undefined)
    throw new BadRow(
      'unread_part',
      `${where} has no content, and its ${elsewhere} is not read and would be lost; expected what the model saw as the content`,
    );
  const texts = isSilent ? [] : textsIn(given, where);
  if (!isSilent) checkedText(texts.join(''), `the content of ${where}`);
  const { is_error: _, ...others } = extras;
  const says = speaker === 'tool' ? objectSays({ ...turn, content: undefined }) : undefined;
  const failed = says === undefined ? {} : { is_error: says === 0 };
  return { role: speaker, ...contentOf(texts), ...others, ...failed };
}

/** A call or a list of calls in JSON, `{"name": …, "arguments": {…}}`, as the `tool_calls` that templates read. */
function callsOf(value: unknown, where: string): readonly unknown[] {
  const found = typeof value === 'string' ? attempt(() => parseExact(value), value) : value;
  const calls = Array.isArray(found) ? found : [found];
  return calls.map((call: unknown) => {
    if (!isRow(call) || typeof call.name !== 'string' || losesArguments(call))
      throw misfit(
        `${where} is a ${CALLING} of`,
        value,
        '{"name": …, "arguments": {…}} in JSON, or a list of such',
        'bad_call',
      );
    return { type: 'function', function: { name: call.name, arguments: call.arguments ?? {} } };
  });
}

/**
 * Refuses calls in another form than chat templates read, such as those of LangChain, Anthropic and Inspect: of these a template
 * may write the name without its arguments, or nothing.
 *
 * @throws BadRow with the call
 */
function checkCalls(calls: unknown, where: string): void {
  if (!isThere(calls)) return;
  if (!Array.isArray(calls))
    throw misfit(`'tool_calls' of ${where} is`, calls, `a list of ${CALL}`, 'bad_call');
  calls.forEach((call: unknown, i) => {
    const called = isRow(call) && isThere(call.function) ? call.function : call;
    const isRead =
      isRow(call) && isRow(called) && typeof called.name === 'string' && !losesArguments(called, call);
    if (isRead) return;
    if (!isRow(call)) throw misfit(`call ${i + 1} of ${where} is`, call, CALL, 'bad_call');
    throw new BadRow(
      'bad_call',
      `call ${i + 1} of ${where} is ${exactText(call).slice(0, 200)}; expected ${CALL}`,
    );
  });
}

const CALL = '{"function": {"name": …, "arguments": {…}}}';

/** Fields of a call that none of its arguments is lost under. */
const CALL_KEYS = ['id', 'call_id', 'type', 'index', 'name', 'function', 'arguments'];

/** Says whether a call has no `arguments`, and it, or what stands around it, has something under another name. */
const losesArguments = (called: Row, around: Row = called): boolean =>
  (called.arguments ?? undefined) === undefined &&
  (isThere(around.arguments) ||
    Object.entries({ ...around, ...called }).some(
      ([key, value]) => !CALL_KEYS.includes(key) && isThere(value),
    ));

/** Fields in which programs have what came back for a call, such as Inspect what failed; chat templates read none. */
const RESULTS = ['error', 'errors', 'output', 'outputs', 'result', 'results', 'response', 'stdout', 'stderr'];

/** Says whether such a field holds more than that a call failed or not. */
const isResult = (key: string, value: unknown): boolean =>
  isThere(value) && typeof value !== 'boolean' && !(key.startsWith('error') && isNoError(value));

/** Parts of messages in other forms, OpenAI's before `tool_calls`, Gemma 4's and Cohere's, and what models of text do not see. */
const LOST = ['function_call', 'tool_responses', 'tool_plan', 'image', 'images', 'video', 'videos', 'audios'];

const isThere = (value: unknown): boolean =>
  value !== undefined && value !== null && value !== '' && !(Array.isArray(value) && value.length === 0);

/** The fields of a message, apart from its text, that a template may read. Null and empty ones count as absent. */
export function extrasOf(turn: Row): MessageExtras {
  const isExtra = (key: string) => (key === 'parts' ? areParts(turn[key]) : isThere(turn[key]));
  return Object.fromEntries(MESSAGE_EXTRAS.filter(isExtra).map((key) => [key, turn[key]]));
}

/** The text of a content, or the texts of its parts in OpenAI's form. */
function textsIn(content: unknown, where: string): string[] {
  if (!Array.isArray(content)) return [checkedText(content, `the content of ${where}`)];
  return content.map((part: unknown, i) => {
    if (isRow(part) && part.type === 'text' && typeof part.text === 'string') return part.text;
    const found =
      isRow(part) && 'type' in part ? `of type ${JSON.stringify(part.type)}` : describeValue(part);
    throw new BadRow(
      'wrong_type',
      `part ${i + 1} of the content of ${where} is ${found}; expected {"type": "text", "text": …}, as models read text alone`,
    );
  });
}

/** The prompt, and the reply that must end the conversation. */
export function splitReply(
  messages: readonly Message[],
  where: string,
): { readonly prompt: readonly Message[]; readonly reply: Message } {
  const last = messages.at(-1);
  if (messages.length < 2 || last?.role !== 'assistant') {
    throw new BadRow(
      'no_reply',
      `${where} ends with ${last ? `a message of ${JSON.stringify(last.role)}` : 'nothing'}; expected a prompt and then a reply of "assistant"`,
    );
  }
  return { prompt: messages.slice(0, -1), reply: last };
}

/**
 * Positions of the learned replies of a conversation; a label belongs to the last one alone. A reply of `weight` 0, or of what
 * others call that, is context.
 *
 * @param given the turns of the row
 * @throws BadRow where no reply is left
 */
export function learnedReplies(
  messages: readonly Message[],
  {
    turns,
    labelled,
    given = [],
  }: Pick<ReadingOptions, 'turns'> & { readonly labelled: boolean; readonly given?: readonly unknown[] },
  log: ConversionLog,
): number[] {
  const replies = messages.flatMap(({ role }, i) => (role === 'assistant' && i > 0 ? [i] : []));
  const asked = turns === 'all' && !labelled ? replies : replies.slice(-1);
  const isContext = (i: number) => {
    const turn = rowOf(given[i]);
    const weights = WEIGHTS.map((key) => labelValue(turn[key], `${key} of message ${i + 1}`));
    if (weights.includes(0)) return true;
    const part = PARTIAL.find((key) => ![undefined, null, 1].includes(turn[key] as null));
    if (part !== undefined)
      throw new BadRow(
        'partial_reply',
        `message ${i + 1} has ${part}, by which a part of it would be learned; a reply is learned whole or, with weight 0, not at all`,
      );
    return false;
  };
  const learned = asked.filter((i) => !isContext(i));
  if (learned.length === 0)
    throw new BadRow(
      'no_reply',
      'every reply that would be learned has weight 0; expected one with weight 1',
    );
  if (replies.length > 1) log.replies(learned.length, replies.length);
  return learned;
}

/** OpenAI's name, and those of axolotl, ms-swift and others. */
const WEIGHTS = ['weight', 'loss_mask', 'loss', 'train', 'training', 'trainable'];

/** Names of axolotl and ms-swift for what is learned of parts of a reply, or by how much. */
const PARTIAL = ['train_detail', 'training_detail', 'loss_scale'];

const rowOf = (turn: unknown): Row => (isRow(turn) ? turn : {});

/** A record whose one step is the whole reply. */
export function answered({
  prompt,
  reply,
}: {
  readonly prompt: string | readonly Message[];
  readonly reply: string | Message;
}): StepRecord {
  const step = wholeStep(reply);
  return { problem: questionOf(prompt) || step.text, prompt, steps: [step] };
}

export function wholeStep(reply: string | Message): Step {
  if (typeof reply === 'string') return { text: reply, label: null, kind: 'normal' };
  const message = extrasOf(reply);
  return {
    text: reply.content,
    label: null,
    ...(Object.keys(message).length === 0 ? {} : { message }),
    kind: 'normal',
  };
}

/** A description of a tool as OpenAI's, where name and parameters stand beside its type, or without one. */
export function asFunction(tool: unknown): unknown {
  if (!isRow(tool) || isRow(tool.function)) return tool;
  const { type = 'function', ...described } = tool;
  return { type, function: described };
}

/**
 * Reads the columns `tools`, a list or JSON of one, and `chat_template_kwargs`. Functions of LLaMA-Factory's rows get the form
 * in which it shows them to templates.
 *
 * @throws BadRow for anything else, and with a prompt that is no conversation
 */
export function templateInputs(row: Row, { prompt }: { readonly prompt?: unknown }): TemplateInputs {
  const described = jsonOf(row.tools, 'tools');
  const isLlamaFactory = 'conversations' in row || 'instruction' in row;
  const tools = Array.isArray(described)
    ? described.map((tool, i) => {
        const found = toolOf(tool, `tool ${i + 1} of column 'tools'`);
        return isLlamaFactory ? asFunction(found) : found;
      })
    : described;
  const kwargs = jsonOf(row.chat_template_kwargs, 'chat_template_kwargs');
  const found = {
    ...(tools === undefined ? {} : { tools }),
    ...(kwargs === undefined ? {} : { chat_template_kwargs: kwargs }),
  };
  if (tools !== undefined && !Array.isArray(tools)) throw misfit("column 'tools' holds", tools, 'a list');
  if (kwargs !== undefined && !isRow(kwargs))
    throw misfit("column 'chat_template_kwargs' holds", kwargs, 'an object');
  const [first] = Object.keys(found);
  if (first !== undefined && !Array.isArray(prompt))
    throw new BadRow('no_template', `column '${first}' is for a chat template, and this prompt is a text`);
  return found as TemplateInputs;
}

/** The description of a tool, also in JSON. @throws BadRow for what templates would write as no object */
function toolOf(value: unknown, where: string): Row {
  const found = typeof value === 'string' ? attempt(() => parseExact(value)) : value;
  if (!isRow(found)) throw misfit(`${where} is`, value, 'an object, or its JSON');
  if ('function' in found && !isRow(found.function))
    throw misfit(`the function of ${where} is`, found.function, 'an object');
  return found;
}

/** The value of a JSON text, other values as they are; undefined where nothing is in it. */
function jsonOf(value: unknown, column: string): unknown {
  let found = value;
  if (typeof value === 'string' && value.trim() !== '') {
    found = attempt(() => parseExact(value));
    if (found === undefined) throw misfit(`column '${column}' holds`, value, 'JSON');
  }
  const isEmpty =
    found === undefined ||
    found === null ||
    (typeof found === 'string' && found.trim() === '') ||
    (typeof found === 'object' && Object.keys(found).length === 0);
  return isEmpty ? undefined : found;
}

/** The text that identifies a prompt, for splits and overlap: the user's last message. */
export function questionOf(prompt: string | readonly Message[]): string {
  if (typeof prompt === 'string') return prompt;
  return prompt.findLast(({ role }) => role === 'user')?.content ?? (prompt.at(-1) as Message).content;
}
