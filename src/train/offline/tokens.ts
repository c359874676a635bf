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
  // A text of its own, from its first token on, as a prompt would be read.
  const isBare = ({ prompt }: Pick<StepRecord, 'prompt'>) => prompt === '';
  const encodeFirst = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });
  return {
    prompt(record) {
      // A chat of one question, for a model that knows no chat, is asked as any other problem.
      if (isAsked(record)) return question.tokens(record.problem);
      if (isBare(record)) return tokenizer.prefixIds;
      return promptTokens(tokenizer, record.prompt as NonNullable<StepRecord['prompt']>);
    },
    answer(record, steps, { label, context = 0, ends = true }) {
      const asked = isAsked(record);
      const bare = isBare(record);
      const ids: number[] = [];
      const spans: StepTokens[] = [];
      // Nothing predicts the first token of a text that no other begins.
      const unlearned = bare && tokenizer.prefixIds.length === 0 ? 1 : 0;
      let from = unlearned;
      for (const [i, { text, label, score }] of steps.entries()) {
        const begin = ids.length;
        const last = i === steps.length - 1 && ends;
        // A sampled answer brings the white space that it was sampled with.
        const head = i === 0 && asked && !/^\s/.test(text) ? opening : '';
        const own = `${head}${text}${last && !(asked && isLined) ? '' : '\n'}`;
        ids.push(...(bare && i === 0 ? encodeFirst(own) : encode(own)));
        const { eosId } = tokenizer;
        // A text may bring the token that ends it, as one that a chat template wrote.
        if (last && eosId !== undefined && !(bare && ids.at(-1) === eosId)) ids.push(eosId);
        if (i < context) from = Math.max(unlearned, ids.length);
        else spans.push({ begin: Math.max(begin, unlearned), end: ids.length, label, score });
      }
      return { ids, from, steps: spans, label };
    },
  };
}
