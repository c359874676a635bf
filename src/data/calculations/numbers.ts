/** Calculations with exact results. Values are whole numbers of hundredths, so that decimals add up exactly. */
import type { PhiloxStream } from '../../random/philox.js';

export type Operator = '+' | '-' | '×' | '÷';

/** `terms[0] ops[0] terms[1] …`, with the precedence of × and ÷, or with a bracket around the first two. */
export interface Calculation {
  readonly terms: readonly number[];
  readonly ops: readonly Operator[];
  readonly bracket: boolean;
  readonly result: number;
}

/** How large numbers are, and whether they have decimals. */
export interface Scale {
  readonly most: number;
  readonly decimals: boolean;
}

const ONE = 100;

/** Larger results do not occur. */
const LARGEST = 1_000_000 * ONE;

/** Common numbers that a problem need not tell. */
const CONSTANTS = [2, 2, 3, 4, 5, 7, 10, 10, 12, 24, 30, 52, 60, 100, 100];

export function drawScale(draw: PhiloxStream): Scale {
  const at = draw.uniform();
  const most = at < 0.2 ? 20 : at < 0.65 ? 100 : at < 0.92 ? 1000 : 10_000;
  return { most, decimals: draw.uniform() < 0.15 };
}

/** A number as a problem tells it: small ones are more frequent than large ones. */
export function drawNumber(draw: PhiloxStream, { most, decimals }: Scale): number {
  const least = draw.uniform() < 0.5 ? 1 : most / 20;
  const whole = Math.floor(least + draw.uniform() * (most - least)) + 1;
  const isRound = whole > 20 && draw.uniform() < 0.2;
  const value = isRound ? Math.round(whole / 10) * 10 : whole;
  if (!decimals || draw.uniform() < 0.4) return value * ONE;
  return value * ONE + draw.pick([50, 25, 75, 10 * (1 + draw.below(9)), 1 + draw.below(99)]);
}

/** What is computed from values at hand and new ones; undefined where nothing exact came out. */
export function drawCalculation(
  draw: PhiloxStream,
  scale: Scale,
  old: () => number,
): { readonly calculation: Calculation; readonly told: readonly number[] } | undefined {
  const told: number[] = [];
  const fresh = (value: number) => {
    told.push(value);
    return value;
  };
  const number = () => fresh(drawNumber(draw, scale));
  const factor = () => {
    const at = draw.uniform();
    if (at < 0.25) return draw.pick(CONSTANTS) * ONE;
    return fresh((at < 0.75 ? 2 + draw.below(11) : 2 + draw.below(98)) * ONE);
  };
  const kind = draw.uniform();
  const either = (a: number, b: number): [number, number] => (draw.below(2) === 0 ? [a, b] : [b, a]);
  let terms: number[];
  let ops: Operator[];
  let bracket = false;
  if (kind < 0.27) {
    terms = either(old(), number());
    ops = ['+'];
  } else if (kind < 0.52) {
    const [a, b] = [old(), number()];
    terms = [Math.max(a, b), Math.min(a, b)];
    ops = ['-'];
  } else if (kind < 0.74) {
    terms = either(old(), factor());
    ops = ['×'];
  } else if (kind < 0.88) {
    // Half of the divisions are of what is there, if it can be divided; the others are made to come out.
    const by = factor();
    const value = old();
    const fits = value % (by / ONE) === 0;
    terms = fits ? [value, by] : [fresh(((drawNumber(draw, scale) / 4) | 0) * (by / ONE)), by];
    ops = ['÷'];
  } else {
    terms = [old(), draw.below(2) === 0 ? number() : factor(), number()];
    ops = [draw.pick(['+', '-', '×'] as const), draw.pick(['+', '+', '-'] as const)];
    if (draw.below(4) === 0) {
      bracket = true;
      ops = [draw.pick(['+', '-'] as const), '×'];
      terms = [terms[0] as number, terms[1] as number, (2 + draw.below(9)) * ONE];
    }
  }
  const result = evaluate({ terms, ops, bracket });
  if (result === undefined) return undefined;
  if (isLong({ terms, ops }) && draw.uniform() < 0.8) return undefined;
  return { calculation: { terms, ops, bracket, result }, told };
}

/** Long multiplication and division: few people write it in one line, and it takes a larger model. */
const isLong = ({ terms, ops }: Pick<Calculation, 'terms' | 'ops'>) =>
  ops.some(isProduct) &&
  terms.filter((term) => String(term / ONE).replace(/0+$/, '').length > 1).length > 1 &&
  terms.some((term) => term >= 100 * ONE || term % ONE !== 0);

/** Undefined where the result is negative, too large, or has more than two decimals. */
export function evaluate({ terms, ops, bracket }: Omit<Calculation, 'result'>): number | undefined {
  let values = [...terms];
  let left = [...ops];
  const reduce = (i: number) => {
    const [a, b] = [values[i] as number, values[i + 1] as number];
    values = [...values.slice(0, i), apply(left[i] as Operator, a, b), ...values.slice(i + 2)];
    left = left.filter((_, k) => k !== i);
  };
  if (bracket) reduce(0);
  for (let i = left.findIndex(isProduct); i >= 0; i = left.findIndex(isProduct)) reduce(i);
  while (left.length > 0) reduce(0);
  const [result = Number.NaN] = values;
  return Number.isSafeInteger(result) && result >= 0 && result <= LARGEST ? result : undefined;
}

const isProduct = (op: Operator) => op === '×' || op === '÷';

function apply(op: Operator, a: number, b: number): number {
  if (op === '+') return a + b;
  if (op === '-') return a - b;
  return op === '×' ? (a * b) / ONE : b === 0 ? Number.NaN : (a * ONE) / b;
}

/** `1234.5` or `1,234.50`. */
export function written(value: number, { money = false, commas = false } = {}): string {
  const cents = value % ONE;
  const whole = String(Math.floor(value / ONE));
  const grouped = commas ? whole.replace(/\B(?=(\d{3})+$)/g, ',') : whole;
  if (cents === 0) return grouped;
  const decimals = String(cents).padStart(2, '0');
  return `${grouped}.${money ? decimals : decimals.replace(/0$/, '')}`;
}
