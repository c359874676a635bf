import { defined } from '../../native/defined.js';
import type { Step, StepLabel, StepRecord } from '../../records/record.js';
import {
  checkedText,
  isRow,
  listColumn,
  misfit,
  objectColumn,
  optionalText,
  type Row,
  textColumn,
} from '../columns.js';
import type { ConversionLog, Source } from './source.js';

/** Options for the labels of PRM800K ratings, and for the rows that are used. */
export interface Prm800kOptions {
  /** Rating 0. Default `positive`, and so is `class` but for a model of three classes; `drop` keeps the step in the context without a label. */
  readonly neutral: 'positive' | 'negative' | 'drop' | 'class';
  /** A completion without a rating: `skip` leaves it without a label, `neutral` treats it as rating 0. Default `skip`. */
  readonly null_rating: 'skip' | 'neutral';
  /** A completion the labeler flagged as unusable. Default `skip`: it stays in the context without a label. */
  readonly flagged: 'skip' | 'keep';
  /** A step that the labeler wrote because all offered ones were wrong: context without a label (default) or right. */
  readonly human: 'context' | 'positive';
  /** Also the completions that were rated but not chosen, each as a record of its own. Default true. */
  readonly alternatives: boolean;
  /** Rows used to check labelers. Default `skip`. */
  readonly quality_control: 'skip' | 'keep';
  /** Rows used to screen new labelers. Default `skip`. */
  readonly initial_screening: 'skip' | 'keep';
  /** Rows that ended in one of these are left out. Default `['bad_problem', 'give_up']`. */
  readonly skip_finish_reasons: readonly string[];
  /**
   * The collection phase whose rows are used; phase 2 rows carry a generation or pre-generated steps. Default `both`.
   */
  readonly phase: 1 | 2 | 'both';
}

export const PRM800K_DEFAULTS: Prm800kOptions = {
  neutral: 'positive',
  null_rating: 'skip',
  flagged: 'skip',
  human: 'context',
  alternatives: true,
  quality_control: 'skip',
  initial_screening: 'skip',
  skip_finish_reasons: ['bad_problem', 'give_up'],
  phase: 'both',
};

/**
 * The official PRM800K layout, both phases. The steps of a row follow the trajectory of its labeler: the chosen
 * completion of each step, else the one the labeler wrote. If neither exists, the labelling stopped there, and the first
 * completion ends the trajectory. Every other completion of a step becomes a record of its own (the trajectory so far,
 * then that completion), so that each rating appears exactly once and no record has a sequence
 * of steps that no labeler saw.
 */
export const prm800k: Source<Prm800kOptions> = {
  name: 'prm800k',
  columns: 'question, label',
  matches: (row) => isRow(row.question) && isRow(row.label),
  convert(row, options, log) {
    const question = objectColumn(row, 'question');
    const label = objectColumn(row, 'label');
    const problem = textColumn(question, 'problem', "'question.problem'");
    const stop = rowFilter(row, question, label, options);
    if (stop !== undefined) {
      log.skipRow(stop);
      return [];
    }
    const gold = defined<Pick<StepRecord, 'gold_solution' | 'gold_answer'>>({
      gold_solution: optionalText(question, 'ground_truth_solution'),
      gold_answer: optionalText(question, 'ground_truth_answer'),
    });
    const steps = listColumn(label, 'steps', "'label.steps'");
    const { trajectory, alternatives } = walk(steps, options, log);
    const records: StepRecord[] = [];
    if (trajectory.length > 0) records.push({ problem, ...gold, steps: trajectory });
    for (const alternative of alternatives) {
      const context = alternative.prefix.map((step): Step => ({ ...step, label: null }));
      records.push({
        problem,
        ...gold,
        steps: [...context, alternative.step],
        context_steps: context.length,
        ...(alternative.prefix.some(({ label }) => label === 0) ? { context_wrong: true } : {}),
      });
    }
    if (records.length === 0) log.skipRow('no_steps');
    return records;
  },
};

/** Why the row is left out, or undefined. */
function rowFilter(row: Row, question: Row, label: Row, options: Prm800kOptions): string | undefined {
  if (options.quality_control === 'skip' && row.is_quality_control_question === true)
    return 'quality_control_question';
  if (options.initial_screening === 'skip' && row.is_initial_screening_question === true) {
    return 'initial_screening_question';
  }
  const finish = label.finish_reason;
  if (typeof finish === 'string' && options.skip_finish_reasons.includes(finish))
    return `finish_reason_${finish}`;
  if (options.phase !== 'both') {
    const phase = typeof row.generation === 'number' || Array.isArray(question.pre_generated_steps) ? 2 : 1;
    if (phase !== options.phase) return `phase_${phase}`;
  }
  return undefined;
}

interface Walk {
  readonly trajectory: readonly Step[];
  readonly alternatives: readonly { readonly prefix: readonly Step[]; readonly step: Step }[];
}

function walk(steps: readonly unknown[], options: Prm800kOptions, log: ConversionLog): Walk {
  const trajectory: Step[] = [];
  const alternatives: { prefix: readonly Step[]; step: Step }[] = [];
  for (const [index, entry] of steps.entries()) {
    const where = `step ${index + 1} of 'label.steps'`;
    if (!isRow(entry)) throw misfit(`${where} is`, entry, 'an object');
    const offered = entry.completions ?? [];
    if (!Array.isArray(offered)) {
      throw misfit(`'completions' of ${where} holds`, offered, 'a list');
    }
    const human = isRow(entry.human_completion) ? entry.human_completion : undefined;
    const chosen = chosenIndex(entry.chosen_completion, offered.length, where);
    const stops = chosen === undefined && human === undefined;
    if (stops && offered.length === 0) break;
    // Labels are counted once per completion, so the one on the trajectory is converted in order, like the others.
    const onTrajectory = stops ? 0 : chosen;
    const prefix = trajectory.slice();
    for (const [c, completion] of offered.entries()) {
      const isOnTrajectory = c === onTrajectory;
      if (!isOnTrajectory && !options.alternatives) continue;
      const step = completionStep(completion, `completion ${c + 1} of ${where}`, options, log);
      if (isOnTrajectory) trajectory.push(step);
      else if (step.label !== null) alternatives.push({ prefix, step });
    }
    if (chosen === undefined && human !== undefined) {
      const label: StepLabel = options.human === 'positive' ? 1 : null;
      if (label === null) log.unlabelled('human_step');
      trajectory.push({
        text: checkedText(human.text, `'human_completion.text' of ${where}`),
        label,
        kind: 'normal',
      });
    }
    if (stops) break;
  }
  return { trajectory, alternatives };
}

function chosenIndex(value: unknown, count: number, where: string): number | undefined {
  if (value === null || value === undefined) return undefined;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < count) return value;
  throw misfit(`'chosen_completion' of ${where} is`, value, `null or an index below ${count}`, 'bad_choice');
}

function completionStep(value: unknown, where: string, options: Prm800kOptions, log: ConversionLog): Step {
  if (!isRow(value)) throw misfit(`${where} is`, value, 'an object');
  const text = checkedText(value.text, `the text of ${where}`);
  const unlabelled = (reason: string): Step => {
    log.unlabelled(reason);
    return { text, label: null, kind: 'normal' };
  };
  if (value.flagged === true && options.flagged === 'skip') return unlabelled('flagged');
  const rating = value.rating;
  if (rating === 1) return { text, label: 1, kind: 'normal' };
  if (rating === -1) return { text, label: 0, kind: 'normal' };
  if (rating === null || rating === undefined) {
    if (options.null_rating === 'skip') return unlabelled('null_rating');
  } else if (rating !== 0) {
    throw misfit(`the rating of ${where} is`, rating, '-1, 0, 1 or null', 'bad_label');
  }
  if (options.neutral === 'drop') return unlabelled('neutral');
  return { text, label: options.neutral === 'negative' ? 0 : 1, neutral: true, kind: 'normal' };
}
