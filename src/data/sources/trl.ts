import { exactText } from '../../files/exact-json.js';
import type { Message, StepRecord } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import { otherQuestions } from '../benchmarks/unasked.js';
import { checkedText, describeValue, has, isRow, labelValue, type Row } from '../columns.js';
import { answered, learnedReplies, messagesOf, splitReply, templateInputs, wholeStep } from './chat.js';
import type { ReadingOptions, Source } from './source.js';

/**
 * The data sets of TRL's trainers, as text or as messages: `prompt, completion, label` (unpaired preferences), `prompt, chosen,
 * rejected` or `chosen, rejected` that begin with the same prompt (preferences), `prompt, completion` and `messages`, which
 * LLaMA-Factory's example of KTO gives a `label`. A text stays as it is, without a template around it. An answer is one step; `stepwise` reads step labels.
 * A row of `text` has no prompt: all of it is the answer.
 */
export const trl: Source<ReadingOptions> = {
  name: 'trl',
  columns: 'prompt, completion[, label]; [prompt,] chosen, rejected; messages[, label]; text alone',
  matches: (row) =>
    (isTurns(row.messages) && !(typeof row.chosen === 'string' && 'instruction' in row)) ||
    ('prompt' in row && 'completion' in row) ||
    (isPair(row) &&
      (has(row, 'prompt') || isTurns(row.chosen) || !('instruction' in row || 'conversations' in row))) ||
    (typeof row.text === 'string' && !ASKING.some((column) => column in row)),
  convert(row, { turns }, log) {
    const withInputs = (record: StepRecord) => {
      const { prompt = '' } = record;
      const asked = typeof prompt === 'string' ? [prompt] : prompt.map(({ content }) => `${content}`);
      for (const column of otherQuestions(row, asked)) log.unasked(column);
      return { ...record, ...templateInputs(row, record) };
    };
    if ('chosen' in row) return [withInputs(preference(row))];
    // TRL's order, where a row has both.
    const isAnswered = has(row, 'prompt', 'completion');
    if ('messages' in row && !isAnswered) {
      const messages = messagesOf(row.messages, "column 'messages'");
      const whole = withInputs(answered(splitReply(messages, "column 'messages'")));
      // Conversations may have other labels, such as a subject.
      const label = isMark(row.label) ? 'label' : 'kto_tag';
      const labelled = row[label] !== undefined;
      const given = row.messages as readonly unknown[];
      return learnedReplies(messages, { turns, labelled, given }, log).map((at) => ({
        ...withOutcome(whole, row, label),
        prompt: messages.slice(0, at),
        steps: [wholeStep(messages[at] as Message)],
      }));
    }
    if ('text' in row && !('prompt' in row) && !('completion' in row))
      return [answered({ prompt: '', reply: checkedText(row.text, "column 'text'") })];
    const prompt = promptOf(row.prompt);
    const reply = replyTo(prompt, row, 'completion');
    if (isTurns(row.messages) && !isLast(reply, row.messages)) log.unasked('messages');
    const record = answered({ prompt, reply });
    return [withInputs(withOutcome(record, row, 'label'))];
  },
};

/** Whether a reply is the last of these messages. */
function isLast(reply: string | Message, messages: readonly unknown[]): boolean {
  const last = messages.at(-1);
  const said = typeof reply === 'string' ? reply : reply.content;
  return isRow(last) && typeof said === 'string' && `${last.content}`.trim() === said.trim();
}

/** True or false, also as a number or as text of a CSV file. */
function isMark(value: unknown): boolean {
  return /^(true|false|0|1)$/i.test(`${value}`.trim());
}

/** Columns of questions that data sets of preferences have in place of a prompt. */
const QUESTIONS = ['question', 'problem', 'query', 'input'];

/** Columns of layouts whose rows may also hold a `text` that they were joined to, as Alpaca's do. */
const ASKING = ['instruction', 'conversations', 'problem', 'question', 'prompt', 'completion', 'input'];

/** Adds the answer's label from the column, if the row has it. */
export function withOutcome(record: StepRecord, row: Row, column: string): StepRecord {
  const value = row[column];
  if (value === undefined) return record;
  const outcome = labelValue(value, `column '${column}'`);
  if (outcome === null) throw new BadRow('bad_label', `column '${column}' is null; expected true or false`);
  return { ...record, outcome };
}

function preference(row: Row): StepRecord {
  if (row.prompt !== undefined && !isAskedInTurns(row)) {
    const prompt = promptOf(row.prompt);
    const record = answered({ prompt, reply: replyTo(prompt, row, 'chosen') });
    return { ...record, rejected: [wholeStep(replyTo(prompt, row, 'rejected'))] };
  }
  const asked = QUESTIONS.find((column) => {
    const text = row[column];
    return typeof text === 'string' && typeof row.chosen === 'string' && !row.chosen.includes(text.trim());
  });
  if (asked !== undefined)
    throw new BadRow(
      'no_prompt',
      `column '${asked}' stands beside 'chosen' and 'rejected', which do not hold it, and would not be read; --set data.columns.prompt=${asked} makes it the prompt`,
    );
  const { prompt, chosen, rejected } =
    typeof row.chosen === 'string' && typeof row.rejected === 'string'
      ? sharedText(row.chosen, row.rejected)
      : sharedTurns(messagesOf(row.chosen, "column 'chosen'"), messagesOf(row.rejected, "column 'rejected'"));
  return { ...answered({ prompt, reply: chosen }), rejected: [wholeStep(rejected)] };
}

/**
 * Whether a prompt in text is what the conversations in `chosen` and `rejected` end their questions with, as in UltraFeedback:
 * these then hold it, as TRL takes them.
 */
function isAskedInTurns({ prompt, chosen, rejected }: Row): boolean {
  const isAsked = (turns: unknown) => {
    const last = Array.isArray(turns) ? turns.at(-2) : undefined;
    return typeof prompt === 'string' && isRow(last) && `${last.content}`.trim() === prompt.trim();
  };
  return isAsked(chosen) && isAsked(rejected);
}

/** A mark of a chat template, such as `<|assistant|>` or `[/INST]`, at the end of a text. */
const MARK = /(?:<[^<>\s]{1,40}>|\[\/?[A-Z_]{2,30}\])$/;
const MARK_LENGTH = 44;

/**
 * The beginning that two texts share is their prompt, up to its last white space or mark; TRL cuts words and marks that begin alike in
 * two. A space belongs to the word behind it, as in most vocabularies; line breaks stay before it.
 */
function sharedText(chosen: string, rejected: string) {
  let end = 0;
  while (end < chosen.length && end < rejected.length && chosen[end] === rejected[end]) end++;
  const isInWord = () =>
    /\S/.test(chosen[end - 1] as string) && !MARK.test(chosen.slice(Math.max(0, end - MARK_LENGTH), end));
  while (end > 0 && isInWord()) end--;
  if (chosen[end - 1] === ' ') end--;
  const prompt = checkedText(chosen.slice(0, end), "the beginning that 'chosen' and 'rejected' share");
  return {
    prompt,
    chosen: checkedText(chosen.slice(end), "column 'chosen' after the prompt"),
    rejected: checkedText(rejected.slice(end), "column 'rejected' after the prompt"),
  };
}

function sharedTurns(chosen: readonly Message[], rejected: readonly Message[]) {
  const [good, poor] = [splitReply(chosen, "column 'chosen'"), splitReply(rejected, "column 'rejected'")];
  if (exactText(good.prompt) !== exactText(poor.prompt)) {
    throw new BadRow(
      'two_prompts',
      "columns 'chosen' and 'rejected' begin with different messages; expected one prompt and two replies",
    );
  }
  return { prompt: good.prompt, chosen: good.reply, rejected: poor.reply };
}

function promptOf(value: unknown): string | readonly Message[] {
  return typeof value === 'string'
    ? checkedText(value, "column 'prompt'")
    : messagesOf(value, "column 'prompt'");
}

/** The reply of a column as text, or as the one message of the assistant after messages. */
function replyTo(prompt: string | readonly Message[], row: Row, column: string): string | Message {
  const value = row[column];
  const where = `column '${column}'`;
  if (typeof value === 'string') return checkedText(value, where);
  const messages = messagesOf(value, where);
  if (typeof prompt === 'string')
    throw new BadRow(
      'mixed_forms',
      `column 'prompt' is a text and ${where} a list of messages; expected both as texts, or both as messages; without its prompt, 'chosen' and 'rejected' may hold whole conversations`,
    );
  const [reply] = messages;
  if (messages.length === 1 && reply?.role === 'assistant') return reply;
  throw new BadRow(
    'no_reply',
    `${where} holds ${messages.length} messages, the last of ${describeValue(messages.at(-1)?.role)}; expected one of "assistant"`,
  );
}

const isPair = ({ chosen, rejected }: Row): boolean => isAnswer(chosen) && isAnswer(rejected);
const isTurns = (value: unknown): value is readonly unknown[] => Array.isArray(value);
const isAnswer = (value: unknown): boolean => typeof value === 'string' || isTurns(value);
