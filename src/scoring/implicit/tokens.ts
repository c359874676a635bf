/** Tokens of records: the prompt, and each answer with the spans of its steps. */

import { templateOptions } from '../../data/turn-segments.js';
import { DataError } from '../../files/data-error.js';
import { promptTokens, withPrefix } from '../../generate/prompts.js';
import { solvingPrompt } from '../../generate/solving-prompt.js';
import type { Step, StepLabel, StepRecord } from '../../records/record.js';
import {
  type ChatReply,
  chatReply,
  checkClosed,
  checkRead,
  openedReasoning,
  withoutOpened,
} from '../../tokenizer/chat-reply.js';
import { type ReplyEnd, replyEnd } from '../../tokenizer/reply-end.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { AnswerTokens, StepTokens } from './items.js';
import { turnTokenizer } from './turn-tokens.js';

type Asking = Pick<StepRecord, 'prompt' | 'tools' | 'chat_template_kwargs' | 'provenance' | 'turns'>;

export interface AnswerTokenizer {
  /** @throws DataError for fields that the chat template does not read */
  prompt(record: Asking & Pick<StepRecord, 'problem'>): readonly number[];
  /** An answer to the prompt of `record`; of a conversation its turns, with what came back between them. @throws DataError for fields that the chat template does not read */
  answer(record: Asking, steps: readonly Step[], options: AnswerOptions): AnswerTokens;
}

interface AnswerOptions {
  readonly label: StepLabel;
  /** Steps that are not learned, at the beginning. Default 0. */
  readonly context?: number;
  /**
   * The token that ends an answer follows. Default true; a step in the middle of a solution has none. A turn always has the mark that
   * ends it.
   */
  readonly ends?: boolean;
}

/**
 * @param template the text around a problem with `{problem}`, or `auto`: see `SolvingPromptOptions`. A record that says its
 *   prompt word for word has no use for it
 */
export function answerTokenizer(tokenizer: Tokenizer, template: string): AnswerTokenizer {
  const turns = turnTokenizer(tokenizer);
  const question = solvingPrompt(tokenizer, template === 'auto' ? {} : { template, chat: false });
  // If the template ends with a line break, every step ends with one, the last one too.
  const isLined = !question.chat && question.template.endsWith('\n');
  const opening = question.chat || /\s$/.test(question.template) ? '' : ' ';
  const encode = (text: string) => tokenizer.encode(text, { continuation: true });
  const isAsked = ({ prompt }: Asking) =>
    prompt === undefined || (typeof prompt !== 'string' && prompt.length === 1 && !tokenizer.hasChatTemplate);
  // A text of its own, from its first token on, as a prompt would be read.
  const isBare = ({ prompt }: Asking) => prompt === '';
  const { prefixIds } = tokenizer;
  /** Without the tokens that the prompt has: a text that a chat template wrote may begin with them. */
  const encodeFirst = (text: string) =>
    withPrefix(tokenizer, tokenizer.encode(text, { addSpecialTokens: false })).slice(prefixIds.length);
  let asking: string | undefined;
  /** The text before a reply ends alike whatever the problem. */
  const openingOf = () => {
    asking ??= question.chat ? tokenizer.decode(question.tokens('?')) : '';
    return asking;
  };
  let chatEnd: ReplyEnd | undefined;
  /** The token that ends a reply; in a chat, the one that its template writes. */
  const endOf = (record: Asking): number | undefined => {
    const isChat = isAsked(record) ? question.chat : Array.isArray(record.prompt);
    if (!isChat) return tokenizer.eosId;
    chatEnd ??= replyEnd(tokenizer);
    return chatEnd.id;
  };
  /** The reply as the chat's template writes it; unchanged without a chat. */
  const replyOf = (record: Asking, steps: readonly Step[]): ChatReply => {
    const content = steps.map(({ text }) => text).join('\n');
    const reply = { role: 'assistant', content, ...steps[0]?.message };
    const options = templateOptions(record);
    const { prompt } = record;
    checkRead(tokenizer, [reply], options);
    if (isAsked(record)) {
      const asked = openingOf();
      const answer = withoutOpened(content, asked);
      checkClosed(asked, answer);
      return { opening: asked, head: '', content: answer, tail: '' };
    }
    if (prompt === undefined || typeof prompt === 'string')
      return { opening: prompt ?? '', head: '', content, tail: '' };
    return chatReply(tokenizer, prompt, reply, options);
  };
  return {
    prompt(record) {
      const { prompt = [] } = record;
      if (record.turns) return at(record, () => turns.prompt(record));
      const options = templateOptions(record);
      return at(record, () => {
        checkRead(tokenizer, typeof prompt === 'string' ? [] : prompt, options);
        // A chat of one question, for a model that knows no chat, is asked as any other problem.
        if (isAsked(record)) return question.tokens(record.problem);
        if (isBare(record)) return prefixIds;
        return promptTokens(tokenizer, prompt, options);
      });
    },
    answer(record, steps, { label, context = 0, ends = true }) {
      if (record.turns) return at(record, () => turns.answer(record, steps, { label, context }));
      const asked = isAsked(record);
      const bare = isBare(record);
      const ids: number[] = [];
      const spans: StepTokens[] = [];
      // Nothing predicts the first token of a text that no other begins.
      const unlearned = bare && prefixIds.length === 0 ? 1 : 0;
      let from = unlearned;
      const reply = at(record, () => replyOf(record, steps));
      for (const [i, { text, label, score }] of withContent(steps, reply.content).entries()) {
        const begin = ids.length;
        const last = i === steps.length - 1 && ends;
        // A sampled answer brings the white space that it was sampled with.
        const space = i === 0 && asked && !/^\s/.test(text) ? opening : '';
        const head = i === 0 ? reply.head : '';
        const own = `${space}${head}${text}${last && !(asked && isLined) ? '' : '\n'}`;
        ids.push(...(bare && i === 0 ? encodeFirst(own) : encode(own)));
        if (last) {
          const tail = reply.tail === '' ? [] : encode(reply.tail);
          ids.push(...tail);
          const end = endOf(record);
          // A text may bring the token that ends it, as one that a chat template wrote.
          const ended = end === undefined || tail.includes(end) || (bare && ids.at(-1) === end);
          if (!ended) ids.push(end);
        }
        if (i < context) from = Math.max(unlearned, ids.length);
        else spans.push({ begin: Math.max(begin, unlearned), end: ids.length, label, score });
      }
      // The beginning of a solution closes nothing yet.
      const { mark = '', end } = openedReasoning(reply.opening) ?? {};
      const written = `${reply.head}${reply.content}${reply.tail}`;
      return {
        ids,
        from,
        steps: spans,
        label,
        ...(ends && end !== undefined && !written.includes(end) ? { unclosed: end } : {}),
        ...(mark !== '' && written.trimStart().startsWith(mark.trim()) ? { reopens: mark.trim() } : {}),
      };
    },
  };
}

/** Calls `tokens`; an error of the template gets the position of the record. */
function at<T>({ provenance }: Asking, tokens: () => T): T {
  try {
    return tokens();
  } catch (error) {
    if (!(error instanceof DataError) || error.position || !provenance) throw error;
    const { kind, what, hint } = error;
    throw new DataError(kind, what, { ...provenance, ...(hint === '' ? {} : { hint }), cause: error });
  }
}

/** The steps without the text that their joined content has lost at its beginning and its end. */
function withContent(steps: readonly Step[], content: string): readonly Step[] {
  const whole = steps.map(({ text }) => text).join('\n');
  if (content === whole) return steps;
  const at = whole.lastIndexOf(content);
  if (at < 0) return respaced(steps, content);
  let begin = 0;
  return steps.map((step) => {
    const cut = step.text.slice(
      Math.max(0, at - begin),
      Math.max(0, Math.min(step.text.length, at + content.length - begin)),
    );
    begin += step.text.length + 1;
    return { ...step, text: cut };
  });
}

/** The steps in a content that ends as they do, up to its white space. */
function respaced(steps: readonly Step[], content: string): readonly Step[] {
  const ends = [...content.matchAll(/\S/g)].map(({ index }) => index + 1);
  const letters = (text: string) => text.replace(/\s/g, '').length;
  let missing = steps.reduce((sum, { text }) => sum + letters(text), 0) - ends.length;
  let [taken, from] = [0, 0];
  return steps.map((step) => {
    const own = letters(step.text);
    const left = Math.min(missing, own);
    missing -= left;
    taken += own - left;
    const to = ends[taken - 1] ?? from;
    const text = content.slice(from, to).trimStart();
    from = to;
    return { ...step, text };
  });
}
