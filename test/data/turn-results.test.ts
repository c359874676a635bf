// What a result of a tool says about the turn that asked for it.
import { expect, it } from 'vitest';
import { messagesOf } from '../../src/data/sources/chat.js';
import { labelsByResults, resultSays } from '../../src/data/turn-results.js';
import type { Message } from '../../src/records/record.js';

it.each([
  ['{"exit_code": 0, "output": "error: none"}', 1],
  ['{"returncode": 1, "stdout": ""}', 0],
  ['{"error": null, "rows": 3}', 1],
  ['{"error": "no such table"}', 0],
  ['{"is_error": true}', 0],
  ['Exit code: 0\nerror: ignored', 1],
  ['ls: cannot access x\n[exit code 2]', 0],
  ['Process exited with code 1', 0],
  ['==== 3 failed, 12 passed in 0.4s ====', 0],
  ['==== 12 passed, 0 failed ====', 1],
  ['Traceback (most recent call last):\n  File "a.py"', 0],
  ['ValueError: no number', 0],
  ['fatal: not a git repository', 0],
  ['The error: it is in line 3.', 1],
  ['"ValueError: no number"', 0],
  ['"19"', 1],
  ['cannot compute "19 ++"', 0],
  ['there is no tool sum; there are calculator', 0],
  ['the call "{" is no {"name": …, "arguments": {…}} in JSON', 0],
  ['expected {"expression": "…"}', 0],
  ['there is no box left', 1],
  ['19', 1],
  ['', 1],
] as const)('%j is %d', (content, says) => expect(resultSays(content)).toBe(says));

// What runners, compilers, shells and agents' programs print (unittest, Node, mocha, Go, cargo, Maven, ctest, RSpec, PHPUnit, gcc, tsc,
// make, pip; mini-swe-agent, Codex, MCP, the agents of OpenAI, LangChain, smolagents and Claude).
it.each([
  ['<returncode>1</returncode>\n<output>\nx\n</output>', 0],
  ['<returncode>0</returncode>\n<output>\n3 failed, exit code 1\n</output>', 1],
  ['the log has exit code 0\n[exit code 2]', 0],
  ['{"output": "x", "metadata": {"exit_code": 1, "duration_seconds": 0.1}}', 0],
  ['{"output": "1 failed", "metadata": {"exit_code": 0}}', 1],
  ['{"exit_code": "1", "stdout": ""}', 0],
  ['{"status": "error", "message": "no such user"}', 0],
  ['{"status": "delivered"}', 1],
  ['{"ok": false}', 0],
  ['{"success": "false"}', 0],
  ['{"errors": ["x"]}', 0],
  ['{"error": 0, "errors": []}', 1],
  ['{"error": "None"}', 1],
  ['[{"type": "text", "text": "Error: x"}]', 0],
  ['Ran 3 tests in 0.000s\n\nFAILED (failures=1, errors=1)', 0],
  ['Ran 3 tests in 0.000s\n\nOK', 1],
  ['# tests 2\n# pass 1\n# fail 1\n# cancelled 0', 0],
  ['# tests 2\n# pass 2\n# fail 0\n# cancelled 0', 1],
  ['  5 passing (12ms)\n  2 failing\n', 0],
  ['  5 passing (12ms)\n', 1],
  ['--- FAIL: TestX (0.00s)\nFAIL\nFAIL\texample.com/x\t0.1s\nFAIL', 0],
  ['ok  \texample.com/x\t0.1s', 1],
  ['not ok 3 - adds', 0],
  ['not ok 3 - adds # TODO later', 1],
  ['test result: ok. 12 passed; 0 failed\n\ntest result: FAILED. 3 passed; 2 failed', 0],
  ['[ERROR] Tests run: 5, Failures: 2, Errors: 0, Skipped: 0', 0],
  ['Tests run: 5, Failures: 0, Errors: 0, Skipped: 0', 1],
  ['50% tests passed, 2 tests failed out of 4', 0],
  ['100% tests passed, 0 tests failed out of 4', 1],
  ['3 examples, 1 failure', 0],
  ['3 examples, 0 failures', 1],
  ['FAILURES!\nTests: 3, Assertions: 3, Failures: 1.', 0],
  ['3 passed, 1 xfailed in 0.1s', 1],
  ['a.c: In function main:\na.c:1:19: error: x undeclared', 0],
  ["a.ts(1,7): error TS2322: Type 'string' is not assignable to type 'number'.", 0],
  ['false\nmake: *** [Makefile:2: all] Error 1', 0],
  ['bash: line 1: nosuch: command not found', 0],
  ['a.txt\ncat: b.txt: No such file or directory', 0],
  ['1\nTraceback (most recent call last):\n  File "a.py"\nModuleNotFoundError: No module named x', 0],
  ['Traceback (most recent call last):\n  File "a.py"\nKeyError: 1\nhandled, 3 passed', 1],
  ['ERROR: Could not find a version that satisfies the requirement x', 0],
  ['An error occurred while running the tool. Please try again. Error: x', 0],
  ['MCP error -32602: Tool x not found', 0],
  ['Error executing tool get_user: no such user', 0],
  ['Error in code parsing:\nx', 0],
  ['<tool_use_error>String not found</tool_use_error>', 0],
  ['Command timed out after 30 s', 0],
  ['exited with signal 9', 0],
  ['Error rates fell in 2020: 5 %', 1],
] as const)('%j is %d', (content, says) => expect(resultSays(content)).toBe(says));

it('a result that comes late, or in another order, belongs to the turn whose call it names', () => {
  const turn = (...ids: string[]) => ({
    text: '',
    message: { tool_calls: ids.map((id) => ({ id, function: { name: 'f', arguments: {} } })) },
  });
  const result = (id: string, content: string) => ({ role: 'tool', tool_call_id: id, content });
  const turns = [
    { ...turn('a', 'b'), results: [result('b', 'fine')] },
    { ...turn('c'), results: [result('a', 'exit code 1'), result('c', 'fine')] },
    // An id that is used again is of the latest turn.
    { ...turn('a'), results: [result('a', 'fine')] },
  ];
  expect(labelsByResults(turns, undefined)).toEqual([0, 1, 1]);
});

it('a turn is right if all its results are, and the last one by the answer; others have no label', () => {
  const call = { tool_calls: [{ function: { name: 'f', arguments: {} } }] };
  const result = (content: string) => ({ role: 'tool', content });
  const turns = [
    { text: 'I shall look.' },
    { text: '', message: call, results: [result('a'), result('exit code 1')] },
    { text: '', message: call, results: [result('a'), { role: 'user', content: 'error: mine' }] },
    { text: '', message: call },
    { text: 'It is 19.' },
  ];
  expect(labelsByResults(turns, '19')).toEqual([null, 0, 1, null, 1]);
  expect(labelsByResults(turns, '20')).toEqual([null, 0, 1, null, 0]);
  expect(labelsByResults(turns, undefined)).toEqual([null, 0, 1, null, null]);
});

it('calls and results that stand in the text, as dumps of rollouts keep them, count alike', () => {
  const call = '<tool_call>\n{"name": "f", "arguments": {"n": 19}}\n</tool_call>';
  const result = (...contents: string[]) => ({
    role: 'user',
    content: contents.map((content) => `<tool_response>\n${content}\n</tool_response>`).join('\n'),
  });
  const turns = [
    { text: call, results: [result('{"exit_code": 0}')] },
    { text: call, results: [result('12', 'Error: no such file')] },
    // GLM has the same marks in a message of its own.
    { text: call, results: [{ ...result('{"error": "none such"}'), role: 'tool' }] },
    { text: call, results: [{ role: 'user', content: 'Error: mine' }] },
    { text: 'It is 19.' },
  ];
  expect(labelsByResults(turns, '19')).toEqual([1, 0, 0, null, 1]);
  // A call at the end, whose result the dump does not have, is no answer.
  for (const text of [call, '[TOOL_CALLS][{"name": "f"}] 19', '{"name": "f", "parameters": {"n": 19}}'])
    expect(labelsByResults([{ text }], '19')).toEqual([null]);
});

// Claude, MCP, LangChain, mini-swe-agent and Codex mark a message, not its text.
it.each([
  [{}, 1],
  [{ is_error: true }, 0],
  [{ isError: 'true' }, 0],
  [{ is_error: false, content: 'Error: this is what the log says' }, 1],
  [{ status: 'error' }, 0],
  [{ status: 'success', content: 'Error: no such file' }, 0],
  [{ extra: { returncode: 1 } }, 0],
  [{ exit_code: 0, content: '3 failed' }, 1],
  [{ is_error: null }, 1],
])('a result whose message has %j is %d', (fields, says) => {
  const [message] = messagesOf([{ role: 'tool', content: 'x', ...fields }], 'here');
  expect(labelsByResults([{ text: 'it', results: [message as Message] }], undefined)).toEqual([says]);
  // Records keep it.
  const kept = messagesOf(JSON.parse(JSON.stringify([message])), 'here');
  expect(kept).toEqual([message]);
});
