/** Selects the steps and solutions that a reward model learns, and their labels. */
import { extractAnswer, isMarked } from '../answers/extract.js';
import { grade } from '../answers/grade.js';
import { DataError } from '../files/data-error.js';
import type { Step, StepLabel, StepRecord } from '../records/record.js';
import type { Part } from './split.js';

export interface LabelRules {
  /**
   * Steps after the first wrong one: left in the context without a label (`drop`), wrong, or as labelled (`keep`). Models
   * trained with `drop` never read a step after an error.
   */
  readonly after_error: 'drop' | 'negative' | 'keep';
  /** `after_error` for validation and test. */
  readonly held_out_after_error: 'drop' | 'negative' | 'keep';
  /** Source of the label of a whole solution; `none`: it has none. */
  readonly outcome: 'none' | 'final_answer' | 'all_steps_positive';
  /** `finished` leaves out solutions that state no answer, and those without an outcome. */
  readonly solutions: 'all' | 'finished';
  /** Whether only the last step of a solution keeps its label, in the training part. */
  readonly last_step_only?: boolean;
  /** Whether the scores of steps are learned as probabilities; they are checked then. */
  readonly soft: boolean;
}

/** Why a solution is left out. */
export type LeftOut = 'unfinished' | 'no_gold_answer' | 'no_labelled_step';

/** The record of a part under the rules, with `outcome` where they ask for one; or the reason why it is left out. */
export function relabelled(record: StepRecord, part: Part, rules: LabelRules): StepRecord | LeftOut {
  if (rules.soft) for (const step of record.steps) checkScore(step, record);
  const { outcome: stated, ...rest } = record;
  const ruled = afterError(record, part === 'train' ? rules.after_error : rules.held_out_after_error);
  const steps = part === 'train' && rules.last_step_only ? lastAlone(ruled) : ruled;
  if (rules.solutions === 'all' && rules.outcome === 'none') return { ...rest, steps };
  if (!isFinished(record)) return rules.solutions === 'finished' ? 'unfinished' : { ...rest, steps };
  if (rules.outcome === 'none') return { ...record, steps };
  const outcome = outcomeOf(record, rules.outcome);
  return typeof outcome === 'string' ? outcome : { ...rest, steps, outcome };
}

/**
 * Whether a solution comes to an end: its source knows its outcome, or its last step marks an answer. A solution that was
 * cut off must not be declared wrong by its source: a model of outcomes would learn the length.
 */
export function isFinished({ steps, outcome }: Pick<StepRecord, 'steps' | 'outcome'>): boolean {
  return outcome !== undefined || statesAnswer(steps.at(-1)?.text ?? '');
}

/** A box, `####`, an announced answer, or a heading `# Answer` as in PRM800K. */
export function statesAnswer(text: string): boolean {
  return isMarked(extractAnswer(text)?.method) || answerUnderHeading(text) !== undefined;
}

function answerUnderHeading(text: string): string | undefined {
  return /^#+ *answer:?\s*\n+(.+)/ims.exec(text)?.[1]?.trim();
}

function outcomeOf(record: StepRecord, source: 'final_answer' | 'all_steps_positive'): 0 | 1 | LeftOut {
  if (source === 'all_steps_positive') {
    const labels = record.steps.map(({ label }) => label).filter((label) => label !== null);
    if (labels.length === 0) return 'no_labelled_step';
    return labels.includes(0) || record.context_wrong ? 0 : 1;
  }
  if (record.outcome !== undefined) return record.outcome;
  if (record.gold_answer === undefined) return 'no_gold_answer';
  return outcomeOfAnswer(record.steps.at(-1)?.text ?? '', record.gold_answer);
}

/** Whether the last step of a solution has the expected answer. */
export function outcomeOfAnswer(last: string, answer: string): 0 | 1 {
  return grade(answerUnderHeading(last) ?? last, answer).correct ? 1 : 0;
}

function afterError(
  { steps, context_wrong, context_steps = 0 }: StepRecord,
  rule: LabelRules['after_error'],
): readonly Step[] {
  const first = context_wrong ? context_steps - 1 : steps.findIndex(({ label }) => label === 0);
  if (rule === 'keep' || first < 0) return steps;
  const label: StepLabel = rule === 'negative' ? 0 : null;
  return steps.map((step, i) => (i <= first ? step : labelledAs(step, label)));
}

const lastAlone = (steps: readonly Step[]): Step[] =>
  steps.map((step, i) => (i === steps.length - 1 ? step : labelledAs(step, null)));

function labelledAs({ score: _, neutral: _neutral, ...rest }: Step, label: StepLabel): Step {
  return { ...rest, label };
}

function checkScore({ score, text }: Step, { provenance }: StepRecord): void {
  if (score === undefined || (score >= 0 && score <= 1)) return;
  throw new DataError(
    'row',
    `the score of step ${JSON.stringify(text.slice(0, 60))} is ${score}; soft labels are probabilities from 0 to 1`,
    provenance,
  );
}
