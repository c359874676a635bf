// The answers of a judge and the tokens that it spent, in files of JSON lines that are appended as answers come.
import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { writing } from '../../files/error.js';
import { attempt } from '../../native/attempt.js';

/** The objects of a file, and what adds one. A line that a crash has cut short is passed over. */
function openLines<Row extends object>(path: string) {
  writing(path, () => mkdirSync(dirname(path), { recursive: true }));
  const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
  const rows = text
    .split('\n')
    .flatMap((line): Row[] => attempt(() => [Object(JSON.parse(line)) as Row], []));
  const write = (line: string) => writing(path, () => appendFileSync(path, line));
  if (text !== '' && !text.endsWith('\n')) write('\n');
  return { rows, append: (row: Row) => write(`${JSON.stringify(row)}\n`) };
}

/** Answers by a hash of their request. */
export function openAnswerCache(path: string) {
  const { rows, append } = openLines<{ readonly key: string; readonly text: string }>(path);
  const answers = new Map(rows.map(({ key, text }) => [key, text]));
  return {
    get: (key: string): string | undefined => answers.get(key),
    put(key: string, text: string): void {
      answers.set(key, text);
      append({ key, text });
    },
  };
}

/** Tokens, so that a budget holds over the rounds of a run and when it is resumed. Without a path it begins with nothing. */
export function openSpending(path?: string) {
  const file = path === undefined ? undefined : openLines<{ input: number; output: number }>(path);
  const known = (file?.rows ?? []).filter((row) => [row.input, row.output].every(Number.isSafeInteger));
  const spent = {
    inputTokens: known.reduce((sum, { input }) => sum + input, 0),
    outputTokens: known.reduce((sum, { output }) => sum + output, 0),
    add(input: number, output: number): void {
      spent.inputTokens += input;
      spent.outputTokens += output;
      file?.append({ input, output });
    },
  };
  return spent;
}
