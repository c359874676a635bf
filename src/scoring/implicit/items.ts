/** The items of offline objectives: answers to a prompt as token rows, with the spans of their steps. */
import type { StepLabel } from '../../records/record.js';
import type { ForwardSequence } from '../../sequences/forward.js';
import { type AnswerRow, branchedSequence } from '../../sequences/sequence.js';

/** Positions in the tokens of an answer, end exclusive. */
export interface TokenSpan {
  readonly begin: number;
  readonly end: number;
}

/** A step of an answer. */
export interface StepTokens extends TokenSpan {
  readonly label: StepLabel;
  /** A reward model's, if the data has one. */
  readonly score?: number | undefined;
}

/** An answer in tokens. */
export interface AnswerTokens {
  readonly ids: readonly number[];
  /** Tokens before the first that is learned: context. */
  readonly from: number;
  /** Spans of `ids`, end exclusive, between the turns of an agent: they are read and not learned. Default none. */
  readonly between?: readonly TokenSpan[] | undefined;
  /** Spans of steps in `ids`, end exclusive. A step that is context is not among them. */
  readonly steps: readonly StepTokens[];
  /** Whether the answer is right, or desirable. */
  readonly label: StepLabel;
  /** The end of the reasoning that its prompt opens, where the answer never writes it: `</think>`. */
  readonly unclosed?: string;
  /** `<think>`, where a prompt that is given word for word opens the reasoning and the answer opens it again. */
  readonly reopens?: string;
}

/** One answer, or a chosen and a rejected one, to a prompt. */
export interface OfflineItem {
  /** Identifies the problem. */
  readonly problem: number;
  readonly prompt: readonly number[];
  readonly answers: readonly AnswerTokens[];
}

/** The rows at which the tokens of an answer are predicted. */
interface AnswerRows {
  readonly tokens: AnswerTokens;
  /** The answers, as rows over the tokens from `tokens.from` on. */
  readonly rows: readonly AnswerRow[];
}

/** An item as one sequence: its answers branch off the prompt, which is computed once. */
export interface OfflineSequence extends ForwardSequence {
  readonly answers: readonly AnswerRows[];
}

/** Number of learned tokens before position `at` of an answer. */
export function learnedBefore({ from, between = [] }: AnswerTokens, at: number): number {
  const passed = between.reduce(
    (sum, { begin, end }) => sum + Math.max(0, Math.min(end, at) - Math.max(begin, from)),
    0,
  );
  return Math.max(0, at - from - passed);
}

/** Number of learned tokens of an answer. */
export const learnedTokens = (answer: AnswerTokens): number => learnedBefore(answer, answer.ids.length);

/** Whether the token at a position of an answer is learned. */
export const isLearned = ({ from, between = [] }: AnswerTokens, at: number): boolean =>
  at >= from && !between.some(({ begin, end }) => begin <= at && at < end);

/** @param rowId stable index of the item, for dropout */
export function offlineSequence({ prompt, answers }: OfflineItem, rowId: number): OfflineSequence {
  const [single] = answers;
  if (answers.length === 1 && single) {
    const ids = [...prompt, ...single.ids.slice(0, -1)];
    const rows = single.ids
      .map((token, i) => ({ row: prompt.length + i - 1, token }))
      .filter((_, i) => isLearned(single, i));
    return {
      ids,
      positions: ids.map((_, i) => i),
      branch: undefined,
      rowId,
      answers: [{ tokens: single, rows }],
    };
  }
  const place = { at: prompt.length, answers: answers.map(({ ids }) => ids) };
  const branched = branchedSequence(prompt, [place], []);
  return {
    ids: branched.ids,
    positions: branched.positions,
    branch: branched.branch,
    rowId,
    answers: answers.map((tokens, i) => {
      const rows = (branched.answers[0]?.[i]?.rows ?? []).filter((_, at) => isLearned(tokens, at));
      return { tokens, rows };
    }),
  };
}

/** Tokens that pass through the model. */
export function sequenceLength({ prompt, answers }: OfflineItem): number {
  return answers.reduce((sum, { ids }) => sum + ids.length - 1, prompt.length);
}

/** The prompt of one item with the first answer of another, cut off after `maxLength` tokens. */
export function mismatched(asked: OfflineItem, answered: OfflineItem, maxLength: number): OfflineItem {
  const tokens = answered.answers[0] as AnswerTokens;
  const room = Math.max(tokens.from + 1, maxLength - asked.prompt.length);
  const within = <Span extends TokenSpan>(spans: readonly Span[]) =>
    spans.filter(({ begin }) => begin < room).map((span) => ({ ...span, end: Math.min(span.end, room) }));
  return {
    problem: asked.problem,
    prompt: asked.prompt,
    answers: [
      {
        ...tokens,
        ids: tokens.ids.slice(0, room),
        ...(tokens.between ? { between: within(tokens.between) } : {}),
        steps: within(tokens.steps),
      },
    ],
  };
}
