/** A verdict model as a scorer: the probability of the word for a right step, after each step. */
import { type VerdictPromptOptions, verdictTokenizer } from '../data/verdict.js';
import type { Decoder, Role } from '../models/decoder.js';
import type { LikelihoodWeights } from '../scoring/settings.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { judgedSolutions } from './judged-solutions.js';
import type { StepScorer } from './step-scorer.js';

export interface VerdictScorerOptions {
  readonly tokenizer: Tokenizer;
  /** As the model was trained with. */
  readonly prompt?: VerdictPromptOptions;
  readonly role?: Pick<Role, 'adapter'>;
  /** Most tokens of a verdict's sequence. Default: as many as the model reads. */
  readonly maxLength?: number;
  /** Gives no score to a solution that the tokenizer cannot express, instead of throwing. */
  readonly skipUnreadable?: boolean;
  /** Scores by how likely the base finds the steps too, with the weights of the model's card. Default: by the words alone. */
  readonly likelihood?: LikelihoodWeights | undefined;
}

/** @throws DataError for a prompt that the tokenizer cannot express */
export function verdictScorer(
  decoder: Decoder,
  {
    tokenizer,
    prompt = {},
    role = {},
    maxLength = decoder.config.maxPositions,
    skipUnreadable = false,
    likelihood,
  }: VerdictScorerOptions,
): StepScorer {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  return {
    scale: 'probability',
    async score(solutions, { signal } = {}) {
      const judged = await judgedSolutions(decoder, role, verdicts, solutions, {
        maxLength,
        threshold: 0.5,
        skipUnreadable,
        likelihood,
        signal,
      });
      if (signal?.aborted) return undefined;
      return judged.map(({ verdicts: of, tokens }) => ({
        tokens,
        scores: of.map((verdict) => verdict?.probability ?? null),
      }));
    },
  };
}
