/** Later lines of a solution, computed again from a wrong value. */
import { equals, isZero, type Rational } from '../../answers/rational.js';
import { equationsIn } from '../equations/equations.js';
import { exactValue, type NumberPart, numbersIn, partsOf } from '../equations/expression.js';
import { written } from './kinds.js';

/** Values that became others. */
export interface Changed {
  readonly from: Rational;
  readonly to: string;
}

export interface Carried {
  /** The text without notes for calculators. */
  readonly text: string;
  /** Whether it names a changed value. */
  readonly isChanged: boolean;
  /** All changed results, those of this line included. */
  readonly changed: readonly Changed[];
}

/**
 * A line with changed values in place of the old ones, and with all results that follow from them. Undefined where a
 * result would be implausible (negative, zero, with more than two decimals), and where an equation of the line did not
 * hold.
 */
export function carried(line: string, before: readonly Changed[]): Carried | undefined {
  const { text, equations } = equationsIn(line);
  const changed = [...before];
  const renamed = (part: string): { readonly text: string; readonly isChanged: boolean } => {
    const found = numbersIn(part).flatMap((number) => {
      const to = newest(changed, number)?.to;
      return to === undefined ? [] : [{ number, to }];
    });
    return { text: spliced(part, found), isChanged: found.length > 0 };
  };
  let out = '';
  let from = 0;
  let isChanged = false;
  const take = (part: string) => {
    const own = renamed(part);
    isChanged ||= own.isChanged;
    out += own.text;
    return own;
  };
  for (const { at, expression, result, holds } of equations) {
    take(text.slice(from, at ?? result.at));
    const own = renamed(expression);
    if (at !== undefined) {
      out += own.text;
      out += text.slice(at + expression.length, result.at);
    }
    from = result.end;
    if (!own.isChanged) {
      out += text.slice(result.at, result.end);
      continue;
    }
    isChanged = true;
    const value = holds ? exactValue(partsOf(own.text)) : undefined;
    const isPercent = text.slice(result.at, result.end).endsWith('%');
    const to = value && !isZero(value) && !isPercent ? written(value) : undefined;
    if (to === undefined) return undefined;
    out += to;
    changed.push({ from: result.value, to });
  }
  take(text.slice(from));
  return { text: out, isChanged, changed };
}

const newest = (changed: readonly Changed[], { value }: NumberPart) =>
  changed.findLast(({ from }) => equals(from, value));

function spliced(
  text: string,
  found: readonly { readonly number: NumberPart; readonly to: string }[],
): string {
  let out = text;
  for (const { number, to } of found.toReversed()) out = out.slice(0, number.at) + to + out.slice(number.end);
  return out;
}
