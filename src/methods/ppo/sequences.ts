/** A prompt and its solutions as sequences: the prompt is a trunk, and each solution branches off it. */
import { type BranchedAnswer, type BranchedSequence, branchedSequence } from '../../sequences/sequence.js';

export interface AnsweredPrompt extends BranchedSequence {
  readonly rowId: number;
  /** The answers of these solutions, in order. */
  readonly solutions: readonly BranchedAnswer[];
}

export interface AnsweredPromptOptions {
  /** Max tokens of a sequence; a prompt with one solution may exceed it. */
  readonly budget: number;
  /** false: a sequence for each solution. */
  readonly branches: boolean;
}

/**
 * The solutions of a prompt, in order, in as few sequences as the budget allows. The same solutions always give the same
 * sequences, so that they have the same log-probs when they are scored and when they are learned.
 */
export function answeredPrompts(
  prompt: readonly number[],
  rowId: number,
  solutions: readonly (readonly number[])[],
  { budget, branches }: AnsweredPromptOptions,
): AnsweredPrompt[] {
  const parts = inParts(prompt.length, solutions, (tokens) => tokens.length, { budget, branches });
  return parts.map((answers) => {
    // Whole: the state after the last token has a value too.
    const sequence = branchedSequence(prompt, [{ at: prompt.length, answers }], [], { whole: true });
    const own = { ...sequence, rowId, solutions: sequence.answers[0] as readonly BranchedAnswer[] };
    // A solution alone is a plain sequence, which models with a sliding window read too.
    return branches ? own : { ...own, branch: undefined };
  });
}

/** The solutions of a prompt, in order, in as few parts as the budget allows, or one by one. */
export function inParts<T>(
  prompt: number,
  solutions: readonly T[],
  lengthOf: (solution: T) => number,
  { budget, branches }: AnsweredPromptOptions,
): T[][] {
  const parts: T[][] = [];
  let size = 0;
  for (const solution of solutions) {
    const length = lengthOf(solution);
    if (parts.length === 0 || !branches || size + length > budget) {
      parts.push([]);
      size = prompt;
    }
    parts.at(-1)?.push(solution);
    size += length;
  }
  return parts;
}
