/** Turns of an agent as steps: each message of the assistant is a step, and what comes back is context before the next one. */
import { DataError } from '../files/data-error.js';
import { exactText } from '../files/exact-json.js';
import type { Message, MessageExtras, Step, StepRecord } from './record.js';

/**
 * Refuses a record of turns.
 *
 * @param reader that reads solutions alone, for the sentence
 * @throws DataError with the position of the record
 */
export function refuseTurns(
  { turns, provenance }: Pick<StepRecord, 'turns' | 'provenance'>,
  reader: string,
): void {
  if (turns)
    throw new DataError(
      'row',
      `this row is a conversation whose turns are steps, and ${reader}; read it as replies (data.source "trl" or "llama_factory"), or leave it out`,
      provenance,
    );
}

/** A conversation whose steps are turns, without what its source says of them. */
export type Turns = Pick<StepRecord, 'prompt' | 'tools' | 'chat_template_kwargs' | 'steps'>;

/** Messages before the first turn, then each turn with the messages after it. */
export interface DividedTurns {
  readonly prompt: readonly Message[];
  readonly turns: readonly { readonly message: Message; readonly results: readonly Message[] }[];
}

/** Divides a conversation at the messages of the assistant. */
export function dividedTurns(messages: readonly Message[]): DividedTurns {
  const prompt: Message[] = [];
  const turns: { message: Message; results: Message[] }[] = [];
  for (const message of messages) {
    if (message.role === 'assistant') turns.push({ message, results: [] });
    else (turns.at(-1)?.results ?? prompt).push(message);
  }
  return { prompt, turns };
}

/** A turn as a step without a label. */
export function stepOfTurn({ message, results }: DividedTurns['turns'][number]): Step {
  const { role: _, content, ...extras } = message;
  return {
    text: content,
    label: null,
    ...(Object.keys(extras).length === 0 ? {} : { message: extras }),
    ...(results.length === 0 ? {} : { results }),
    kind: 'normal',
  };
}

/** The messages of a conversation in order. */
export function messagesOfTurns({ prompt, steps }: Pick<Turns, 'prompt' | 'steps'>): Message[] {
  const before = typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : (prompt ?? []);
  return [...before, ...steps.flatMap((step) => [turnMessage(step), ...(step.results ?? [])])];
}

/** A turn as a message. */
export const turnMessage = ({ text, message }: Pick<Step, 'text' | 'message'>): Message => ({
  role: 'assistant',
  content: text,
  ...message,
});

/** The text of a step to read: what the turn says, and each call of a tool on a line of its own. */
export function readableStep({ text, message }: Pick<Step, 'text' | 'message'>): string {
  const calls = callsOf(message).map(({ name, arguments: given }) => `→ ${name}(${shownArguments(given)})`);
  return [text, ...calls].filter((part) => part.trim() !== '').join('\n');
}

/** Characters of a result that are shown. */
const SHOWN = 160;

/** Shows the messages that came back after a step, each message in one line that is cut where it is long. */
export function readableResults({ results = [] }: Pick<Step, 'results'>): string[] {
  return results.map(({ role, content }) => {
    const line = content.replaceAll(/\s*\n\s*/g, ' ⏎ ');
    return `← ${role}: ${line.length > SHOWN ? `${line.slice(0, SHOWN)}… (${line.length} characters)` : line}`;
  });
}

/** A call of a tool that a message makes. */
export interface ToolCall {
  readonly id?: string;
  readonly name: string;
  /** An object, or the text that was written in its place. */
  readonly arguments: unknown;
}

/** The calls of a message, as templates read them: `{ function: { name, arguments } }` or `{ name, arguments }`. */
export function callsOf(message: MessageExtras | undefined): readonly ToolCall[] {
  const calls = message?.tool_calls;
  if (!Array.isArray(calls)) return [];
  return calls.flatMap((call: unknown): ToolCall[] => {
    const { id, function: inner } = (call ?? {}) as { id?: unknown; function?: unknown };
    const { name, arguments: given } = (inner ?? call ?? {}) as { name?: unknown; arguments?: unknown };
    if (typeof name !== 'string') return [];
    return [{ ...(typeof id === 'string' ? { id } : {}), name, arguments: given ?? {} }];
  });
}

const shownArguments = (given: unknown) => (typeof given === 'string' ? given : exactText(given));
