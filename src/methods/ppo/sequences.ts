/** A prompt and its solutions as sequences: the prompt is a trunk, and each solution branches off it. */

import { type BranchedAnswer, type BranchedSequence, branchedSequence } from '../../sequences/sequence.js';
import type { SolutionTurns } from '../../train/solutions/solution-source.js';

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
  answers: readonly WrittenAnswer[],
  { budget, branches }: AnsweredPromptOptions,
): AnsweredPrompt[] {
  const written = answers.map((answer) => withBetween(prompt, answer));
  // An environment may open episodes of one problem otherwise, and then they share no prompt.
  const shared = written.every(({ opening }) => isSame(opening, prompt)) ? prompt : commonPrompt(written);
  const options = { budget, branches: branches && shared !== undefined };
  const parts = inParts((shared ?? prompt).length, written, ({ ids }) => ids.length, options);
  return parts.map((part) => {
    const trunk = shared ?? (part[0] as Written).opening;
    const place = { at: trunk.length, answers: part.map(({ ids }) => ids) };
    // Whole: the state after the last token has a value too.
    const sequence = branchedSequence(trunk, [place], [], { whole: true });
    const branched = sequence.answers[0] as readonly BranchedAnswer[];
    const solutions = branched.map((answer, i) => ownRows(answer, part[i] as Written));
    const own = { ...sequence, rowId, solutions };
    // A solution alone is a plain sequence, which models with a sliding window read too.
    return options.branches ? own : { ...own, branch: undefined };
  });
}

/** A solution as it was drawn. */
export interface WrittenAnswer {
  readonly tokens: readonly number[];
  /** The prompt of an episode, and what stands between its turns. */
  readonly turns?: Pick<SolutionTurns, 'promptIds' | 'ends' | 'between'>;
}

interface Written {
  readonly opening: readonly number[];
  readonly ids: readonly number[];
  /** Places of the drawn tokens in `ids`; absent: all of them. */
  readonly own?: readonly number[];
}

/** The tokens of a solution with those between its turns, which are read and never learned. */
function withBetween(prompt: readonly number[], { tokens, turns }: WrittenAnswer): Written {
  if (!turns) return { opening: prompt, ids: tokens };
  const ids: number[] = [];
  const own: number[] = [];
  let at = 0;
  turns.ends.forEach((end, t) => {
    for (; at <= end; at++) {
      own.push(ids.length);
      ids.push(tokens[at] as number);
    }
    ids.push(...(turns.between[t] ?? []));
  });
  return { opening: turns.promptIds, ids, own };
}

function ownRows(answer: BranchedAnswer, { own }: Written): BranchedAnswer {
  if (!own) return answer;
  return { ...answer, rows: own.map((at) => answer.rows[at] as BranchedAnswer['rows'][number]) };
}

function commonPrompt(written: readonly Written[]): readonly number[] | undefined {
  const [first] = written;
  return first && written.every(({ opening }) => isSame(opening, first.opening)) ? first.opening : undefined;
}

const isSame = (one: readonly number[], other: readonly number[]) =>
  one === other || (one.length === other.length && one.every((id, i) => other[i] === id));

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
