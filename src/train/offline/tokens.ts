/** From records to items in tokens: the prompt, and each answer with the spans of its steps. */
import { solvingPrompt } from '../../eval/solving/prompt.js';
import { promptTokens } from '../../generate/prompts.js';
import type { Step, StepLabel, StepRecord } from '../../records/record.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { AnswerTokens, StepTokens } from './items.js';

export interface AnswerTokenizer {
  prompt(record: Pick<StepRecord, 'problem' | 'prompt'>): readonly number[];
  /** An answer to the prompt of `record`. */
  answer(record: Pick<StepRecord, 'prompt'>, steps: readonly Step[], options: AnswerOptions): AnswerTokens;
}

export interface AnswerOptions {
  readonly label: StepLabel;
  /** Steps that are not learned, at the beginning. Default 0. */
  readonly context?: number;
  /** The token that ends an answer follows. Default true; a step in the middle of a solution has none. */
  readonly ends?: boolean;
}

/**
 * @param template the text around a problem with `{problem}`, or `auto`: see `SolvingPromptOptions`. A record that says its
 *   prompt word for word has no use for it
 */
export function answerTokenizer(tokenizer: Tokenizer, template: string): AnswerTokenizer {
  const question = solvingPrompt(tokenizer, template === 'auto' ? {} : { template, chat: false });
  // Where problems stand on lines of their own, steps do too, the last like the others.
  const isLined = !question.chat && question.template.endsWith('\n');
  const opening = question.chat || /\s$/.test(question.template) ? '' : ' ';
  const encode = (text: string) => tokenizer.encode(text, { continuation: true });
  const isAsked = ({ prompt }: Pick<StepRecord, 'prompt'>) =>
    prompt === undefined || (typeof prompt !== 'string' && prompt.length === 1 && !tokenizer.hasChatTemplate);
  return {
    prompt(record) {
      // A chat of one question, for a model that knows no chat, is asked as any other problem.
      if (isAsked(record)) return question.tokens(record.problem);
      return promptTokens(tokenizer, record.prompt as NonNullable<StepRecord['prompt']>);
    },
    answer(record, steps, { label, context = 0, ends = true }) {
      const asked = isAsked(record);
      const ids: number[] = [];
      const spans: StepTokens[] = [];
      let from = 0;
      for (const [i, { text, label, score }] of steps.entries()) {
        const begin = ids.length;
        const last = i === steps.length - 1 && ends;
        // A sampled answer brings the white space that it was sampled with.
        const head = i === 0 && asked && !/^\s/.test(text) ? opening : '';
        ids.push(...encode(`${head}${text}${last && !(asked && isLined) ? '' : '\n'}`));
        if (last && tokenizer.eosId !== undefined) ids.push(tokenizer.eosId);
        if (i < context) from = ids.length;
        else spans.push({ begin, end: ids.length, label, score });
      }
      return { ids, from, steps: spans, label };
    },
  };
}
