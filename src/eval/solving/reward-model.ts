// A classification model with one score, or with a class for wrong and one for right solutions, as a reward model of outcomes.
import type { Model } from '../../api/model.js';
import { DataError } from '../../files/data-error.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { Solution, SolutionScorer } from './judging.js';

/**
 * Scores whole solutions: by the model's only output, or by the probability of the second of two classes. A solution follows
 * its problem as the chat template has it, or on a new line.
 */
export function rewardModel(
  model: Pick<Model, 'classify' | 'decoder'>,
  { name, tokenizer }: { readonly name: string; readonly tokenizer: Tokenizer },
): SolutionScorer {
  const { maxPositions } = model.decoder.config;
  return {
    name,
    async score(solutions) {
      const all = solutions.map((solution) => tokensOf(tokenizer, solution));
      const readable = all.flatMap((ids, i) =>
        ids && ids.length > 0 && ids.length <= maxPositions ? [{ ids, i }] : [],
      );
      const scores: number[][] = solutions.map(() => []);
      const classes = await model.classify(readable.map(({ ids }) => ids));
      classes.forEach(({ logits, logprobs }, at) => {
        const [own] = logits;
        if (logits.length !== 1 || own === undefined || own.length > 2)
          throw new DataError(
            'option',
            `${name}: expected one or two outputs for a whole solution, found ${own?.length ?? 0} for each of ${logits.length} tokens`,
          );
        const score = own.length === 1 ? (own[0] as number) : Math.exp(logprobs[0]?.[1] as number);
        scores[(readable[at] as { i: number }).i] = [score];
      });
      return scores;
    },
  };
}

/** Undefined for text that the tokenizer cannot express. */
function tokensOf(tokenizer: Tokenizer, { of, text }: Solution): number[] | undefined {
  try {
    if (!tokenizer.hasChatTemplate) return tokenizer.encode(`${of.problem}\n${text}`);
    const rendered = tokenizer.applyChatTemplate([
      { role: 'user', content: of.problem },
      { role: 'assistant', content: text },
    ]);
    return tokenizer.encode(rendered, { addSpecialTokens: false });
  } catch (error) {
    if (error instanceof DataError && error.kind === 'tokenizer') return undefined;
    throw error;
  }
}
