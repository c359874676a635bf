// What a judge was asked and has said, in tokens, kept in a file so that a budget holds over the rounds of a run and when it is resumed.
import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { writing } from '../../files/error.js';

export interface Spending {
  readonly inputTokens: number;
  readonly outputTokens: number;
  add(input: number, output: number): void;
}

/** Begins with what the file has; without a path with nothing. A line that a crash has cut short is passed over. */
export function openSpending(path?: string): Spending {
  const spent = { inputTokens: 0, outputTokens: 0 };
  const count = (input: number, output: number) => {
    spent.inputTokens += input;
    spent.outputTokens += output;
  };
  const append = (line: string) => {
    if (path !== undefined) writing(path, () => appendFileSync(path, line));
  };
  if (path !== undefined) {
    writing(path, () => mkdirSync(dirname(path), { recursive: true }));
    const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
    for (const [, input, output] of text.matchAll(/^\{"input":(\d+),"output":(\d+)\}$/gm))
      count(Number(input), Number(output));
    if (text !== '' && !text.endsWith('\n')) append('\n');
  }
  return {
    get inputTokens() {
      return spent.inputTokens;
    },
    get outputTokens() {
      return spent.outputTokens;
    },
    add(input, output) {
      count(input, output);
      append(`${JSON.stringify({ input, output })}\n`);
    },
  };
}
