// Config section `question`: the prompt for a model that is to answer.
import { section, text } from './fields.js';
import type { RunWords } from './schema.js';

export const question = section({
  template: text('auto').describe(
    'The text around a problem, with the placeholder {problem}. `auto`: a request in the tokenizer’s chat template if ' +
      'there is one, else `Question: {problem}` and `Answer:` on lines of their own. Rows that hold their prompt word for ' +
      'word (`data.source: trl` and `llama_factory`) keep it.',
  ),
}).describe('The question to the model.');

/** The words of a run that asks with `template`: those of `auto` are the usual ones. */
export function questionWords({ template }: { readonly template?: string }): RunWords {
  return template === undefined || template === 'auto' ? {} : { template, chat: false };
}
