/** What is wrong with a line, as a table of an evaluation calls it. */
import { evaluate } from './facts.js';
import { readLine } from './line.js';
import { ANSWER, type JudgedLine, type StepError } from './oracle.js';

const NAMES: Readonly<Record<Exclude<StepError, 'slip' | 'carried'>, string>> = {
  operation: 'another operation',
  dropped: 'number left out',
  copied: 'another number',
  quantity: 'another quantity',
  repeated: 'repeated',
  other: 'not needed',
  answer: 'wrong answer',
  unreadable: 'unreadable',
};

/** Undefined for a right line. */
export function errorName({ text, error }: JudgedLine): string | undefined {
  if (error === undefined) return undefined;
  if (error === 'carried') return ANSWER.test(text) ? 'answer carried on' : 'carried on';
  return error === 'slip' ? slipName(text) : NAMES[error];
}

function slipName(text: string): string {
  const line = readLine(text);
  const right = line && evaluate(line);
  if (line === undefined || right === undefined) return 'other slip';
  const by = Math.abs(line.result - right);
  if (by === 1 || by === 10) return `slip of ${by}`;
  const isSwapped = String(right) === [...String(line.result)].reverse().join('');
  return isSwapped ? 'digits swapped' : 'other slip';
}
