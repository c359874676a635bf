/** The kinds of planted errors: each gives a wrong computation in place of the right one. */
import { equals, type Rational } from '../../answers/rational.js';
import type { PhiloxStream } from '../../random/philox.js';
import {
  type NumberPart,
  numbersIn,
  type Operator,
  type OperatorPart,
  type Part,
  partsOf,
} from '../equations/expression.js';

/**
 * The kinds of planted errors:
 * - `slip`: the right computation with a wrong result
 * - `operand`: a number of the problem or of another line in place of the right one
 * - `operator`: another operation
 * - `relation`: `more than`, `half of`, `twice` read the wrong way round: the inverse operation
 * - `omitted`: one of several conditions left out
 * - `unit`: a conversion with the wrong factor
 * - `double_counted`: one of the numbers counted twice
 * - `skipped`: a line left out, and what it starts from used in place of its result
 * - `total`: a total where a difference is asked for, or the reverse
 */
export const PLANTED_KINDS = [
  'slip',
  'operand',
  'operator',
  'relation',
  'omitted',
  'unit',
  'double_counted',
  'skipped',
  'total',
] as const;
export type PlantedKind = (typeof PLANTED_KINDS)[number];

/** The context that a kind may use. */
export interface Site {
  readonly problem: string;
  /** The line without notes. */
  readonly line: string;
  readonly expression: string;
  readonly result: NumberPart;
  /** Results of the lines before. */
  readonly known: readonly Rational[];
  readonly draw: PhiloxStream;
}

/** All expressions of a kind for a place; empty where it does not fit there. */
export const WRONG_EXPRESSIONS: Readonly<
  Record<Exclude<PlantedKind, 'slip' | 'skipped'>, (site: Site) => readonly string[]>
> = {
  operand({ problem, expression, known, result }) {
    const numbers = numberParts(expression);
    const others = [...numbersIn(problem).map(({ value }) => value), ...known];
    return numbers.flatMap((part) =>
      others
        .filter((other) => ![...numbers, result].some(({ value }) => equals(value, other)))
        .map((other) => replaced(expression, part, written(other) ?? '')),
    );
  },

  operator: ({ expression }) =>
    operatorParts(expression).map((part) => replaced(expression, part, OTHER[part.operator])),

  relation: ({ problem, line, expression }) =>
    COMPARED.test(problem) || COMPARED.test(line) ? inverted(expression) : [],

  omitted({ expression }) {
    const parts = partsOf(expression);
    if (numberParts(expression).length < 3 || hasBrackets(parts)) return [];
    return parts.flatMap((part, i) => {
      const after = parts[i + 2];
      return part.kind === 'operator'
        ? [`${expression.slice(0, part.at).trimEnd()} ${after ? expression.slice(after.at) : ''}`.trim()]
        : [];
    });
  },

  unit({ problem, line, expression }) {
    const context = `${problem} ${line}`;
    return numberParts(expression).flatMap((part) => {
      const text = expression.slice(part.at, part.end);
      return (FACTORS[text] ?? [])
        .filter(({ units }) => units.test(context))
        .flatMap(({ wrong }) => wrong.map((factor) => replaced(expression, part, factor)));
    });
  },

  double_counted({ expression }) {
    const parts = partsOf(expression);
    const [first] = operatorParts(expression);
    if (!first || hasBrackets(parts) || !operatorParts(expression).every(isSum)) return [];
    return numberParts(expression)
      .slice(first.operator === '-' ? 1 : 0)
      .map((part) => {
        const sign = expression[part.at - 1] === '$' ? '$' : '';
        return `${expression} ${first.operator} ${sign}${expression.slice(part.at, part.end)}`;
      });
  },

  total({ problem, expression }) {
    const wrong = (from: Operator, to: string) =>
      operatorParts(expression)
        .filter(({ operator }) => operator === from)
        .map((part) => replaced(expression, part, to));
    if (DIFFERENCE.test(problem)) return wrong('-', '+');
    return TOTAL.test(problem) ? wrong('+', '-') : [];
  },
};

/** The operation that is neither the right one nor its inverse. */
const OTHER: Readonly<Record<Operator, string>> = { '+': '*', '-': '/', '*': '+', '/': '-', '^': '*' };
const INVERSE: Readonly<Record<Operator, string>> = { '+': '-', '-': '+', '*': '/', '/': '*', '^': '*' };

const COMPARED =
  /\b(?:(?:more|less|fewer|older|younger|taller|shorter|longer|higher|lower|larger|smaller|cheaper|heavier|lighter|faster|slower|further|farther)\b[^.?!]*\bthan|times as|twice|double|triple|half|thirds?|quarter|fifth)\b/iu;
const DIFFERENCE = /\b(?:how (?:many|much) (?:more|less|fewer)|difference|left|remain\w*|change)\b/iu;
const TOTAL = /\b(?:total|altogether|in all|combined|together|sum)\b/iu;

interface Factor {
  readonly units: RegExp;
  readonly wrong: readonly string[];
}

const factor = (units: RegExp, ...wrong: string[]): Factor => ({ units, wrong });

/** Factors of conversions, where the units are mentioned, and the wrong ones in their place. */
const FACTORS: Readonly<Record<string, readonly Factor[]>> = {
  '60': [factor(/\b(?:minute|second)s?\b/iu, '100', '30', '24')],
  '24': [factor(/\bhours?\b/iu, '12', '60')],
  '7': [factor(/\bweeks?\b/iu, '5', '6', '30')],
  '12': [factor(/\b(?:year|month|dozen|inch|inche)s?\b/iu, '10', '24', '52')],
  '52': [factor(/\bweeks?\b/iu, '12', '50', '48')],
  '365': [factor(/\b(?:year|day)s?\b/iu, '300', '52', '12')],
  '30': [factor(/\bmonths?\b/iu, '7', '12', '20')],
  '100': [factor(/\b(?:cents?|percent|meters?|metres?)\b|%/iu, '10', '1000')],
  '1000': [factor(/\b(?:kilo\w*|grams?|liters?|litres?|meters?)\b/iu, '100', '60')],
  '16': [factor(/\b(?:ounce|pound)s?\b/iu, '12', '10')],
  '3': [factor(/\b(?:yard)s?\b/iu, '12', '2')],
  '4': [factor(/\b(?:quart|quarter|gallon)s?\b/iu, '2', '8')],
};

function inverted(expression: string): string[] {
  return operatorParts(expression).map((part) => replaced(expression, part, INVERSE[part.operator]));
}

/**
 * Plausible wrong results: off by one or two, by ten, by a digit, by a place.
 *
 * @param text the right result as written, without a percent sign
 */
export function slips(text: string, draw: PhiloxStream): string[] {
  const plain = text.replaceAll(',', '');
  const decimals = /\.(\d+)/.exec(plain)?.[1]?.length ?? 0;
  const shifted = [1, -1, 2, -2, 10, -10].map((by) => (Number(plain) + by).toFixed(decimals));
  const at = draw.below(plain.length);
  const digit = /\d/.test(plain[at] ?? '')
    ? [`${plain.slice(0, at)}${(Number(plain[at]) + 1 + draw.below(9)) % 10}${plain.slice(at + 1)}`]
    : [];
  const place = decimals === 0 ? [`${plain}0`] : [];
  return [...shifted, ...digit, ...place].filter((wrong) => Number(wrong) > 0 && !/^0\d/.test(wrong));
}

/** A number as solutions write it: whole, or with at most two decimals; undefined of a longer one, and below 0. */
export function written({ over, under }: Rational): string | undefined {
  if (over < 0n || 100n % under !== 0n) return undefined;
  const hundredths = String((over * 100n) / under).padStart(3, '0');
  return under === 1n ? String(over) : `${hundredths.slice(0, -2)}.${hundredths.slice(-2)}`;
}

export const replaced = (text: string, { at, end }: Pick<Part, 'at' | 'end'>, by: string) =>
  text.slice(0, at) + by + text.slice(end);

const numberParts = (expression: string): NumberPart[] =>
  partsOf(expression).filter((part) => part.kind === 'number');
const operatorParts = (expression: string): OperatorPart[] =>
  partsOf(expression).filter((part) => part.kind === 'operator');
const hasBrackets = (parts: readonly Part[]) => parts.some(({ kind }) => kind === 'bracket');
const isSum = ({ operator }: OperatorPart) => operator === '+' || operator === '-';
