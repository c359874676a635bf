/** Rewards on tokens: all of it at the end, or at the end of each step. */
import { type Segmentation, stepsBy } from '../records/segment.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';

/** Bounds that keep the sum of step rewards from growing with the number of steps (arXiv 2410.15115). */
export type StepBound = 'none' | 'clip' | 'delta';

/**
 * Bounded rewards of steps. `clip`: min(r − margin, 0), so that no step earns anything and a bad one costs. `delta`: a step's
 * reward less that of the next one, the last one's as it is; their sum is the first one's.
 */
export function boundedSteps(steps: readonly number[], bound: StepBound, margin: number): number[] {
  switch (bound) {
    case 'none':
      return [...steps];
    case 'clip':
      return steps.map((reward) => Math.min(reward - margin, 0));
    case 'delta':
      return steps.map((reward, h) => reward - (h + 1 < steps.length ? (steps[h + 1] as number) : 0));
  }
}

/**
 * The token with which each step of a sampled text ends: the first one after which the text has all of the step.
 *
 * @param tokens as they were drawn; a step that they do not reach ends with the last one
 * @param rule by which the text has steps. Default: its paragraphs, or its lines
 */
export function stepEnds(
  text: string,
  tokens: readonly number[],
  tokenizer: Pick<Tokenizer, 'tokenBytes' | 'isSpecial'>,
  rule?: Segmentation,
): number[] {
  const ends: number[] = [];
  // Bytes that are no UTF-8 become characters of other lengths, so that characters are counted.
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  let reached = 0;
  let token = 0;
  let at = 0;
  for (const step of stepsBy(text, rule)) {
    at = text.indexOf(step, at) + step.length;
    while (token < tokens.length && reached < at) {
      const id = tokens[token] as number;
      if (!tokenizer.isSpecial(id))
        reached += decoder.decode(tokenizer.tokenBytes(id), { stream: true }).length;
      token++;
    }
    ends.push(Math.max(0, token - 1));
  }
  return ends;
}
