/** Input of a training loop: token sequences, and the rows at which a token is learned. */

import type { Dataset } from '../data/dataset.js';
import type { SolutionVerdicts, VerdictPlace, VerdictTokenizer } from '../data/verdict.js';
import type { StepLabel } from '../records/record.js';
import type { TokenizedSequence } from '../tokenizer/segments.js';

/** The row at index `row` predicts `token`. */
export interface Target {
  readonly row: number;
  readonly token: number;
  /** Weight before normalisation over the optimizer batch. */
  readonly weight: number;
}

export interface TrainingSequence {
  readonly ids: readonly number[];
  readonly positions: readonly number[];
  /** 0 on the trunk, else the index of the verdict branch. */
  readonly branch: readonly number[] | undefined;
  readonly targets: readonly Target[];
  /** Stable index of the row, for dropout. */
  readonly rowId: number;
}

/** Tokens of each sequence, 0 where it has no token to learn. */
export function learnedSizes(sequences: Dataset<Pick<TrainingSequence, 'ids' | 'targets'>>): Int32Array {
  return sizesOf(sequences, ({ ids, targets }) => (targets.length > 0 ? ids.length : 0));
}

/** A size of each item, 4 bytes each. */
export function sizesOf<T>(items: Dataset<T>, sizeOf: (item: T) => number): Int32Array {
  const sizes = new Int32Array(items.length);
  let i = 0;
  for (const item of items) sizes[i++] = sizeOf(item);
  return sizes;
}

/** One verdict of a sequence: for each word, the rows that predict its tokens; after the reason, where there is one to learn. */
export interface VerdictRows {
  readonly step: number;
  readonly label: StepLabel;
  readonly positive: readonly { readonly row: number; readonly token: number }[];
  readonly negative: readonly { readonly row: number; readonly token: number }[];
}

export interface VerdictSequence extends TrainingSequence {
  readonly verdicts: readonly VerdictRows[];
  /** The source of the sequence, for building it with other answers at its branches. */
  readonly solution: SolutionVerdicts;
}

/** A row and a token whose log-probability it predicts. */
export interface AnswerRow {
  readonly row: number;
  readonly token: number;
}

/** One answer at one place of a branched sequence. */
export interface BranchedAnswer {
  /** Row that predicts each token of the answer. */
  readonly rows: readonly AnswerRow[];
  /** The row of the answer's last token (of the tail's, for an empty answer), if answers are read whole. */
  readonly end: number;
}

export interface BranchedSequence {
  readonly ids: readonly number[];
  readonly positions: readonly number[];
  readonly branch: readonly number[] | undefined;
  /** Answers by place and number. */
  readonly answers: readonly (readonly BranchedAnswer[])[];
}

export interface AnswerPlace {
  /** Number of trunk tokens before the branches. */
  readonly at: number;
  readonly answers: readonly (readonly number[])[];
}

/** Language modelling: every token of the loss mask is predicted from the tokens before it. */
export function maskedSequence(
  sequence: Pick<TokenizedSequence, 'ids' | 'lossMask'>,
  rowId: number,
): TrainingSequence {
  const targets = targetsOf({ ids: sequence.ids, weights: sequence.lossMask });
  const ids = Array.from(sequence.ids);
  return { ids, positions: ids.map((_, i) => i), branch: undefined, targets, rowId };
}

/** Every token of a weight above 0 but the first, which nothing predicts. */
export function targetsOf({
  ids,
  weights,
}: Readonly<Record<'ids' | 'weights', ArrayLike<number>>>): Target[] {
  const targets: Target[] = [];
  for (let t = 1; t < ids.length; t++) {
    const weight = weights[t] as number;
    if (weight > 0) targets.push({ row: t - 1, token: ids[t] as number, weight });
  }
  return targets;
}

/**
 * A trunk with answers branching off it. To each answer the trunk before its place, the tail and the answer itself are
 * visible; the answer is visible to nothing else. Equal to one sequence per answer, with the shared trunk computed once.
 * An answer that is a prefix of another shares its branch.
 *
 * @param whole also include each answer's last token, for a head that reads the answer rather than predicts it
 */
export function branchedSequence(
  trunk: ArrayLike<number>,
  places: readonly AnswerPlace[],
  tailIds: readonly number[],
  { whole = false }: { readonly whole?: boolean } = {},
): BranchedSequence {
  const ids: number[] = [];
  const positions: number[] = [];
  const branch: number[] = [];
  let branches = 0;
  let at = 0;
  let lastTrunk = -1;
  const push = (token: number, position: number, number: number) => {
    ids.push(token);
    positions.push(position);
    branch.push(number);
  };
  const fedOf = (answer: readonly number[]) => [...tailIds, ...(whole ? answer : answer.slice(0, -1))];
  const answers = places.map((place) => {
    for (; at < place.at; at++) {
      lastTrunk = ids.length;
      push(trunk[at] as number, at, 0);
    }
    const made: { readonly fed: readonly number[]; readonly first: number }[] = [];
    const firstOf = (fed: readonly number[]) => {
      const shared = made.find((branched) => fed.every((token, i) => branched.fed[i] === token));
      if (shared) return shared.first;
      branches++;
      const first = ids.length;
      fed.forEach((token, i) => {
        push(token, at + i, branches);
      });
      made.push({ fed, first });
      return first;
    };
    const found: BranchedAnswer[] = [];
    // Longest first, so that shorter ones find the branch of which they are a prefix.
    const order = place.answers.map((_, i) => i);
    order.sort((a, b) => (place.answers[b] as number[]).length - (place.answers[a] as number[]).length);
    for (const i of order) {
      const answer = place.answers[i] as readonly number[];
      const fed = fedOf(answer);
      const first = fed.length > 0 ? firstOf(fed) : 0;
      const rowAt = (index: number) => (index < 0 ? lastTrunk : first + index);
      found[i] = {
        rows: answer.map((token, k) => ({ row: rowAt(tailIds.length + k - 1), token })),
        end: rowAt(fed.length - 1),
      };
    }
    return found;
  });
  return { ids, positions, branch: branches > 0 ? branch : undefined, answers };
}

/**
 * All verdicts of a solution in one sequence, with both words at each place, after its reason where it has one. In an
 * answer with a reason all tokens are learned; those of the word together weigh as much as the reason, which is longer
 * and easier.
 *
 * @param learned `weigh` gives the weight of a verdict's tokens by its label, `smoothing` the share of it that the
 * other word gets
 */
export function verdictSequence(
  solution: SolutionVerdicts,
  tokenizer: Pick<VerdictTokenizer, 'template' | 'tailIds'>,
  rowId: number,
  learned: { readonly weigh?: (label: 1 | 0) => number; readonly smoothing?: number } = {},
): VerdictSequence {
  const { weigh = () => 1, smoothing = 0 } = learned;
  const { positiveIds, negativeIds, rationaleTokens } = tokenizer.template;
  const places = solution.verdicts.map(({ at, rationale = [] }) => ({
    at,
    answers: [positiveIds, negativeIds].map((word) => [...rationale, ...word]),
  }));
  const { answers, ...sequence } = branchedSequence(solution.trunk.ids, places, tokenizer.tailIds);
  const targets: Target[] = [];
  const verdicts = solution.verdicts.map(({ step, label, rationale }, i): VerdictRows => {
    const [positive, negative] = answers[i] as [BranchedAnswer, BranchedAnswer];
    const reason = rationale?.length ?? 0;
    // If answers have reasons, a verdict without one would teach the model to leave them out.
    if (label !== null && (reason > 0 || rationaleTokens === 0)) {
      const [right, other] = label === 1 ? [positive, negative] : [negative, positive];
      const ofWord = Math.max(1, reason / (right.rows.length - reason));
      const learn = (rows: readonly AnswerRow[], weight: number) => {
        for (const row of rows) targets.push({ ...row, weight: weigh(label) * weight });
      };
      learn(right.rows.slice(0, reason), 1);
      learn(right.rows.slice(reason), ofWord * (1 - smoothing));
      if (smoothing > 0) learn(other.rows.slice(reason), ofWord * smoothing);
    }
    return { step, label, positive: positive.rows.slice(reason), negative: negative.rows.slice(reason) };
  });
  return { ...sequence, targets, rowId, verdicts, solution };
}

/**
 * The `learnedSizes` of the sequences of verdicts without reasons, from their places.
 *
 * @returns tokens of a sequence; 0 where no verdict has a label
 */
export function verdictSizes({
  template: { positiveIds, negativeIds },
  tailIds,
}: Pick<VerdictTokenizer, 'template' | 'tailIds'>): (
  verdicts: readonly Pick<VerdictPlace, 'at' | 'label'>[],
) => number {
  const ofVerdict = branchedSequence([], [{ at: 0, answers: [positiveIds, negativeIds] }], tailIds).ids
    .length;
  return (verdicts) =>
    verdicts.some(({ label }) => label !== null)
      ? (verdicts.at(-1)?.at ?? 0) + verdicts.length * ofVerdict
      : 0;
}
