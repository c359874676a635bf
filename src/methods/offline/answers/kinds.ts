/** The kinds of items that objectives learn from, and how records become them. */

import { problemKey } from '../../../data/overlap.js';
import { exactText } from '../../../files/exact-json.js';
import type { Step, StepRecord } from '../../../records/record.js';
import { problemText } from '../../../records/same-text.js';
import { callsOf } from '../../../records/turns.js';
import { learnedTokens, type OfflineItem } from '../../../scoring/implicit/items.js';
import type { AnswerTokenizer } from '../../../scoring/implicit/tokens.js';

export interface ItemKind {
  /** Noun in messages. */
  readonly noun: string;
  /** Columns that the data must have. */
  readonly expected: string;
  /** Whether labels of steps are learned. */
  readonly judgesSteps?: boolean;
  /** @param onLeft hears of rows that nothing is learned from because of what the others are, and why */
  items(
    records: readonly StepRecord[],
    tokens: AnswerTokenizer,
    onLeft?: (rows: number, reason: string) => void,
  ): OfflineItem[];
  /** Says what the method learns nothing from, though items have it where it is as it should; undefined where all is well. */
  doubt?(items: readonly OfflineItem[]): string | undefined;
  /** Why nothing is learned from a record, whatever others there are; undefined where something may be. */
  unused?(record: StepRecord): string | undefined;
}

/** Options for reading the labels of steps. */
export interface StepLabelOptions {
  /** Steps after the first wrong one: as they are labelled, unlabelled, or wrong. */
  readonly after_first_error: 'keep' | 'mask' | 'negative';
  /** Whether the last step, which gives the answer, counts as a step. */
  readonly answer_step: 'keep' | 'exclude';
}

/** Each answer alone, with its label; a pair counts as a right and a wrong answer. */
export const labelledAnswers: ItemKind = singleAnswers((steps) => steps);

/** Each answer alone, with its label and the labels of its steps. */
export const judgedAnswers = (options: StepLabelOptions): ItemKind => ({
  ...singleAnswers((steps) => readLabels(steps, options)),
  judgesSteps: true,
  doubt: (items) =>
    withoutSteps(items, ({ label }) => label !== null, 'label', 'answers are learned by their outcome alone'),
});

/** Whether no step of any answer is judged, as a sentence. */
export function withoutSteps(
  items: readonly OfflineItem[],
  isJudged: (step: OfflineItem['answers'][number]['steps'][number]) => boolean,
  what: string,
  so: string,
): string | undefined {
  const steps = items.flatMap(({ answers }) => answers.flatMap((answer) => answer.steps));
  return steps.length === 0 || steps.some(isJudged)
    ? undefined
    : `no step of the training data has a ${what}, so that ${so}`;
}

function singleAnswers(read: (steps: readonly Step[]) => readonly Step[]): ItemKind {
  return {
    noun: 'labelled answers',
    expected:
      'expected rows with a label (TRL), a kto_tag (LLaMA-Factory) or an outcome, or pairs of answers',
    items: (records, tokens) =>
      records.flatMap((record) => {
        const { steps, rejected, outcome } = record;
        const label = outcome ?? (rejected ? 1 : undefined);
        if (label === undefined) return [];
        const asked = promptOf(record, tokens);
        const of = (steps: readonly Step[], label: 1 | 0) => ({
          ...asked,
          answers: [tokens.answer(record, read(steps), { label })],
        });
        return [of(steps, label), ...(rejected ? [of(rejected, 0)] : [])];
      }),
    unused: ({ outcome, rejected }) =>
      outcome === undefined && !rejected ? 'without a label of the answer' : undefined,
  };
}

function readLabels(
  steps: readonly Step[],
  { after_first_error, answer_step }: StepLabelOptions,
): readonly Step[] {
  const wrong = steps.findIndex(({ label }) => label === 0);
  return steps.map((step, i) => {
    if (answer_step === 'exclude' && i === steps.length - 1) return { ...step, label: null };
    if (wrong < 0 || i <= wrong || after_first_error === 'keep') return step;
    return { ...step, label: after_first_error === 'mask' ? null : 0 };
  });
}

/** Right answers alone, as rejection sampling keeps them. An answer without a judgement counts as right. */
export const rightAnswers: ItemKind = {
  noun: 'right answers',
  expected: 'expected rows with an answer that is not labelled wrong, in itself or in a step',
  items: (records, tokens) =>
    records.flatMap((record) =>
      isRightAnswer(record)
        ? [{ ...promptOf(record, tokens), answers: [tokens.answer(record, record.steps, { label: 1 })] }]
        : [],
    ),
  unused: (record) => withoutSolution(record) ?? (isRightAnswer(record) ? undefined : 'not right as a whole'),
};

/** A problem with its answer alone. */
function withoutSolution({ steps }: StepRecord): string | undefined {
  return steps.length === 0 ? 'without a worked solution' : undefined;
}

/** Another version of a step (`context_steps`) is no whole answer. */
function isRightAnswer({ outcome, steps, context_steps = 0 }: StepRecord): boolean {
  if (steps.length === 0) return false;
  if (outcome !== undefined) return outcome === 1;
  return context_steps === 0 && steps.every(({ label }) => label !== 0);
}

/** Every answer, whatever its label. */
export const allAnswers: ItemKind = {
  noun: 'answers',
  expected: 'expected rows with worked solutions, or with replies',
  items: (records, tokens) =>
    records.flatMap((record) => {
      const answer = tokens.answer(record, record.steps, { label: record.outcome ?? null });
      // A text of one token that nothing comes before.
      return learnedTokens(answer) > 0 ? [{ ...promptOf(record, tokens), answers: [answer] }] : [];
    }),
  unused: withoutSolution,
};

/** A right and a wrong step after the same right beginning of a solution: the steps alone are learned, and nothing ends them. */
export const stepPairs: ItemKind = {
  noun: 'pairs of steps',
  judgesSteps: true,
  expected:
    'expected rows of Math-Step-DPO, or solutions of one problem that are the same, and right, up to a step that is right in one and wrong in the other',
  items(records, tokens, onLeft) {
    const pairs: OfflineItem[] = [];
    const paired = new Set<StepRecord>();
    const waiting = new Map<string, { readonly record: StepRecord; readonly at: number }[]>();
    for (const record of records) {
      // Steps after a wrong one continue from a wrong prefix.
      if (record.context_wrong) continue;
      const wrong = record.steps.findIndex(({ label }) => label === 0);
      const judged = wrong < 0 ? record.steps : record.steps.slice(0, wrong + 1);
      for (const [at, step] of judged.entries()) {
        if (step.label === null || at < (record.context_steps ?? 0)) continue;
        const before = record.steps.slice(0, at).map(withResults);
        const start = exactText([record.prompt ?? problemText(record.problem), ...before]);
        const others = waiting.get(start) ?? [];
        waiting.set(start, others);
        const match = others.findIndex((other) => {
          const { label } = other.record.steps[other.at] as Step;
          return (
            label === 1 - (step.label as number) && said(other.record.steps[other.at] as Step) !== said(step)
          );
        });
        if (match < 0) {
          others.push({ record, at });
          continue;
        }
        const [other] = others.splice(match, 1) as [{ record: StepRecord; at: number }];
        const [good, poor] = step.label === 1 ? [record, other.record] : [other.record, record];
        const answer = (of: StepRecord, label: 1 | 0) =>
          tokens.answer(of, of.steps.slice(0, at + 1), { label, context: at, ends: false });
        pairs.push({ ...promptOf(good, tokens), answers: [answer(good, 1), answer(poor, 0)] });
        for (const each of [good, poor]) paired.add(each);
      }
    }
    onLeft?.(
      records.length - paired.size,
      'without another that is the same up to a step that is judged otherwise',
    );
    return pairs;
  },
};

/**
 * A chosen and a rejected answer to a prompt. For a problem with unpaired answers, the right ones are paired with the
 * wrong ones in turn.
 */
export const answerPairs: ItemKind = {
  noun: 'pairs of answers',
  expected: 'expected rows with chosen and rejected, or right and wrong answers to the same problem',
  items(records, tokens, onLeft) {
    const pairs: OfflineItem[] = [];
    const open = new Map<string, { right: StepRecord[]; wrong: StepRecord[] }>();
    const pair = (good: StepRecord, poor: readonly Step[]) =>
      pairs.push({
        ...promptOf(good, tokens),
        answers: [tokens.answer(good, good.steps, { label: 1 }), tokens.answer(good, poor, { label: 0 })],
      });
    for (const record of records) {
      if (record.rejected) {
        if (!isSameText(record.steps, record.rejected)) pair(record, record.rejected);
        continue;
      }
      if (record.outcome === undefined) continue;
      const key = exactText(record.prompt ?? problemText(record.problem));
      const waiting = open.get(key) ?? { right: [], wrong: [] };
      open.set(key, waiting);
      const [own, others] =
        record.outcome === 1 ? [waiting.right, waiting.wrong] : [waiting.wrong, waiting.right];
      // The same text judged right and wrong is no pair.
      const match = others.findIndex(({ steps }) => !isSameText(steps, record.steps));
      if (match < 0) {
        own.push(record);
        continue;
      }
      const [other] = others.splice(match, 1) as [StepRecord];
      const [good, poor] = record.outcome === 1 ? [record, other] : [other, record];
      pair(good, poor.steps);
    }
    const left = [...open.values()].reduce((sum, { right, wrong }) => sum + right.length + wrong.length, 0);
    onLeft?.(left, 'without an answer to the same problem that is labelled otherwise');
    return pairs;
  },
  unused({ outcome, steps, rejected }) {
    if (rejected) return isSameText(steps, rejected) ? 'whose chosen answer is the rejected one' : undefined;
    return outcome === undefined ? 'without a label of the answer' : undefined;
  },
};

function isSameText(one: readonly Step[], other: readonly Step[]): boolean {
  return (
    one.length === other.length && one.every((step, i) => withResults(step) === withResults(other[i] as Step))
  );
}

/** The text of a step or, of a turn, also its calls: their names and arguments, whatever their ids. */
function said({ text, message }: Step): string {
  const calls = callsOf(message).map(({ name, arguments: given }) => [name, given]);
  return calls.length === 0 ? text : exactText([text, calls]);
}

/** The text of a step with the results of its calls. */
function withResults(step: Step): string {
  const { results = [] } = step;
  return results.length === 0
    ? said(step)
    : exactText([said(step), ...results.map(({ role, content }) => [role, content])]);
}

function promptOf(record: StepRecord, tokens: AnswerTokenizer): Pick<OfflineItem, 'problem' | 'prompt'> {
  return { problem: problemKey(record.problem).hash, prompt: tokens.prompt(record) };
}
