/** Labels of turns by rules over what came back for them: exit codes, tests and errors, and the answer of the last turn. */
import { grade } from '../answers/grade.js';
import { attempt } from '../native/attempt.js';
import type { Step, StepLabel } from '../records/record.js';
import { callsOf } from '../records/turns.js';
import { isRow } from './columns.js';

/** Columns of a result in JSON that hold an exit code. */
const CODES = ['exit_code', 'exitCode', 'returncode', 'return_code', 'exit_status'] as const;

const WRITTEN_CODE =
  /\b(?:exit(?:ed)?(?: with)?(?: (?:code|status))|returncode|return code|exit_code)\s*[:=]?\s*(-?\d{1,5})\b/i;
const FAILED_TESTS = /\b(\d{1,7}) (?:failed|errors?)\b/i;
const PASSED_TESTS = /\b\d{1,7} passed\b/i;
const ERROR =
  /^\s*(?:<error>|(?:[A-Za-z_.]*(?:Error|Exception)|Traceback \(most recent call last\)|error|fatal)\s*:)/;

/**
 * Whether a result of a tool says that the call succeeded (1) or failed (0). An exit code decides before tests, tests before an error; a
 * result that has none of them has come back, and is a success.
 */
export function resultSays(content: string): 0 | 1 {
  const value: unknown = attempt(() => JSON.parse(content));
  if (isRow(value)) {
    const code = CODES.map((key) => value[key]).find((one) => typeof one === 'number');
    if (code !== undefined) return code === 0 ? 1 : 0;
    if (value.is_error === true || value.isError === true || value.success === false) return 0;
    const { error } = value;
    if (error !== undefined && error !== null && error !== false && error !== '') return 0;
  }
  const [, written] = WRITTEN_CODE.exec(content) ?? [];
  if (written !== undefined) return Number(written) === 0 ? 1 : 0;
  const [, failed] = FAILED_TESTS.exec(content) ?? [];
  if (failed !== undefined && Number(failed) > 0) return 0;
  if (PASSED_TESTS.test(content)) return 1;
  return ERROR.test(content) ? 0 : 1;
}

/**
 * Labels by turn: a turn with calls is right if all results succeeded; the last turn, if it calls nothing, is right if it says `answer`.
 * A turn without calls, a call without a result, and a last turn without an answer to compare with have no label.
 */
export function labelsByResults(
  steps: readonly Pick<Step, 'text' | 'message' | 'results'>[],
  answer: string | undefined,
): StepLabel[] {
  return steps.map(({ text, message, results = [] }, i) => {
    if (callsOf(message).length === 0)
      return answer === undefined || i < steps.length - 1 ? null : grade(text, answer).correct ? 1 : 0;
    const told = results.filter(({ role }) => role === 'tool');
    if (told.length === 0) return null;
    return told.every(({ content }) => resultSays(content) === 1) ? 1 : 0;
  });
}
