/** The equations of a line of a solution: `… 16 - 3 - 4 = <<16-3-4=9>>9 eggs`, with GSM8K's notes for calculators or without. */
import { negative, type Rational } from '../../answers/rational.js';
import { exactValue, type NumberPart, numbersIn, type Part, partsOf } from './expression.js';
import { isPlain } from './plain.js';
import { rounds } from './rounding.js';

/**
 * Characters of the longest line that is read. Real lines are shorter, and reading takes time quadratic in the length.
 */
export const LONGEST_LINE = 4000;

export interface Equation {
  /** The expression that is computed. */
  readonly expression: string;
  /** Position in the line; absent where only the note has it. */
  readonly at?: number;
  readonly result: NumberPart;
  /** Exact value of the expression. */
  readonly value: Rational;
  /** Whether the result is that value, or rounds it to the digits that it has. */
  readonly holds: boolean;
}

export interface EquationLine {
  /** The line without notes. */
  readonly text: string;
  /** The equations in the order of their results. */
  readonly equations: readonly Equation[];
}

const NOTE = /<<([^<>=]*)=([^<>]*)>>/g;

/** The end of the text before a result. No comparison such as `>=` states one. */
const RESULT = /(?<![<>!≤≥≠~≈:=])={1,2}\s*(?:(?<bracket>\(?)\s*\$?\s*(?<minus>[-−–]))?\s*\$?\s*$/d;

/** `10 * 3 = 15 * 2` and `9:15 + 45 = 10:00` state no result. */
export const GOES_ON = /^(?:\s*(?:[-+*×÷/−–^]|x\s)\s*[-−–]?[\d($.]|:\d)/;

/** `240 - (40 + 84) = 240 students - 124 students = 116`, where a result would be a mistake. */
const GOES_ON_IN_UNITS = /^\s*(?:\/\s?)?\p{L}+(?:\s\p{L}+)?\s*[-+*×÷/−–]\s*[\d($.]/u;

const signed = (number: NumberPart, at: number): NumberPart => ({
  ...number,
  at,
  value: negative(number.value),
});

/** The readable equations of a line. Others, such as `x + 2 = 5`, are passed over. */
export function equationsIn(line: string): EquationLine {
  const notes: { readonly at: number; readonly expression: string }[] = [];
  let text = '';
  let from = 0;
  for (const found of line.matchAll(NOTE)) {
    text += line.slice(from, found.index);
    notes.push({ at: text.length, expression: found[1] ?? '' });
    from = found.index + found[0].length;
  }
  text += line.slice(from);
  const noted = new Map(notes.map(({ at, expression }) => [at, expression]));
  const equations: Equation[] = [];
  if (text.length > LONGEST_LINE) return { text, equations };
  let free = 0;
  for (const number of numbersIn(text)) {
    const before = text.slice(free, number.at);
    const equalSign = RESULT.exec(before);
    const result = equalSign?.groups?.minus
      ? signed(number, free + (equalSign.indices?.groups?.minus?.[0] ?? 0))
      : number;
    const note = noted.get(number.at) ?? noted.get(result.at);
    if (!equalSign && note === undefined) continue;
    const end = number.end + (equalSign?.groups?.bracket && text[number.end] === ')' ? 1 : 0);
    if (note === undefined && GOES_ON.test(text.slice(end))) continue;
    const written = equalSign ? lastExpression(before.slice(0, equalSign.index)) : undefined;
    const found = equationOf(written && { ...written, at: written.at + free }, result, text);
    const own = found?.holds || note === undefined ? found : equationOf({ expression: note }, result, text);
    if (!own || (!own.holds && note === undefined && GOES_ON_IN_UNITS.test(text.slice(number.end)))) continue;
    const { at, value, holds } = own;
    if (at !== undefined && !isPlain(text, { at, end, value, result: own.result.value, holds })) continue;
    equations.push(own);
    free = number.end;
  }
  return { text, equations };
}

function equationOf(
  of: { readonly expression: string; readonly at?: number } | undefined,
  result: NumberPart,
  text: string,
): Equation | undefined {
  if (!of) return undefined;
  const parts = partsOf(of.expression);
  // A number alone is computed from nothing.
  if (parts.filter(({ kind }) => kind === 'number').length < 2) return undefined;
  const value = exactValue(parts);
  if (value === undefined) return undefined;
  const printed = text.slice(result.at).replace(/^[-−–]\s*\$?/, '-');
  return { ...of, result, value, holds: rounds(value, printed, of.expression) };
}

/** The longest expression at the end of a text; undefined where there is none. */
export function lastExpression(
  text: string,
): { readonly expression: string; readonly at: number } | undefined {
  // Ends of lines, sentences and clauses begin anew; a point between digits ends nothing.
  const clause = Math.max(
    ...[...text.matchAll(/[=;?!]|\n(?=[^\n]*\d)|(?<!\d):|:(?!\d)|[.,](?!\d)/gu)].map((end) => end.index + 1),
    0,
  );
  const parts = partsOf(text.slice(clause));
  let first = parts.length;
  for (let i = parts.length - 1; i >= 0; i--) {
    if (!follows(parts[i] as Part, parts[i + 1])) break;
    first = i;
  }
  while (first < parts.length && (isOperator(parts[first]) || !isClosed(parts.slice(first)))) first++;
  const start = parts[first];
  // Only a part of `-(3 + 5) = -8` would be read.
  if (start?.kind === 'bracket' && /[-−–]$/.test(text.slice(0, clause + start.at))) return undefined;
  if (!start || hasLetters(text.slice(clause)) || hasMixed(text.slice(clause), parts, first))
    return undefined;
  return { expression: text.slice(clause + start.at).trimEnd(), at: clause + start.at };
}

const isOperator = (part: Part | undefined) => part?.kind === 'operator';

/** A letter for a number, as of algebra: `2S + 4`, `x - 3`. A lone `x` before a number multiplies, and `150 g` are grams. */
const NAMED =
  /\d[a-zA-Z](?![\p{L}])(?!\s*[\d($])|(?<![\p{L}'’])(?![aAI]\b)(?!(?<=\d )[gmlhsL]\b)[a-wyzA-WYZ](?![\p{L}'’])|[xX]\s*[-+*/)]/u;

export const hasLetters = (text: string): boolean => NAMED.test(text);

/** Whether an expression seems to begin where it goes on: the fraction of a mixed number, `1 1/2`, and a factor, `(2 + 3)(4 + 1)`. */
function hasMixed(text: string, parts: readonly Part[], first: number): boolean {
  const [before, start] = [parts[first - 1], parts[first]];
  if (!before || !start || !endsValue(before)) return false;
  const between = text.slice(before.end, start.at);
  if (before.kind === 'number') return between.trim() === '';
  // No end of a remark or of an item's number, `1) 2 + 3`.
  const isFactor = between === '' || (between.trim() === '' && start.kind === 'bracket');
  return isFactor && parts.slice(0, first).some((_, from) => isClosed(parts.slice(from, first)));
}

const endsValue = (part: Part) => part.kind === 'number' || (part.kind === 'bracket' && part.bracket === ')');

/** Whether one piece may follow another. */
function follows(left: Part, right: Part | undefined): boolean {
  if (right === undefined) return endsValue(left);
  const beginsValue = right.kind === 'number' || (right.kind === 'bracket' && right.bracket === '(');
  return endsValue(left) !== beginsValue;
}

function isClosed(parts: readonly Part[]): boolean {
  let open = 0;
  for (const part of parts) {
    if (part.kind !== 'bracket') continue;
    open += part.bracket === '(' ? 1 : -1;
    if (open < 0) return false;
  }
  return open === 0;
}

const SUPERSCRIPTS = '⁰¹²³⁴⁵⁶⁷⁸⁹';

/** Replaces signs of TeX, of multiplication, of powers and of currencies by plain ones. */
export function plainSigns(step: string): string {
  return (
    step
      .replace(/\\(?:left|right)(?=[()])/g, '')
      .replace(/(?<=\d)\{,\}(?=\d)/g, ',')
      .replace(/\\(?:implies|Rightarrow|therefore|q?quad)(?![a-zA-Z])/g, '; ')
      .replace(/\\\\/g, '\n')
      .replace(
        /[⁰¹²³⁴⁵⁶⁷⁸⁹]+/g,
        (power) => `^${[...power].map((sign) => SUPERSCRIPTS.indexOf(sign)).join('')}`,
      )
      .replace(/⁻\^/g, '^-')
      .replace(/\^\{(?:(\d+)|([^{}]*))\}/g, (_, digits?: string, sum?: string) => `^${digits ?? `(${sum})`}`)
      .replace(/\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}/g, '(($1)/($2))')
      .replace(/\\(?:text(?:bf)?|math(?:rm|bf)|boxed)\{([^{}]*)\}/g, '$1')
      .replace(/\\times|\\cdot|[·⋅∙]/g, '×')
      .replace(/[€£¥₹₩₽]\s?(?=[\d.])/gu, '$$')
      .replace(/¢\s?(?=\d)/gu, ' ')
      .replace(/[€£¥₹₩₽¢]/gu, (sign) => (sign === '¢' ? ' cents ' : ' dollars '))
      .replace(/\\div/g, '÷')
      .replace(/(?<=[\d)])\s?\*\*\s?(?=[\d(])/g, '^')
      // Exponents of units: `12 cm²`.
      .replace(/(?<=\p{L})\^-?\d/gu, '')
      .replace(/\\[()[\]]|\$(?!\d)|\\(?=[$%])|\\[,;! ]|\*\*|&/g, ' ')
  );
}
