// A classification model with one score, or with a class for wrong and one for right solutions, as a scorer of outcomes.

import type { Model } from '../api/model.js';
import { badOption } from '../files/data-error.js';
import { exp } from '../native/elementary.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { readable } from './readable.js';
import { outcomeScores, type Scorer, type Solution, scorer, textOf } from './scorer.js';

/**
 * Scores whole solutions by the model's only output, or by the probability of the second of two classes. A solution
 * follows its problem as the chat template has it, or on a new line. Text that the tokenizer cannot express has no
 * score.
 */
export function classifierScorer(
  model: Pick<Model, 'classify' | 'decoder'>,
  { name, tokenizer }: { readonly name: string; readonly tokenizer: Tokenizer },
): Scorer {
  const { maxPositions, head } = model.decoder.config;
  const isOfTwo = head !== undefined && 'numLabels' in head && head.numLabels === 2;
  return scorer({
    name,
    unit: 'outcome',
    scale: isOfTwo ? 'probability' : 'reward',
    async score(solutions, { signal } = {}) {
      const all = solutions.map((solution) => readable(() => tokensOf(tokenizer, solution), true));
      const places = all.flatMap((ids, i) =>
        ids && ids.length > 0 && ids.length <= maxPositions ? [{ ids, i }] : [],
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

function tokensOf(tokenizer: Tokenizer, solution: Solution): number[] {
  const text = textOf(solution);
  if (!tokenizer.hasChatTemplate) return tokenizer.encode(`${solution.problem}\n${text}`);
  const rendered = tokenizer.applyChatTemplate([
    { role: 'user', content: solution.problem },
    { role: 'assistant', content: text },
  ]);
  return tokenizer.encode(rendered, { addSpecialTokens: false });
}
