/** The questions of a rollout, and the sequences that ask them. */
import type { VerdictTemplate } from '../../data/verdict.js';
import type { StepLabel } from '../../records/record.js';
import { type BranchedSequence, branchedSequence, type VerdictSequence } from '../../sequences/sequence.js';
import type { PpoConfig } from './config.js';

/** The steps that are asked about, by whether they have a label. */
export type AskedSteps = PpoConfig['steps'];

export function isAsked(steps: AskedSteps, label: StepLabel): boolean {
  return steps === 'all' || (label === null) === (steps === 'unlabelled');
}

/** The answers of a draft: one to be sampled, or both words, the positive one first. */
export interface QuestionOptions {
  readonly template: Pick<VerdictTemplate, 'positiveIds' | 'negativeIds'>;
  readonly settings: Pick<PpoConfig, 'rollout' | 'steps'>;
}

/** A question whose answers are being written. `place` is its index among the solution's verdicts. */
export interface Draft {
  readonly place: number;
  readonly step: number;
  readonly label: StepLabel;
  /** `sampler`: log-probs of tokens that were sampled. `reason`: tokens before the word; undefined if there is none. */
  readonly answers: { tokens: readonly number[]; sampler: readonly number[]; reason: number | undefined }[];
}

/** A draft for every step of a solution that is asked about. */
export function openQuestions(
  { verdicts }: VerdictSequence,
  { template, settings }: QuestionOptions,
): Draft[] {
  return verdicts.flatMap(({ label, step }, place) => {
    if (!isAsked(settings.steps, label)) return [];
    const words = settings.rollout === 'enumerate' ? [template.positiveIds, template.negativeIds] : [[]];
    return [{ place, step, label, answers: words.map((tokens) => ({ tokens, sampler: [], reason: 0 })) }];
  });
}

export interface AnsweredSequence extends BranchedSequence {
  readonly rowId: number;
}

/** The sequence that asks each question and holds its answers. */
export function answeredSequence(
  { solution, rowId }: VerdictSequence,
  questions: readonly { readonly place: number; readonly answers: readonly (readonly number[])[] }[],
  tailIds: readonly number[],
): AnsweredSequence {
  const places = questions.map(({ place, answers }) => ({
    at: (solution.verdicts[place] as { at: number }).at,
    answers,
  }));
  return { ...branchedSequence(solution.trunk.ids, places, tailIds), rowId };
}
