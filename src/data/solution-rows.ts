/** Solutions in rows of any layout: a problem, and steps as a list or as one text. */
import { isDeepStrictEqual } from 'node:util';
import { defined } from '../native/defined.js';
import type { StepLabel, StepRecord } from '../records/record.js';
import { type Segmentation, stepsBy } from '../records/segment.js';
import { readableStep, type Turns } from '../records/turns.js';
import { BadRow } from './bad-row.js';
import {
  checkedText,
  describeValue,
  has,
  isRow,
  labelValue,
  misfit,
  optionalText,
  type Row,
} from './columns.js';
import { detectSource } from './sources/detect.js';
import { PRM800K_DEFAULTS } from './sources/prm800k.js';
import { record } from './sources/record.js';
import { READING_DEFAULTS } from './sources/source.js';
import { refuseSamples } from './sources/stepwise.js';
import { hasTools, isConversation, turns } from './sources/turns.js';
import { withoutTableNulls } from './table-nulls.js';

/** Columns by name; absent: the first of the usual names that the row has. */
export interface SolutionColumns {
  readonly problem?: string | undefined;
  readonly solution?: string | undefined;
  readonly answer?: string | undefined;
  /** The rule by which a text becomes steps. Default: paragraphs, or lines. */
  readonly segmentation?: Segmentation | undefined;
}

export interface RowSolution {
  readonly problem: string;
  readonly steps: readonly string[];
  /** The conversation, where steps are its turns. */
  readonly turns?: Turns;
  /** The expected answer, if the row has one. */
  readonly answer: string | undefined;
  /** Column `finish_reason` says that it did not come to its end: it states no answer. */
  readonly cutOff: boolean;
  /** Labels of the steps, where the row has them. */
  readonly labels?: readonly StepLabel[];
  /** Whether it is right, where the row has that. */
  readonly outcome?: 0 | 1;
}

/** Words of programs for a sample that came to its end, and for one that did not. */
const ENDED = [
  ...['stop', 'stop_sequence', 'eos', 'eos_token', 'end_turn', 'tool_calls', 'tool_use', 'function_call'],
  ...['complete', 'completed', 'finished'],
];
const CUT = [
  ...[
    'length',
    'max_tokens',
    'max_new_tokens',
    'max_output_tokens',
    'max_length',
    'model_length',
    'too_long',
  ],
  ...['abort', 'aborted', 'cancelled', 'error', 'timeout', 'content_filter', 'incomplete', 'failed'],
];

/**
 * Whether a sample's `finish_reason` says that it was cut off; without one it has ended.
 *
 * @throws BadRow for a reason that nobody knows: of a sample that was cut off the last number is no answer
 */
export function isCutOff({ finish_reason: given }: Row): boolean {
  // SGLang writes an object.
  const reason = isRow(given) ? (given.type ?? given) : given;
  if (reason === undefined || reason === null || reason === '') return false;
  const word = typeof reason === 'string' ? reason.trim().toLowerCase() : '';
  if (ENDED.includes(word)) return false;
  if (CUT.includes(word)) return true;
  throw misfit(
    "column 'finish_reason' is",
    reason,
    `a word for an end (${ENDED.slice(0, 5).join(', ')}, …) or for a cut (${CUT.slice(0, 2).join(', ')}, …)`,
    'bad_finish_reason',
  );
}

const READING = { ...PRM800K_DEFAULTS, ...READING_DEFAULTS };
const SILENT = { skipRow() {}, unlabelled() {}, replies() {}, unasked() {} };

const PROBLEMS = ['problem', 'question', 'prompt'];
const SOLUTIONS = ['steps', 'completions', 'solution', 'completion', 'prediction', 'response', 'text'];
const ANSWERS = ['gold_answer', 'answer'];
/** Columns of sampled solutions, usual ones and those of other programs. */
const SAMPLED = [
  ...['completion', 'prediction', 'response', 'generation', 'generated_solution'],
  ...['generated_text', 'model_output', 'model_response'],
];
/** Columns of texts, of which a row may have a gold solution and a sampled one. */
const TEXTS = ['solution', ...SAMPLED, 'text', 'output', 'code'];

/**
 * The solutions of a row: its own, or those of its `samples`, as `steptrain eval solve` writes them. Samples without text
 * hold none.
 *
 * @throws BadRow for a row without them, or with something else in their place
 */
export function solutionsOf(given: Row, columns: SolutionColumns = {}): RowSolution[] {
  const row = withoutTableNulls(given, () => {});
  if (!Array.isArray(row.samples) || columns.solution !== undefined)
    return ofLayout(row, columns) ?? [solutionOf(row, columns)];
  return row.samples.flatMap((sample: unknown, i) => {
    if (!isRow(sample) || typeof sample.text !== 'string')
      throw new BadRow('wrong_type', `sample ${i + 1} of column 'samples' has no text`);
    const { samples: _, ...shared } = row;
    return sample.text.trim() === ''
      ? []
      : [
          solutionOf(
            { ...shared, text: sample.text, finish_reason: sample.finish_reason },
            { ...columns, solution: 'text' },
          ),
        ];
  });
}

/** Layouts of step-labelled data that have no column of a solution by one of the usual names, such as Math-Shepherd's. */
function ofLayout(row: Row, columns: SolutionColumns): RowSolution[] | undefined {
  const isUsual = (usual: readonly string[]) => usual.some((name) => has(row, name));
  if (columns.problem !== undefined || columns.solution !== undefined) return undefined;
  if (hasTurns(row)) return turnSolutions(row);
  if (isUsual(PROBLEMS) && isUsual(SOLUTIONS)) return undefined;
  const records = detectSource(row)?.convert(row, READING, SILENT);
  const whole = records?.filter(({ steps }) => steps.length > 0) ?? [];
  if (whole.length === 0) return undefined;
  return whole.map(({ problem, steps, gold_answer: answer, outcome }) => ({
    problem,
    steps: steps.map(({ text }) => text),
    answer,
    cutOff: isCutOff(row),
    ...(steps.some(({ label }) => label !== null) ? { labels: steps.map(({ label }) => label) } : {}),
    ...(outcome === undefined ? {} : { outcome }),
  }));
}

/** Whether the steps of a row are turns: a record of them, a conversation with tools or labels, or an export of one. */
const hasTurns = (row: Row): boolean => isRecordOfTurns(row) || hasTools(row) || turns.matches(row);

/** Whether a row is a record whose steps are turns, as `steptrain label` writes it. */
const isRecordOfTurns = (row: Row): boolean => row.turns === true && record.matches(row);

/** Whether {@link turnSolutions} reads the row: what {@link solutionsOf} takes for turns, and every other conversation. */
export const readsAsTurns = (row: Row): boolean => hasTurns(row) || isConversation(row);

/** The turns of conversations as the steps of solutions. @throws BadRow for a row that is no conversation of the assistant */
export const turnSolutions = (row: Row): RowSolution[] =>
  (isRecordOfTurns(row) ? record : turns).convert(row, READING, SILENT).map(turnSolution);

function turnSolution(read: StepRecord): RowSolution {
  const { problem, prompt, tools, chat_template_kwargs, steps, gold_answer: answer, outcome } = read;
  return {
    problem,
    steps: steps.map(readableStep),
    turns: defined({ prompt, tools, chat_template_kwargs, steps }),
    answer,
    cutOff: false,
    ...(steps.some(({ label }) => label !== null) ? { labels: steps.map(({ label }) => label) } : {}),
    ...(outcome === undefined ? {} : { outcome }),
  };
}

function solutionOf(row: Row, columns: SolutionColumns): RowSolution {
  const problem = named(row, columns.problem, PROBLEMS, 'a problem');
  const solution = solutionColumn(row, columns);
  const answer = columns.answer ?? ANSWERS.find((name) => has(row, name));
  const value = row[solution];
  const where = `column '${solution}'`;
  const steps = Array.isArray(value)
    ? value.map((step: unknown, i) =>
        checkedText(isRow(step) ? step.text : step, `step ${i + 1} of ${where}`),
      )
    : stepsBy(checkedText(value, where), columns.segmentation);
  if (steps.length === 0) throw new BadRow('no_steps', `${where} is an empty list`);
  if (solution === 'completions') refuseSamples(steps);
  const ofRecord = Array.isArray(value) && value.some(isRow);
  const outcome = ofRecord ? (labelValue(row.outcome, "column 'outcome'") ?? undefined) : row.outcome;
  return {
    problem: checkedText(row[problem], `column '${problem}'`),
    steps,
    answer: answer === undefined ? undefined : optionalText(row, answer),
    cutOff: isCutOff(row),
    ...(ofRecord ? { labels: value.map(labelOf) } : {}),
    ...(outcome === 0 || outcome === 1 ? { outcome } : {}),
  };
}

/**
 * The problem and the text of a row whose solution is one text.
 *
 * @throws BadRow for a row without them, or with a list of steps
 */
export function solutionText(row: Row, columns: SolutionColumns = {}): { problem: string; text: string } {
  const problem = named(row, columns.problem, PROBLEMS, 'a problem');
  const solution = solutionColumn(row, columns);
  if (Array.isArray(row[solution]))
    throw new BadRow('wrong_type', `column '${solution}' is a list of steps already`);
  return {
    problem: checkedText(row[problem], `column '${problem}'`),
    text: checkedText(row[solution], `column '${solution}'`),
  };
}

/** The column of the solution. @throws BadRow where none has a usual name, or two hold different solutions */
function solutionColumn(row: Row, columns: SolutionColumns): string {
  const found = named(row, columns.solution, SOLUTIONS, 'a solution');
  if (columns.solution !== undefined) return found;
  const other = TEXTS.includes(found)
    ? TEXTS.find((name) => name !== found && isFilled(row[name]) && row[name] !== row[found])
    : besideSteps(row, found);
  if (other === undefined) return found;
  throw new BadRow(
    'two_solutions',
    `columns '${found}' and '${other}' may both be the solution, a gold one and a sampled one, say; --solution ${other} names it`,
  );
}

/** A column of another solution beside one of steps: a second list, or a sampled text that no step is in and that is in no step. */
function besideSteps(row: Row, found: string): string | undefined {
  const steps = row[found];
  if (!Array.isArray(steps)) return undefined;
  const isInside = (text: string) =>
    steps.some((step: unknown) => {
      const words = isRow(step) ? step.text : step;
      return typeof words === 'string' && (text.includes(words.trim()) || words.includes(text.trim()));
    });
  return ['steps', 'completions', ...SAMPLED].find((name) => {
    const value = row[name];
    if (name === found || !isFilled(value)) return false;
    return typeof value === 'string' ? !isInside(value) : !isDeepStrictEqual(value, steps);
  });
}

const isFilled = (value: unknown): boolean =>
  typeof value === 'string' ? value.trim() !== '' : Array.isArray(value) && value.length > 0;

const labelOf = (step: unknown, i: number): StepLabel =>
  labelValue(isRow(step) ? step.label : null, `'label' of step ${i + 1}`);

function named(row: Row, name: string | undefined, usual: readonly string[], what: string): string {
  const found = name ?? usual.find((each) => has(row, each));
  if (found !== undefined && row[found] !== undefined) return found;
  throw new BadRow(
    'missing_column',
    `there is no ${found === undefined ? `column of ${what} (${usual.join(', ')})` : `column '${found}'`}; the columns are ` +
      `${Object.entries(row)
        .map(([key, value]) => `${key} (${describeValue(value)})`)
        .slice(0, 12)
        .join(', ')}`,
  );
}
