/** Tokens of conversations whose turns are steps: the prompt up to the first turn, and the turns with what came back between them. */
import { conversationSegments, templateOptions } from '../../data/turn-segments.js';
import { badTemplate } from '../../files/data-error.js';
import type { Step, StepLabel, StepRecord } from '../../records/record.js';
import { messagesOfTurns } from '../../records/turns.js';
import { chatTurns } from '../../tokenizer/chat-turns.js';
import { segmentTokenizer } from '../../tokenizer/segments.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { AnswerTokens, StepTokens, TokenSpan } from './items.js';

type Asking = Pick<StepRecord, 'prompt' | 'tools' | 'chat_template_kwargs' | 'provenance'>;

export interface TurnTokenizer {
  prompt(record: Asking): readonly number[];
  /** The turns as an answer, each with the mark that ends it; what came back for the last one is not read. */
  answer(
    record: Asking,
    steps: readonly Step[],
    options: { readonly label: StepLabel; readonly context: number },
  ): AnswerTokens;
}

/** Functions that throw DataError for a chat template that does not read the conversation, or in which turns cannot be told. */
export function turnTokenizer(tokenizer: Tokenizer): TurnTokenizer {
  const tokenize = segmentTokenizer(tokenizer);
  const openingOf = (record: Asking) => {
    const messages = [...messagesOfTurns({ ...record, steps: [] }), { role: 'assistant', content: 'A' }];
    return chatTurns(tokenizer, messages, templateOptions(record)).opening;
  };
  const encoded = (text: string) =>
    tokenize([{ text, role: 'prompt', train: false }], { specialTokens: 'none' }).ids;
  return {
    prompt: (record) => Array.from(encoded(openingOf(record))),
    answer(record, steps, { label, context }) {
      const segments = conversationSegments(tokenizer, { ...record, steps }, { learn: true }).slice(0, -1);
      // Answers to one prompt go on from the same tokens.
      if (segments[0]?.text !== openingOf(record))
        throw badTemplate(
          'the chat template opens the first turn otherwise when others follow it, so that its prompt cannot be told; take a model ' +
            'whose template only adds text for further messages',
        );
      const { ids, spans } = tokenize(segments, { specialTokens: 'none' });
      const start = spans[0]?.end ?? 0;
      const placed = ({ start: begin, end }: (typeof spans)[number]): TokenSpan => ({
        begin: begin - start,
        end: end - start,
      });
      const turns = spans.filter(({ role }) => role === 'step');
      return {
        ids: Array.from(ids.subarray(start)),
        from: (turns[context]?.start ?? ids.length) - start,
        between: spans
          .slice(1)
          .filter(({ role }) => role === 'prompt')
          .map(placed),
        steps: turns.slice(context).map((span, i): StepTokens => {
          const { label, score } = steps[context + i] as Step;
          return { ...placed(span), label, score };
        }),
        label,
      };
    },
  };
}
