import type { Step, StepRecord } from '../../records/record.js';
import { checkedText, misfit, optionalText, type Row, textColumn } from '../columns.js';
import type { Source } from './source.js';

/**
 * Math-Step-DPO-10K: a right start of a solution, then one right (`chosen`) and one wrong (`rejected`) next step. A pair
 * becomes two records: the shared start without labels, then the step in question. `initial_reason_steps` ends
 * with the marker `Step k:` of that next step, which `chosen` and `rejected` do not repeat, so the marker is joined to
 * them. Joining a record's steps with line breaks gives the source's text back.
 */
export const mathStepDpo: Source<object> = {
  name: 'math_step_dpo',
  columns: 'prompt, initial_reason_steps, chosen, rejected',
  matches: (row) =>
    typeof row.prompt === 'string' &&
    'initial_reason_steps' in row &&
    typeof row.chosen === 'string' &&
    typeof row.rejected === 'string',
  convert(row, _options, log) {
    const problem = textColumn(row, 'prompt');
    const { initial_reason_steps: given } = row;
    if (given !== null && typeof given !== 'string')
      throw misfit("column 'initial_reason_steps' holds", given, 'text or null');
    const { steps: start, open } = splitStart(given ?? '');
    const answer = optionalText(row, 'answer');
    const records: StepRecord[] = [];
    for (const [column, label] of [
      ['chosen', 1],
      ['rejected', 0],
    ] as const) {
      const text = nextStep(row, column, open);
      if (text === undefined) {
        log.unlabelled(`empty_${column}`);
        continue;
      }
      records.push({
        problem,
        ...(answer === undefined ? {} : { gold_answer: answer }),
        steps: [...start, { text, label, kind: 'normal' }],
        context_steps: start.length,
      });
    }
    if (records.length === 0) log.skipRow('no_steps');
    return records;
  },
};

/** The finished steps of the start, and the text that opens the next one. */
function splitStart(text: string): { steps: readonly Step[]; open: string } {
  const parts = text.split(/\n(?=Step \d+:)/);
  // An introduction such as "Let's think step by step." has no marker and belongs to the first step.
  if (parts.length > 1 && !/^Step \d+:/.test(parts[0] ?? '')) parts.splice(0, 2, `${parts[0]}\n${parts[1]}`);
  const open = parts.pop() ?? '';
  return {
    steps: parts.map((part, i) => ({
      text: checkedText(part, `step ${i + 1}`),
      label: null,
      kind: 'normal',
    })),
    open,
  };
}

function nextStep(row: Row, column: 'chosen' | 'rejected', open: string): string | undefined {
  const text = row[column] as string;
  return text.trim() === '' ? undefined : checkedText(open + text, `column '${column}'`).trimEnd();
}
