/** The allowed answers of a sample as a trie of their tokens: the next tokens after each prefix. */
import { invalid } from '../../native/errors.js';

export interface ChoiceNode {
  /** Children by token, in ascending order; empty where an answer ends. */
  readonly next: ReadonlyMap<number, ChoiceNode>;
}

/**
 * A prefix tree of the answers. @throws StepTrainError for no answer, an empty one, or one that is the prefix of
 * another, whose end could not be recognized
 */
export function choiceTrie(choices: readonly (readonly number[])[]): ChoiceNode {
  const fail = (message: string): never => {
    throw invalid(`generate: choices: ${message}`);
  };
  if (choices.length === 0) fail('expected at least one answer, found none');
  const found = choices.findIndex((choice) => choice.length === 0);
  if (found >= 0) fail(`answer ${found} has no token`);
  const begins = (i: number, j: number) =>
    i !== j && choices[i]?.every((token, t) => choices[j]?.[t] === token);
  choices.forEach((_, i) => {
    const j = choices.findIndex((_, other) => begins(i, other));
    if (j >= 0)
      fail(
        choices[i]?.length === choices[j]?.length
          ? `answers ${Math.min(i, j)} and ${Math.max(i, j)} are the same`
          : `answer ${i} is the beginning of answer ${j}; end both with a token of their own, such as the end-of-text token`,
      );
  });
  return node(choices);
}

function node(rest: readonly (readonly number[])[]): ChoiceNode {
  const first = rest.flatMap((choice) => choice.slice(0, 1));
  const tokens = [...new Set(first)].sort((a, b) => a - b);
  return {
    next: new Map(
      tokens.map((token) => [
        token,
        node(rest.filter(([head]) => head === token).map((choice) => choice.slice(1))),
      ]),
    ),
  };
}
