/** How the equations of a solution are written. */
import type { PhiloxStream } from '../../random/philox.js';
import { type Calculation, type Operator, written } from './numbers.js';

export interface Style {
  readonly signs: Readonly<Record<Operator, string>>;
  /** Around operators, and around `=`. */
  readonly space: string;
  readonly equalSpace: string;
  /** Before every number, or before the result alone. */
  readonly currency: 'none' | 'all' | 'result';
  readonly commas: boolean;
  /** After every number: ` apples`. */
  readonly unit: 'none' | 'all' | 'result';
  readonly equals: string;
}

export function drawStyle(draw: PhiloxStream): Style {
  const space = draw.uniform() < 0.6 ? ' ' : '';
  const words = draw.uniform() < 0.06;
  const money = draw.uniform();
  const unit = draw.uniform();
  return {
    signs: words
      ? { '+': 'plus', '-': 'minus', '×': 'times', '÷': 'divided by' }
      : {
          '+': '+',
          '-': draw.pick(['-', '-', '-', '−']),
          '×': draw.pick(['×', '*', '*', 'x', '·', '\\times']),
          '÷': draw.pick(['÷', '/', '/', '/', ':', '\\div']),
        },
    space: words ? ' ' : space,
    equalSpace: words || draw.uniform() < 0.15 ? ' ' : space,
    currency: money < 0.75 ? 'none' : money < 0.87 ? 'all' : 'result',
    commas: draw.uniform() < 0.1,
    unit: unit < 0.85 ? 'none' : unit < 0.93 ? 'all' : 'result',
    equals: words ? draw.pick(['is', 'equals', 'gives', 'makes']) : '=',
  };
}

/** Both sides of an equation, for sentences that put something between. */
export function sides(
  { terms, ops, bracket, result }: Calculation,
  { signs, space, currency, commas, unit }: Style,
  thing: string,
): { readonly left: string; readonly right: string } {
  const money = currency !== 'none';
  const plain = (value: number) => written(value, { money, commas });
  const number = (value: number) =>
    `${currency === 'all' ? '$' : ''}${plain(value)}${unit === 'all' ? ` ${thing}` : ''}`;
  const isWord = (sign: string) => /^[\\a-z]/.test(sign);
  const left = terms.map(number).reduce((text, term, i) => {
    const sign = signs[ops[i - 1] as Operator];
    const gap = isWord(sign) ? ' ' : space;
    const before = bracket && i === 1 ? `(${text}` : text;
    return `${before}${gap}${sign}${gap}${term}${bracket && i === 1 ? ')' : ''}`;
  });
  const right = `${money ? '$' : ''}${plain(result)}${unit === 'none' ? '' : ` ${thing}`}`;
  return { left, right };
}
