/** The calculator as a tool: what it is called, what it reads and what it answers. */
import type { Rational } from '../../answers/rational.js';
import { exactValue, partsOf } from './expression.js';

export const CALCULATOR = 'calculator';

/** The calculator as chat templates read tools. */
export const CALCULATOR_TOOL = {
  type: 'function',
  function: {
    name: CALCULATOR,
    description:
      'Computes an expression of numbers, + - * / ^ and brackets, or the rest of a division, exactly.',
    parameters: {
      type: 'object',
      properties: { expression: { type: 'string', description: 'such as (12 + 7) / 2, or 19 mod 3' } },
      required: ['expression'],
    },
  },
};

/** The value of an expression as a decimal or, where that does not end, as a fraction; else a sentence. */
export function computed(expression: string): string {
  const [, dividend, divisor] = /^\s*(\d{1,18})\s*mod\s*(\d{1,18})\s*$/.exec(expression) ?? [];
  if (dividend !== undefined && divisor !== undefined && /[1-9]/.test(divisor))
    return String(BigInt(dividend) % BigInt(divisor));
  // Words would count for nothing, and a calculator that passes over them would compute something else.
  if (!/^[\d\s.,+\-*/^()×÷−]+$/.test(expression))
    return `cannot compute ${JSON.stringify(expression.slice(0, 60))}: expected numbers, + - * / ^ and brackets, or a mod b`;
  const value = exactValue(partsOf(expression));
  return value === undefined ? `cannot compute ${JSON.stringify(expression.slice(0, 60))}` : decimal(value);
}

function decimal({ over, under }: Rational): string {
  let [twos, fives, rest] = [0, 0, under];
  for (; rest % 2n === 0n; rest /= 2n) twos++;
  for (; rest % 5n === 0n; rest /= 5n) fives++;
  if (rest !== 1n) return `${over}/${under}`;
  const places = Math.max(twos, fives);
  const digits = `${(over < 0n ? -over : over) * (10n ** BigInt(places) / under)}`.padStart(places + 1, '0');
  const text = places === 0 ? digits : `${digits.slice(0, -places)}.${digits.slice(-places)}`;
  return `${over < 0n ? '-' : ''}${text}`;
}
