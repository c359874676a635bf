import { defined } from '../../native/defined.js';
import { editDistance } from '../../native/nearest.js';
import { STEP_KINDS, type Step, type StepKind, type StepRecord } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import {
  checkedText,
  isRow,
  labelValue,
  listColumn,
  misfit,
  optionalText,
  type Row,
  textColumn,
} from '../columns.js';
import { extrasOf, messagesOf, templateInputs } from './chat.js';
import type { Prm800kOptions } from './prm800k.js';
import type { Source } from './source.js';

const RECORD_KEYS = [
  'problem',
  'question',
  'prompt',
  'tools',
  'chat_template_kwargs',
  'gold_solution',
  'gold_answer',
  'steps',
  'turns',
  'outcome',
  'rejected',
  'context_steps',
  'context_wrong',
  'group',
  'original',
  'provenance',
];
const STEP_KEYS = ['text', 'label', 'neutral', 'score', 'rationale', 'error', 'message', 'results', 'kind'];

/**
 * A `StepRecord` as a row, whose problem may be called question. A misspelled key would silently change the data:
 * columns close to a known key are refused, and so is every unknown key of a step.
 */
export const record: Source<Pick<Prm800kOptions, 'neutral'>> = {
  name: 'record',
  columns: 'problem or question, steps (objects with text and label)',
  matches: (row) =>
    typeof (row.problem ?? row.question) === 'string' &&
    Array.isArray(row.steps) &&
    row.steps.every((step: unknown) => isRow(step)),
  convert(row, { neutral }, log) {
    refuseMisspelt(row);
    const stored = stepsOf(row, 'steps');
    const steps = stored.map((step) => counted(step, neutral));
    const contextSteps = contextOf(row.context_steps, steps.length);
    for (const [i, { label }] of steps.entries())
      if (i >= contextSteps && label === null)
        log.unlabelled(stored[i]?.label === null ? 'null_label' : 'neutral');
    const { prompt } = row;
    if (row.turns === true && prompt === undefined)
      throw new BadRow(
        'no_prompt',
        "the steps are turns of a conversation ('turns'), which has no beginning; expected column 'prompt' with the messages before the first turn",
      );
    return [
      defined<StepRecord>({
        problem: textColumn(row, row.problem === undefined ? 'question' : 'problem'),
        prompt: prompt === undefined ? undefined : promptOf(prompt),
        ...templateInputs(row, { prompt }),
        gold_solution: optionalText(row, 'gold_solution'),
        gold_answer: optionalText(row, 'gold_answer'),
        steps,
        turns: row.turns === true ? true : undefined,
        outcome: labelValue(row.outcome, "column 'outcome'") ?? undefined,
        rejected: row.rejected === undefined ? undefined : stepsOf(row, 'rejected'),
        context_steps: contextSteps || undefined,
        context_wrong: labelValue(row.context_wrong, "column 'context_wrong'") === 1 ? true : undefined,
        group: optionalText(row, 'group'),
        original: optionalText(row, 'original'),
      }),
    ];
  },
};

/** A neutral step has the label that it was converted with, unless the run asks for another one. */
function counted(step: Step, rule: Prm800kOptions['neutral']): Step {
  if (!step.neutral || step.label === null) return step;
  if (rule === 'negative') return { ...step, label: 0 };
  if (rule !== 'drop') return step;
  const { neutral: _, ...rest } = step;
  return { ...rest, label: null };
}

function stepsOf(row: Row, key: 'steps' | 'rejected'): Step[] {
  const word = key === 'steps' ? 'step' : 'rejected step';
  const steps = listColumn(row, key).map((step, i) => stepOf(step, `${word} ${i + 1}`));
  if (steps.length === 0) throw new BadRow('no_steps', `column '${key}' is an empty list`);
  return steps;
}

function stepOf(value: unknown, where: string): Step {
  if (!isRow(value)) throw misfit(`${where} is`, value, 'an object');
  knownKeys(value, STEP_KEYS, where);
  const kind = value.kind ?? 'normal';
  if (!STEP_KINDS.includes(kind as StepKind)) {
    throw misfit(`'kind' of ${where} is`, kind, `one of ${STEP_KINDS.join(', ')}`, 'bad_kind');
  }
  const score = value.score ?? undefined;
  if (score !== undefined && (typeof score !== 'number' || !Number.isFinite(score))) {
    throw misfit(`'score' of ${where} is`, score, 'a number', 'bad_score');
  }
  const { neutral = false } = value;
  const line = (key: 'rationale' | 'error') =>
    value[key] === undefined || value[key] === null
      ? undefined
      : checkedText(value[key], `'${key}' of ${where}`);
  const message = isRow(value.message) ? extrasOf(value.message) : {};
  if (typeof neutral !== 'boolean') throw misfit(`'neutral' of ${where} is`, neutral, 'true or false');
  return defined<Step>({
    text: message.tool_calls && value.text === '' ? '' : checkedText(value.text, `'text' of ${where}`),
    label: labelValue(value.label, `'label' of ${where}`),
    neutral: neutral || undefined,
    score,
    rationale: line('rationale'),
    error: line('error'),
    message: Object.keys(message).length === 0 ? undefined : message,
    results: value.results === undefined ? undefined : messagesOf(value.results, `'results' of ${where}`),
    kind: kind as StepKind,
  });
}

function contextOf(value: unknown, count: number): number {
  if (value === undefined || value === null) return 0;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= count) return value;
  throw misfit("'context_steps' is", value, `0 to ${count}`, 'bad_context');
}

function refuseMisspelt(row: Row): void {
  for (const key of Object.keys(row)) {
    if (RECORD_KEYS.includes(key)) continue;
    const limit = key.length < 5 ? 1 : 2;
    const meant = RECORD_KEYS.find((known) => editDistance(key.toLowerCase(), known) <= limit);
    if (meant !== undefined)
      throw new BadRow('unknown_key', `the row has the unknown key '${key}'; did you mean '${meant}'?`);
  }
}

function knownKeys(row: Row, known: readonly string[], where: string): void {
  for (const key of Object.keys(row)) {
    if (!known.includes(key)) {
      throw new BadRow('unknown_key', `${where} has the unknown key '${key}'; expected ${known.join(', ')}`);
    }
  }
}

/** An empty text where the solution is one of its own. */
function promptOf(prompt: unknown) {
  if (typeof prompt !== 'string') return messagesOf(prompt, "column 'prompt'");
  return prompt === '' ? prompt : checkedText(prompt, "column 'prompt'");
}
