// One answer from several samples of a problem: by majority, by weighted votes, or the one with the best score.
import { answers, type EqualityOptions } from '../../answers/equal.js';

/** A sample's part in a vote. */
export interface Ballot {
  /** The class of its answer; −1 without an answer. */
  readonly answer: number;
  /** Whether the answer that represents this class is right. */
  readonly right: boolean;
}

/**
 * Ballots of the samples of one problem. Equal answers form one class, represented by its first.
 *
 * @param samples in order; `right` says whether `answer` is the expected one
 */
export function ballots(
  samples: readonly { readonly answer: string | null; readonly right: boolean }[],
  options: EqualityOptions = {},
): Ballot[] {
  const classes: { readonly answer: string; readonly right: boolean }[] = [];
  const known = new Map<string, number>();
  return samples.map(({ answer, right }) => {
    if (answer === null) return { answer: -1, right: false };
    // Both are replies: `m + n = 293` and 293 are one answer, whichever came first.
    const isSame = (first: string) =>
      answers(answer, first, options).equal || answers(first, answer, options).equal;
    let found = known.get(answer) ?? classes.findIndex((first) => isSame(first.answer));
    if (found < 0) found = classes.push({ answer, right }) - 1;
    known.set(answer, found);
    return { answer: found, right: (classes[found] as (typeof classes)[number]).right };
  });
}

/**
 * Probability that the answer with the most votes is right. Tied classes are equally likely to be taken, and samples
 * without an answer do not vote. 0 without votes.
 *
 * @param weights of the samples, not negative; default: each counts 1
 */
export function votedRight(
  cast: readonly Ballot[],
  subset: readonly number[],
  weights?: readonly number[],
): number {
  const votes = new Map<number, { votes: number; readonly right: boolean }>();
  for (const i of subset) {
    const { answer, right } = cast[i] as Ballot;
    if (answer < 0) continue;
    const of = votes.get(answer) ?? { votes: 0, right };
    of.votes += weights?.[i] ?? 1;
    votes.set(answer, of);
  }
  return rightAmongBest([...votes.values()].map((of) => ({ value: of.votes, right: of.right })));
}

/** Probability that the sample with the highest score is right; those without an answer are not taken. */
export function bestRight(
  samples: readonly {
    readonly answer: string | null;
    readonly right: boolean;
    readonly score?: number | null;
  }[],
  subset: readonly number[],
): number {
  const taken = subset.map((i) => samples[i]!).filter(({ answer }) => answer !== null);
  return rightAmongBest(
    taken.map(({ score, right }) => ({ value: score ?? Number.NEGATIVE_INFINITY, right })),
  );
}

function rightAmongBest(choices: readonly { readonly value: number; readonly right: boolean }[]): number {
  if (choices.length === 0) return 0;
  const best = choices.reduce((most, { value }) => Math.max(most, value), Number.NEGATIVE_INFINITY);
  const tied = choices.filter(({ value }) => value === best);
  return tied.filter(({ right }) => right).length / tied.length;
}
