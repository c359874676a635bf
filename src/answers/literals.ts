// Numbers as they are written: decimals, repeating ones, mixed numbers, digits in another base.
import { Cursor, Unreadable } from './cursor.js';
import { add, fraction, parseDecimal, wholeNumber } from './rational.js';
import type { Node, NumberNode } from './syntax.js';

export abstract class NumberReader extends Cursor {
  /** The arguments of `\\frac`. */
  protected abstract argument(): Node;

  protected number(text: string): Node {
    const isDecimal = text.includes('.');
    if (isDecimal && /^\\(?:overline|bar|dot)\{/.test(this.next.text))
      return this.repeating(text, this.period());
    if (text.endsWith('.') && this.next.text === '(' && !this.next.spaced) {
      const [, digits, close] = this.tokens.slice(this.at, this.at + 3);
      if (digits?.kind !== 'number' || !/^\d+$/.test(digits.text) || close?.text !== ')')
        throw new Unreadable('what repeats is not digits');
      this.at += 3;
      return this.repeating(text, digits.text);
    }
    if (text === '.') throw new Unreadable('a full stop without digits');
    if (this.take('_')) return { kind: 'based', digits: text, base: this.rawGroup() };
    const value: NumberNode = { kind: 'number', value: parseDecimal(text, this.budget), text };
    return isDecimal ? value : (this.mixed(value) ?? value);
  }

  /** The digits of `\overline{36}`, of `\dot{3}`, or from one dotted digit to the next: `\dot{1}4285\dot{7}`. */
  private period(): string {
    const marked = () => /^\\(overline|bar|dot)\{(\d+)\}$/.exec(this.next.text);
    const first = marked();
    if (first === null) throw new Unreadable('what repeats is not digits');
    this.at++;
    let digits = first[2]!;
    if (first[1] !== 'dot') return digits;
    const [middle, last] = [this.tokens[this.at], this.tokens[this.at + 1]];
    if (middle?.kind === 'number' && /^\d+$/.test(middle.text) && last?.text.startsWith('\\dot{')) {
      digits += middle.text;
      this.at++;
    }
    const end = marked();
    if (end === null || end[1] !== 'dot') return digits;
    this.at++;
    return digits + end[2]!;
  }

  /** 0.1\overline{6} = 0.1 + 6/90. */
  private repeating(text: string, period: string): Node {
    const places = text.length - text.indexOf('.') - 1;
    if (places + period.length > 1000) throw new Unreadable('too many digits');
    const under = (10n ** BigInt(period.length) - 1n) * 10n ** BigInt(places);
    const tail = fraction(BigInt(period), under, this.budget);
    return { kind: 'number', value: add(parseDecimal(text, this.budget), tail, this.budget), text: '' };
  }

  /** `1\frac{4}{5}` and `3 1/2`: a whole number and a fraction of whole numbers. */
  private mixed(wholePart: NumberNode): Node | undefined {
    const start = this.at;
    let parts: (Node | undefined)[] = [];
    if (this.take('\\frac')) parts = [this.argument(), this.argument()];
    else if (this.next.kind === 'number' && this.next.spaced && this.tokens[this.at + 1]?.text === '/') {
      const [over, , under] = this.tokens.slice(this.at, this.at + 3);
      this.at += 3;
      if (under?.kind === 'number')
        parts = [over!, under].map((token) => ({
          kind: 'number',
          value: parseDecimal(token.text, this.budget),
          text: token.text,
        }));
    }
    const [over, under] = parts.map((node) =>
      node?.kind === 'number' ? wholeNumber(node.value) : undefined,
    );
    if (over !== undefined && under !== undefined) {
      const value = fraction(BigInt(over), BigInt(under), this.budget);
      return { kind: 'number', value: add(wholePart.value, value, this.budget), text: '' };
    }
    this.at = start;
    return undefined;
  }
}
