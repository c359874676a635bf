/** Weights of tokens by a judge's verdicts on the steps in which they stand. */
import type { Segmentation } from '../../records/segment.js';
import { stepEnds } from '../../rewards/placement.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';

export interface StepWeights {
  readonly right_weight: number;
  readonly wrong_weight: number;
  readonly after_error_weight: number;
}

/**
 * The weight expected of each step: with p(right) = p and the probability s that no step before it is wrong,
 * s·(p·right + (1 − p)·wrong) + (1 − s)·after an error. A verdict of 0 or 1 gives one of the three weights; a step without a score is
 * taken as right.
 */
export function stepWeights(scores: readonly (number | null)[], weights: StepWeights): number[] {
  const { right_weight: right, wrong_weight: wrong, after_error_weight: after } = weights;
  let sound = 1;
  return scores.map((score) => {
    const p = score ?? 1;
    const weight = sound * (p * right + (1 - p) * wrong) + (1 - sound) * after;
    sound *= p;
    return weight;
  });
}

/** The weight of each token: that of its step, and behind the last step that of the last. Of a text without steps 1. */
export function tokenWeights(
  bySteps: readonly number[],
  { text, tokens }: { readonly text: string; readonly tokens: readonly number[] },
  tokenizer: Pick<Tokenizer, 'tokenBytes' | 'isSpecial'>,
  rule?: Segmentation,
): number[] {
  const ends = stepEnds(text, tokens, tokenizer, rule);
  let step = 0;
  return tokens.map((_, t) => {
    while (step < ends.length - 1 && t > (ends[step] as number)) step++;
    return bySteps[step] ?? 1;
  });
}
