/** The lines of a solution, written and read. */
import type { Operation } from './facts.js';

/** One computation, as a solution has it: `Ann: 12 + 7 = 19`. */
export interface Line {
  /** The quantity that is computed; undefined where the line does not say. */
  readonly about: string | undefined;
  readonly left: number;
  readonly op: Operation;
  readonly right: number;
  readonly result: number;
}

const LINE = /^(?:([\p{L} ]+):)?\s*(\d{1,9})\s*([-+−–×*x÷/:]|mod)\s*(\d{1,9})\s*=\s*(\d{1,9})\s*\.?$/u;
const SAME_OPERATION: Readonly<Record<string, Operation>> = {
  '−': '-',
  '–': '-',
  '*': '×',
  x: '×',
  '/': '÷',
  ':': '÷',
};
/** `Ann: 12 + 7 = 19`, and without what it computes: `12 + 7 = 19`, `12+7=19`. */
export type LineForm = 'named' | 'plain' | 'tight';

export function stepLine(
  { about, left, op, right, result }: Line & { readonly about: string },
  form: LineForm = 'named',
): string {
  const line = `${left} ${op} ${right} = ${result}`;
  if (form === 'named') return `${about}: ${line}`;
  return form === 'plain' || op === 'mod' ? line : line.replaceAll(' ', '');
}

export function answerLine(answer: string): string {
  return `Answer: ${answer}`;
}

/** Reads the computation of a line, right or wrong; undefined for any other line. */
export function readLine(text: string): Line | undefined {
  const match = LINE.exec(text.trim());
  if (match === null) return undefined;
  const [, about, left, sign = '', right, result] = match;
  const op = SAME_OPERATION[sign] ?? (sign as Operation);
  return { about: about?.trim(), left: Number(left), op, right: Number(right), result: Number(result) };
}
