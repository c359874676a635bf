/** What a training loop feeds: token sequences with the places where a token is learned. */

import type { StepLabel } from '../data/record.js';
import type { SolutionVerdicts, VerdictTokenizer } from '../data/verdict.js';
import type { TokenizedSequence } from '../tokenizer/segments.js';

/** The row at index `row` predicts `token`. */
export interface Target {
  readonly row: number;
  readonly token: number;
  /** Before normalisation over the optimizer batch. */
  readonly weight: number;
}

export interface TrainingSequence {
  readonly ids: readonly number[];
  readonly positions: readonly number[];
  /** 0 on the trunk, else the number of the verdict branch. */
  readonly branch: readonly number[] | undefined;
  readonly targets: readonly Target[];
  /** Stable index of the row, for dropout. */
  readonly rowId: number;
}

/** One verdict to read off a sequence: for each word, the rows that predict its tokens. */
export interface VerdictRows {
  readonly step: number;
  readonly label: StepLabel;
  readonly positive: readonly { readonly row: number; readonly token: number }[];
  readonly negative: readonly { readonly row: number; readonly token: number }[];
}

export interface VerdictSequence extends TrainingSequence {
  readonly verdicts: readonly VerdictRows[];
}

/** Language modelling: every token of the loss mask is predicted from the tokens before it. */
export function maskedSequence(sequence: TokenizedSequence, rowId: number): TrainingSequence {
  const targets: Target[] = [];
  for (let t = 1; t < sequence.ids.length; t++) {
    if (sequence.lossMask[t]) targets.push({ row: t - 1, token: sequence.ids[t] as number, weight: 1 });
  }
  const ids = Array.from(sequence.ids);
  return { ids, positions: ids.map((_, i) => i), branch: undefined, targets, rowId };
}

/**
 * All verdicts of a solution in one sequence: behind each judged step stands a branch that sees the trunk before it and
 * itself, and that nothing else sees. Equal to one sequence per verdict, with the shared steps computed once.
 *
 * @param weigh weight of a verdict's tokens by its label
 */
export function verdictSequence(
  solution: SolutionVerdicts,
  tokenizer: VerdictTokenizer,
  rowId: number,
  weigh: (label: 1 | 0) => number = () => 1,
): VerdictSequence {
  const { positiveIds, negativeIds } = tokenizer.template;
  const { tailIds } = tokenizer;
  const trunk = solution.trunk.ids;
  const ids: number[] = [];
  const positions: number[] = [];
  const branch: number[] = [];
  const targets: Target[] = [];
  const verdicts: VerdictRows[] = [];
  let at = 0;
  let branches = 0;
  const push = (token: number, position: number, number: number) => {
    ids.push(token);
    positions.push(position);
    branch.push(number);
  };
  // The tail and all but the last token of a word; returns the row that predicts each token of the word.
  const pushBranch = (word: readonly number[]) => {
    branches++;
    const lastTrunk = ids.findLastIndex((_, i) => branch[i] === 0);
    const fed = [...tailIds, ...word.slice(0, -1)];
    const first = ids.length;
    fed.forEach((token, i) => {
      push(token, at + i, branches);
    });
    return word.map((token, i) => {
      const index = tailIds.length + i - 1;
      return { row: index < 0 ? lastTrunk : first + index, token };
    });
  };
  for (const verdict of solution.verdicts) {
    for (; at < verdict.at; at++) push(trunk[at] as number, at, 0);
    const positive = pushBranch(positiveIds);
    // Words of one token share their branch.
    const negative =
      positiveIds.length === 1 && negativeIds.length === 1
        ? [{ row: (positive[0] as { row: number }).row, token: negativeIds[0] as number }]
        : pushBranch(negativeIds);
    verdicts.push({ step: verdict.step, label: verdict.label, positive, negative });
    if (verdict.label !== null) {
      const weight = weigh(verdict.label);
      for (const { row, token } of verdict.label === 1 ? positive : negative)
        targets.push({ row, token, weight });
    }
  }
  return { ids, positions, branch: branches > 0 ? branch : undefined, targets, rowId, verdicts };
}
