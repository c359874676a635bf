/** The items of a reward model: the text that it reads of a solution, and the labels that it learns. */
import type { VerdictTokenizer } from '../../data/verdict.js';
import type { StepLabel } from '../../records/record.js';
import type { ForwardSequence } from '../../sequences/forward.js';
import { branchedSequence } from '../../sequences/sequence.js';
import type { SettingsOf } from '../settings.js';

/** The outputs of a head with a class for neutral steps, in order. Two classes are the first two. */
export const CLASSES = ['wrong', 'right', 'neutral'] as const;

/** A row whose hidden state is scored. */
export interface ScoredRow {
  /** Within the item, and within the sequence. */
  readonly sequence: number;
  readonly row: number;
  /** The output of the head: of the steps or of the outcome. */
  readonly what: 'step' | 'outcome';
  readonly step: number;
  /** The label in evaluations. */
  readonly label: StepLabel;
  /** The probability that is learned. Rows without one are only scored. */
  readonly target: number | undefined;
  /** Whether the step is neutral; a head with such a class learns that in place of the label. */
  readonly neutral: boolean;
}

/** The one of `CLASSES` that the row has. */
export function classIndex({ neutral, label }: Pick<ScoredRow, 'neutral' | 'label'>): 0 | 1 | 2 {
  return neutral ? 2 : label === 1 ? 1 : 0;
}

/** A solution: its sequences, which are computed together. */
export interface RewardItem {
  readonly sequences: readonly ForwardSequence[];
  readonly rows: readonly ScoredRow[];
  readonly tokens: number;
}

/** A tokenised solution with its labels. */
export interface LabelledSolution {
  readonly ids: ArrayLike<number>;
  /** The end of each step in `ids`. */
  readonly ends: readonly number[];
  readonly labels: readonly StepLabel[];
  /** Soft labels; a step without one has its label. */
  readonly scores?: readonly (number | undefined)[];
  /** Steps that the source calls neither right nor wrong. Default none. */
  readonly neutral?: readonly boolean[];
  readonly outcome?: 0 | 1 | undefined;
}

export interface ItemOptions extends Pick<SettingsOf<'reward_model'>, 'type' | 'input'> {
  /** Every token counts: the tokens of a step's model and an outcome's are the same then. */
  readonly whole: boolean;
  /** Score every step, not only those with a label. */
  readonly everyStep?: boolean;
  /** Max tokens of a sequence. */
  readonly maxLength: number;
}

/**
 * @param rowId stable index of the solution, for dropout
 * @returns the rows that fit `maxLength`; an outcome has none if its solution does not fit
 */
export function rewardItem(
  { ids, ends, labels, scores, neutral, outcome }: LabelledSolution,
  rowId: number,
  { tailIds }: Pick<VerdictTokenizer, 'tailIds'>,
  { type, input, whole, everyStep = false, maxLength }: ItemOptions,
): RewardItem {
  const fits = (end: number) => end + tailIds.length <= maxLength;
  const places: (Omit<ScoredRow, 'sequence' | 'row'> & { readonly at: number })[] = [];
  ends.forEach((at, step) => {
    const label = labels[step] ?? null;
    if (type === 'orm' || !fits(at) || !(everyStep || label !== null)) return;
    const target = label === null ? undefined : (scores?.[step] ?? label);
    places.push({ what: 'step', step, label, target, neutral: neutral?.[step] === true, at });
  });
  const end = ends.at(-1);
  if (type !== 'prm' && end !== undefined && fits(end) && (everyStep || outcome !== undefined))
    places.push({
      what: 'outcome',
      step: ends.length - 1,
      label: outcome ?? null,
      target: outcome,
      neutral: false,
      at: end,
    });
  const cut = whole ? Math.max(0, ...ends.filter(fits)) : (places.at(-1)?.at ?? 0);
  const made = input === 'whole' ? inOneSequence(ids, cut, places, tailIds) : byPrefix(ids, places, tailIds);
  const sequences = made.sequences.map((sequence) => ({ ...sequence, rowId }));
  return {
    sequences,
    rows: places.map(({ at: _, ...place }, i) => ({ ...place, ...(made.rows[i] as Place) })),
    tokens: sequences.reduce((sum, { ids }) => sum + ids.length, 0),
  };
}

interface Place {
  readonly sequence: number;
  readonly row: number;
}

interface Made {
  readonly sequences: readonly Omit<ForwardSequence, 'rowId'>[];
  /** The rows, one for each place. */
  readonly rows: readonly Place[];
}

/** Without a tail each place is a row of the trunk; with one, it is the end of a branch. */
function inOneSequence(
  ids: ArrayLike<number>,
  cut: number,
  places: readonly { readonly at: number }[],
  tailIds: readonly number[],
): Made {
  if (places.length === 0) return { sequences: [], rows: [] };
  // The last place, without an answer of its own, brings in the rest of the trunk.
  const all = [...places.map(({ at }) => ({ at, answers: [[]] })), { at: cut, answers: [] }];
  const { answers, ...sequence } = branchedSequence(ids, all, tailIds, { whole: true });
  const rows = places.map((_, i) => ({ sequence: 0, row: answers[i]?.[0]?.end as number }));
  return { sequences: [sequence], rows };
}

function byPrefix(
  ids: ArrayLike<number>,
  places: readonly { readonly at: number }[],
  tailIds: readonly number[],
): Made {
  // A step and an outcome at one place read the same sequence.
  const ends = [...new Set(places.map(({ at }) => at))];
  const sequences = ends.map((end) => {
    const own = [...Array.from(ids).slice(0, end), ...tailIds];
    return { ids: own, positions: own.map((_, i) => i), branch: undefined };
  });
  const rows = places.map(({ at }) => {
    const sequence = ends.indexOf(at);
    return { sequence, row: (sequences[sequence] as { ids: number[] }).ids.length - 1 };
  });
  return { sequences, rows };
}
