/** Labels of turns by rules over what came back for them: exit codes, tests and errors, and the answer of the last turn. */
import { grade } from '../answers/grade.js';
import { attempt } from '../native/attempt.js';
import type { Message, Step, StepLabel } from '../records/record.js';
import { callsOf } from '../records/turns.js';
import { isRow, type Row } from './columns.js';

/** Columns of a result in JSON that hold an exit code. */
const CODES = ['exit_code', 'exitCode', 'returncode', 'return_code', 'exit_status'] as const;

/** Exit codes in words: `exit code: 1`, `exited with 1`, `<returncode>1</returncode>`. */
const WRITTEN_CODE =
  /\b(?:exit(?:ed)?(?: with)?(?: (?:code|status))|returncode|return code|exit_code)["'>]?\s*[:=]?\s*["']?(-?\d{1,5})\b/gi;

/** Counts of failed tests as runners print them; any of them above 0 is a failure. */
const FAILED_TESTS = [
  /\b(\d{1,7}) (?:tests? |specs? |examples? )?(?:failed|failing|failures?|errors?)\b/gi,
  // unittest: FAILED (failures=1, errors=1). Maven and PHPUnit: Tests run: 5, Failures: 2, Errors: 0.
  /(?:^FAILED \(|\bTests(?: run)?: )[^\n]*?\b(?:failures|errors)[=:] ?([1-9]\d{0,6})/gim,
  // The runner of Node.
  /^[#ℹ] (?:fail|cancelled) (\d{1,7})$/gm,
] as const;

/** A failed test of Go or of TAP. */
const FAILED_TEST = /^\s*(?:--- FAIL: |not ok \d(?!.*# (?:TODO|SKIP)))|^FAIL\t/m;
const PASSED_TESTS = /\b\d{1,7} (?:tests? )?pass(?:ed|ing)\b/i;

/** Errors in words where a result begins. */
const ERROR =
  /^\s*(?:<(?:tool_use_)?error>|npm ERR!|an error (?:has )?occurred\b|failed to\b|(?:MCP )?error (?:-?\d+:|executing|running|calling|invoking|parsing|occurred|in code|while|during)|fatal:|error(?:\[\w+\])?\s*:)|^\s*(?:[A-Za-z_.]*(?:Error|Exception)\s*:|Traceback \(most recent call last\):)/i;

/** Errors of compilers and of make, in any line. */
const COMPILER =
  /^\S+:\d+(?::\d+)?: (?:fatal )?error: |^\S+\(\d+,\d+\): error |^error(?:\[\w+\])?: |^make(?:\[\d+\])?: \*\*\* /m;

/** Failures of commands as shells and programs write them, in the first or last line. */
const SHELL =
  /^\S+: (?:.*: )?(?:command not found|not found|No such file or directory|Permission denied|Is a directory)$/;

/** The last line of a Python program that ends by an exception. */
const EXCEPTION = /^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?::.*)?$/;

const SIGNAL =
  /\b(?:exited|terminated|killed) (?:with|by) signal\b|^\s*(?:the )?(?:command |process |tool )?timed out\b/i;

/** Beginnings of what the environments of this package answer to a call that fails. */
const OWN = /^\s*(?:cannot compute|there is no tool|the call "|expected \{)/;

export const isNoError = (value: unknown): boolean =>
  !value ||
  (typeof value === 'string' && /^(?:false|none|null|no errors?)$/i.test(value)) ||
  (typeof value === 'object' && Object.keys(value).length === 0);

const exitCodeOf = (value: Row): unknown =>
  CODES.map((key) => value[key]).find(
    (one) => typeof one === 'number' || (typeof one === 'string' && /^-?\d+$/.test(one)),
  );

/** Reads from an object, a result or its message, whether its call succeeded; undefined where it has no sign of it. */
export function objectSays(value: Row): 0 | 1 | undefined {
  // Codex has the exit code in `metadata`.
  const inner = Object.values(value).filter(isRow).map(exitCodeOf);
  const code = [exitCodeOf(value), ...inner].find((one) => one !== undefined);
  if (code !== undefined) return Number(code) === 0 ? 1 : 0;
  const isTrue = (one: unknown) => one === true || one === 'true';
  const isFalse = (one: unknown) => one === false || one === 'false';
  if (isTrue(value.is_error) || isTrue(value.isError)) return 0;
  if (isFalse(value.success) || isFalse(value.ok)) return 0;
  if (typeof value.status === 'string' && /^(?:error|fail(?:ed|ure)?)$/i.test(value.status)) return 0;
  if (!isNoError(value.error) || !isNoError(value.errors)) return 0;
  return isFalse(value.is_error) || isFalse(value.isError) ? 1 : undefined;
}

/** The exit code that a result says in words: the one that it begins with, else the last. */
function writtenCode(content: string): number | undefined {
  const found = [...content.matchAll(WRITTEN_CODE)];
  const [first] = found;
  if (first === undefined) return undefined;
  const begins =
    content
      .slice(0, first.index)
      .trim()
      .replace(/^[<[("']+/, '') === '';
  return Number((begins ? first : found.at(-1))?.[1]);
}

/** Whether the words of a result say an error, without its exit code and tests. */
function saysError(content: string): boolean {
  const lines = content.trim().split('\n');
  const last = lines.at(-1) ?? '';
  return (
    ERROR.test(content) ||
    OWN.test(content) ||
    COMPILER.test(content) ||
    SIGNAL.test(content) ||
    SHELL.test(lines[0] ?? '') ||
    SHELL.test(last) ||
    (content.includes('Traceback (most recent call last):') && EXCEPTION.test(last))
  );
}

/**
 * Whether a result of a tool says that the call succeeded (1) or failed (0). An exit code decides before tests, tests before an error; a
 * result that has none of them has come back, and is a success.
 */
export function resultSays(content: string): 0 | 1 {
  const value: unknown = attempt(() => JSON.parse(content));
  // Llama 3.1 writes every result as JSON, words too.
  if (typeof value === 'string') return resultSays(value);
  if (isRow(value)) {
    const said = objectSays(value);
    if (said !== undefined) return said;
  }
  // Parts of a result, as MCP has them.
  if (Array.isArray(value)) {
    const texts = value.map((part: unknown) => (isRow(part) && part.type === 'text' ? part.text : undefined));
    if (texts.length > 0 && texts.every((text) => typeof text === 'string'))
      return resultSays(texts.join('\n'));
  }
  const code = writtenCode(content);
  if (code !== undefined) return code === 0 ? 1 : 0;
  const counts = FAILED_TESTS.flatMap((pattern) => [...content.matchAll(pattern)]);
  if (counts.some(([, count]) => Number(count) > 0) || FAILED_TEST.test(content)) return 0;
  if (PASSED_TESTS.test(content)) return 1;
  return saysError(content) ? 0 : 1;
}

/** Results of tools in a message of the user, as the templates of Hermes and Qwen write them; dumps of rollouts keep them so. */
const WRITTEN_RESULT = /<tool_response>\s*([\s\S]*?)\s*<\/tool_response>/g;

/** Beginning of a call in a turn's text, where it was not read apart: Hermes and Qwen, Mistral, Llama 3. */
const WRITTEN_CALL = /<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>|^\s*\{\s*"name"\s*:/;

/** Reads the results in a message: what it says of itself, else what its content says. */
function resultsIn({ role, content, is_error: failed }: Message): (0 | 1)[] {
  if (role === 'tool' && typeof failed === 'boolean') return [failed ? 0 : 1];
  const written = [...content.matchAll(WRITTEN_RESULT)].map(([, inner = '']) => inner);
  return (written.length === 0 && role === 'tool' ? [content] : written).map(resultSays);
}

/** The results of each turn: by the id of the call where a turn up to there has it, since some come late, else by their place. */
function resultsByTurn(steps: readonly Pick<Step, 'message' | 'results'>[]): Message[][] {
  const turns = steps.map((): Message[] => []);
  const turnOf = new Map<string, Message[]>();
  steps.forEach(({ message, results = [] }, i) => {
    const here = turns[i] as Message[];
    for (const { id } of callsOf(message)) if (id !== undefined) turnOf.set(id, here);
    for (const result of results) {
      const { tool_call_id: of } = result;
      (typeof of === 'string' ? (turnOf.get(of) ?? here) : here).push(result);
    }
  });
  return turns;
}

/**
 * Labels by turn: a turn is right if all results of tools that came back for it are successes; the last turn, if it calls nothing, is
 * right if it says `answer`. Other turns without a result, and a last turn without an answer to compare with, have no label.
 */
export function labelsByResults(
  steps: readonly Pick<Step, 'text' | 'message' | 'results'>[],
  answer: string | undefined,
): StepLabel[] {
  const results = resultsByTurn(steps);
  return steps.map(({ text, message }, i) => {
    const told = (results[i] as Message[]).flatMap(resultsIn);
    if (told.length > 0) return told.includes(0) ? 0 : 1;
    const isLast = i === steps.length - 1;
    if (!isLast || answer === undefined || callsOf(message).length > 0 || WRITTEN_CALL.test(text))
      return null;
    return grade(text, answer).correct ? 1 : 0;
  });
}
