// A classification model with one score, or with a class for wrong and one for right solutions, as a scorer of outcomes.

import type { Model } from '../api/model.js';
import { badOption } from '../files/data-error.js';
import { exp } from '../native/elementary.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { readable } from './readable.js';
import { outcomeScores, type Scorer, type Solution, scorer, textOf } from './scorer.js';

export interface ClassifierScorerOptions {
  readonly name: string;
  readonly tokenizer: Tokenizer;
  /** The text of a solution, with {problem} and {solution}. Default: the chat template, or without one the problem and the solution on lines of their own. */
  readonly template?: string | undefined;
  /** Whether the end-of-text token follows it. Default false. */
  readonly addEosToken?: boolean | undefined;
  /** Max tokens of a text; a longer one has no score. Default: as many as the model reads. */
  readonly maxLength?: number | undefined;
}

/** A solution on a new line. */
export const ON_LINES = '{problem}\n{solution}';

/**
 * Scores whole solutions by the model's only output, or by the probability of the second of two classes. Text that the
 * tokenizer cannot express has no score.
 *
 * @throws DataError where `addEosToken` finds no end-of-text token
 */
export function classifierScorer(
  model: Pick<Model, 'classify' | 'decoder'>,
  options: ClassifierScorerOptions,
): Scorer {
  const { name, tokenizer } = options;
  if (options.addEosToken && tokenizer.eosId === undefined)
    throw badOption(`${name}: its card says add_eos_token, and its tokenizer has no end-of-text token`);
  const { maxPositions, head } = model.decoder.config;
  const longest = Math.min(maxPositions, options.maxLength ?? maxPositions);
  const isOfTwo = head !== undefined && 'numLabels' in head && head.numLabels === 2;
  return scorer({
    name,
    unit: 'outcome',
    scale: isOfTwo ? 'probability' : 'reward',
    async score(solutions, { signal } = {}) {
      const all = solutions.map((solution) => readable(() => tokensOf(solution, options), true));
      const places = all.flatMap((ids, i) =>
        ids && ids.length > 0 && ids.length <= longest ? [{ ids, i }] : [],
      );
      const outcomes = new Map<number, number>();
      if (signal?.aborted) return undefined;
      const classes = await model.classify(
        places.map(({ ids }) => ids),
        { signal },
      );
      classes.forEach(({ logits, logprobs }, at) => {
        const [own] = logits;
        if (logits.length !== 1 || own === undefined || own.length > 2)
          throw badOption(
            `${name}: expected one or two outputs for a whole solution, found ${own?.length ?? 0} for each of ${logits.length} tokens`,
          );
        const score = own.length === 1 ? (own[0] as number) : exp(logprobs[0]?.[1] as number);
        outcomes.set((places[at] as { i: number }).i, score);
      });
      return solutions.map((solution, i) => ({
        ...outcomeScores(solution, outcomes.get(i) ?? null),
        tokens: outcomes.has(i) ? (all[i]?.length ?? 0) : 0,
      }));
    },
  });
}

function tokensOf(solution: Solution, options: ClassifierScorerOptions): number[] {
  const { tokenizer, addEosToken = false } = options;
  const ids = textTokens(solution, options);
  return addEosToken && ids.at(-1) !== tokenizer.eosId ? [...ids, tokenizer.eosId as number] : ids;
}

function textTokens(solution: Solution, { tokenizer, template }: ClassifierScorerOptions): number[] {
  const text = textOf(solution);
  if (template === undefined && tokenizer.hasChatTemplate) {
    const rendered = tokenizer.applyChatTemplate([
      { role: 'user', content: solution.problem },
      { role: 'assistant', content: text },
    ]);
    return tokenizer.encode(rendered, { addSpecialTokens: false });
  }
  const values: Readonly<Record<string, string>> = { problem: solution.problem, solution: text };
  return tokenizer.encode(
    (template ?? ON_LINES).replace(/\{(problem|solution)\}/g, (_, key: string) => values[key] as string),
  );
}
