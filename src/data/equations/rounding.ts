/** Whether a printed number is a value, exactly or rounded. */
import { StepBudget } from '../../answers/budget.js';
import { add, equals, fraction, multiply, negative, type Rational, whole } from '../../answers/rational.js';
import { numberValue } from './expression.js';

/** Budget of steps for numbers in solutions. */
const STEPS = 5000;
const PRINTED = /^(-?)\$?([\d,]*(?:\.\d+)?)(%?)\s*(\.\.\.|…)?/;

/**
 * Whether a text begins with a value, or with the value rounded to the printed digits: 100/3 may be printed as 33, 33.3
 * and 33.33, but not as 34; 5/2 as 2 and as 3. Before `…` digits may be cut off. Percents are read with their sign or
 * without.
 *
 * @param expression that has the value: one of percents alone may have its result without a sign
 */
export function rounds(value: Rational, text: string, expression = ''): boolean {
  const [, sign, digits = '', percent, cut] = PRINTED.exec(text) ?? [];
  const budget = new StepBudget(STEPS);
  const size = numberValue(digits.replace(/,$/, ''));
  const printed = sign ? negative(size) : size;
  const decimals = /\.(\d+)/.exec(digits)?.[1]?.length ?? 0;
  const near = fraction(1n, (cut ? 1n : 2n) * 10n ** BigInt(decimals), budget);
  const isNear = (own: Rational) => {
    if (equals(own, printed)) return true;
    if (own.under === 1n) return false;
    const apart = add(own, negative(printed), budget);
    const most = add(near, negative({ ...apart, over: apart.over < 0n ? -apart.over : apart.over }), budget);
    return most.over >= 0n;
  };
  const inPercent = percent || /^[^\d]*(?:\d[\d.,]*\s?%[^\d]*)+$/.test(expression);
  return isNear(value) || (Boolean(inPercent) && isNear(multiply(value, whole(100), budget)));
}
