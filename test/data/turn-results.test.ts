// What a result of a tool says about the turn that asked for it.
import { expect, it } from 'vitest';
import { labelsByResults, resultSays } from '../../src/data/turn-results.js';

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
