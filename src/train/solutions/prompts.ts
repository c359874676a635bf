/** Problems as the tokens that a model is given to solve them. */

import { badOption } from '../../files/data-error.js';
import { type SolvingPrompt, solvingPrompt } from '../../generate/solving-prompt.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';

/** The prompt for a solution. */
export interface SolutionPrompt {
  /** Keys the random numbers; the same for the same problem in every round. */
  readonly id: number;
  readonly ids: readonly number[];
  /** The task with which an environment opens an episode. */
  readonly task?: { readonly problem: string; readonly answer?: string };
}

export interface SolutionPromptOptions {
  readonly tokenizer: Tokenizer;
  /** A text with {problem}, or `auto`: a request in the chat template, else `Question:` and `Answer:`. */
  readonly template: string;
  /** Max tokens of a prompt with its solution. */
  readonly maxLength: number;
  readonly maxNewTokens: number;
}

export interface SolutionPrompts {
  /** Prompts by problem; undefined where prompt and solution would not fit. */
  readonly prompts: readonly (SolutionPrompt | undefined)[];
  /** Texts that end a solution of a prompt of this form. */
  readonly stop: readonly string[];
  /** The prompts open reasoning (`<think>`), which a solution has to end before its answer. */
  readonly inReasoning: boolean;
}

/** @throws DataError for a template without {problem}, or where no problem fits */
export function solutionPrompts(
  problems: readonly { readonly problem: string }[],
  { tokenizer, template, ...room }: SolutionPromptOptions,
): SolutionPrompts {
  const prompt = configuredPrompt(tokenizer, template);
  return {
    prompts: fittingPrompts(problems, prompt, room),
    stop: prompt.stop,
    inReasoning: prompt.inReasoning,
  };
}

/** The text around each problem, by `template` of the options above. */
export const configuredPrompt = (tokenizer: Tokenizer, template: string): SolvingPrompt =>
  solvingPrompt(tokenizer, template === 'auto' ? {} : { template, chat: false });

/** @throws DataError where no problem fits */
export function fittingPrompts(
  problems: readonly { readonly problem: string }[],
  prompt: SolvingPrompt,
  { maxLength, maxNewTokens }: Pick<SolutionPromptOptions, 'maxLength' | 'maxNewTokens'>,
): SolutionPrompts['prompts'] {
  const prompts = problems.map((task, id): SolutionPrompt | undefined => {
    const ids = prompt.tokens(task.problem);
    return ids.length + maxNewTokens <= maxLength ? { id, ids, task } : undefined;
  });
  if (problems.length > 0 && prompts.every((fits) => fits === undefined))
    throw badOption(
      `no problem leaves room for ${maxNewTokens} tokens of a solution within data.max_length ${maxLength}: raise ` +
        'data.max_length, or lower max_new_tokens',
    );
  return prompts;
}
