import type { Message, StepRecord } from '../../records/record.js';
import { checkedText, misfit, optionalText, type Row, textColumn } from '../columns.js';
import {
  answered,
  learnedReplies,
  messageOf,
  messagesOf,
  splitReply,
  templateInputs,
  wholeStep,
} from './chat.js';
import type { ReadingOptions, Source } from './source.js';
import { withOutcome } from './trl.js';

/**
 * The data sets of LLaMA-Factory: Alpaca's `instruction, input, output` and ShareGPT's `conversations`, each with `kto_tag`, or
 * with `chosen` and `rejected`, or with neither; `system` and `history` are turns before the question.
 */
export const llamaFactory: Source<ReadingOptions> = {
  name: 'llama_factory',
  columns: 'instruction, output or chosen, rejected; conversations[, kto_tag or chosen, rejected]',
  matches: (row) =>
    Array.isArray(row.conversations) ||
    (typeof row.instruction === 'string' && ('output' in row || ('chosen' in row && 'rejected' in row))),
  convert(row, { turns }, log) {
    const whole = 'conversations' in row ? fromConversations(row) : fromInstruction(row);
    const labelled = row.kto_tag !== undefined && row.kto_tag !== '';
    const record = { ...whole, ...templateInputs(row, whole) };
    if (record.rejected) return [record];
    const prompt = record.prompt as readonly Message[];
    const messages = [...prompt, { role: 'assistant', content: '' }];
    const own = 'conversations' in row ? (row.conversations as readonly unknown[]) : [];
    // A system message of its own column stands before them.
    const given = own.length === 0 ? own : [...Array(messages.length - own.length).fill(undefined), ...own];
    return learnedReplies(messages, { turns, labelled, given }, log).map((at) =>
      at === prompt.length
        ? labelled
          ? withOutcome(record, row, 'kto_tag')
          : record
        : { ...record, prompt: prompt.slice(0, at), steps: [wholeStep(prompt[at] as Message)] },
    );
  },
};

function fromConversations(row: Row): StepRecord {
  const turns = withSystem(row, messagesOf(row.conversations, "column 'conversations'"));
  if (!('chosen' in row)) return answered(splitReply(turns, "column 'conversations'"));
  const [chosen, rejected] = (['chosen', 'rejected'] as const).map((key) =>
    messageOf(row[key], `column '${key}'`),
  ) as [Message, Message];
  return { ...answered({ prompt: turns, reply: chosen }), rejected: [wholeStep(rejected)] };
}

function fromInstruction(row: Row): StepRecord {
  const input = optionalText(row, 'input');
  const question = `${textColumn(row, 'instruction')}${input === undefined ? '' : `\n${input}`}`;
  const prompt = withSystem(row, [...historyOf(row.history), { role: 'user', content: question }]);
  if (!('chosen' in row)) return answered({ prompt, reply: textColumn(row, 'output') });
  const record = answered({ prompt, reply: textColumn(row, 'chosen') });
  return { ...record, rejected: [wholeStep(textColumn(row, 'rejected'))] };
}

function withSystem(row: Row, turns: readonly Message[]): readonly Message[] {
  const system = optionalText(row, 'system');
  return system === undefined ? turns : [{ role: 'system', content: system }, ...turns];
}

function historyOf(value: unknown): Message[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) {
    throw misfit("column 'history' holds", value, 'a list of pairs');
  }
  return value.flatMap((pair: unknown, i) => {
    const [asked, replied] = Array.isArray(pair) ? (pair as unknown[]) : [];
    return [
      { role: 'user', content: checkedText(asked, `the question of turn ${i + 1} of 'history'`) },
      { role: 'assistant', content: checkedText(replied, `the reply of turn ${i + 1} of 'history'`) },
    ];
  });
}
