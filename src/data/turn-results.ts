/** Labels of turns by rules over what came back for them: exit codes, tests and errors, and the answer of the last turn. */
import { grade } from '../answers/grade.js';
import { attempt } from '../native/attempt.js';
import type { Message, Step, StepLabel } from '../records/record.js';
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

/** Beginnings of what the environments of this package answer to a call that fails. */
const OWN = /^\s*(?:cannot compute|there is no tool|the call "|expected \{)/;

/**
 * Whether a result of a tool says that the call succeeded (1) or failed (0). An exit code decides before tests, tests before an error; a
 * result that has none of them has come back, and is a success.
 */
export function resultSays(content: string): 0 | 1 {
  const value: unknown = attempt(() => JSON.parse(content));
  // Llama 3.1 writes every result as JSON, words too.
  if (typeof value === 'string') return resultSays(value);
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
  return ERROR.test(content) || OWN.test(content) ? 0 : 1;
}

/** Results of tools in a message of the user, as the templates of Hermes and Qwen write them; dumps of rollouts keep them so. */
const WRITTEN_RESULT = /<tool_response>\s*([\s\S]*?)\s*<\/tool_response>/g;

/** Beginning of a call in a turn's text, where it was not read apart: Hermes and Qwen, Mistral, Llama 3. */
const WRITTEN_CALL = /<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>|^\s*\{\s*"name"\s*:/;

function resultsIn({ role, content }: Message): string[] {
  const written = [...content.matchAll(WRITTEN_RESULT)].map(([, inner = '']) => inner);
  return written.length === 0 && role === 'tool' ? [content] : written;
}

/**
 * Labels by turn: a turn is right if all results of tools that came back for it are successes; the last turn, if it calls nothing, is
 * right if it says `answer`. Other turns without a result, and a last turn without an answer to compare with, have no label.
 */
export function labelsByResults(
  steps: readonly Pick<Step, 'text' | 'message' | 'results'>[],
  answer: string | undefined,
): StepLabel[] {
  return steps.map(({ text, message, results = [] }, i) => {
    const told = results.flatMap(resultsIn);
    if (told.length > 0) return told.every((content) => resultSays(content) === 1) ? 1 : 0;
    const isLast = i === steps.length - 1;
    if (!isLast || answer === undefined || callsOf(message).length > 0 || WRITTEN_CALL.test(text))
      return null;
    return grade(text, answer).correct ? 1 : 0;
  });
}
