// Tokens to a tree: recursive descent with a bound on depth. Answers that it refuses are compared as text.
import type { StepBudget } from './budget.js';
import { Unreadable } from './cursor.js';
import { NumberReader } from './literals.js';
import { BIG_OPERATORS, FUNCTIONS, RELATIONS, SYMBOL_COMMANDS } from './notation.js';
import { multiply, parseDecimal } from './rational.js';
import { finiteSeries } from './series.js';
import { type GroupNode, type MatrixNode, type Node, quotient } from './syntax.js';
import { type TokenOptions, tokenise } from './tokens.js';
import { isUnitSign, partOfUnit } from './units.js';

const MATRICES = new Set(['matrix', 'pmatrix', 'bmatrix', 'Bmatrix', 'vmatrix', 'smallmatrix', 'array']);
/** `2020-01-31` and `1/31/2020` are no differences and quotients. */
const DATE = /^\d{4}-\d\d?-\d\d?$|^\d\d?\/\d\d?\/\d{4}$/;
/** Letters that are functions when a bracket follows at once. */
const FUNCTION_LETTERS = new Set(['f', 'g', 'F', 'G']);

/** Reads a normalised answer. Throws {@link Unreadable}, and {@link BudgetExceeded} where it is too long. */
export function parseAnswer(source: string, budget: StepBudget, options: TokenOptions): Node {
  if (DATE.test(source)) throw new Unreadable('a date');
  const parser = new Parser(tokenise(source, budget, options), budget);
  const node = parser.list();
  parser.expectEnd();
  return node;
}

class Parser extends NumberReader {
  /** Number of open bars; if any, `|` closes one. */
  private bars = 0;

  /** Statements between `,`, `;`, `and` and `or`; `a \over b` and `n \choose k`, which take in all of their group. */
  list(): Node {
    return this.nested(() => {
      const { items, alternatives } = this.items();
      const node: Node = items.length === 1 ? items[0]! : { kind: 'list', items, alternatives };
      if (this.take('\\over')) return quotient(node, this.list());
      return this.take('\\choose') ? { kind: 'call', name: 'binom', args: [node, this.list()] } : node;
    });
  }

  private items(): { items: Node[]; alternatives: boolean } {
    const items: Node[] = [];
    let alternatives = false;
    let words = '';
    do {
      const item = this.statement();
      const whole = words === 'and' ? this.joined(items.at(-1)!, item) : undefined;
      if (whole !== undefined) items[items.length - 1] = whole;
      else items.push(item);
      words = '';
    } while (
      this.takeSeparator((word) => {
        alternatives ||= word === 'or';
        words += word;
      })
    );
    return { items, alternatives };
  }

  private takeSeparator(see: (word: string) => void): boolean {
    let taken = false;
    for (;;) {
      const { kind, text } = this.next;
      const separates =
        kind === 'mark'
          ? text === ',' || text === ';'
          : kind === 'command' && ['and', 'or', '\\'].includes(text);
      if (!separates) return taken;
      see(text);
      taken = true;
      this.at++;
    }
  }

  /** Sides between relation signs. */
  private statement(): Node {
    if (['=', '\\approx'].includes(this.name())) this.at++;
    const sides = [this.side()];
    const operators: string[] = [];
    for (let sign = RELATIONS.get(this.name()); sign !== undefined; sign = RELATIONS.get(this.name())) {
      this.at++;
      operators.push(sign);
      sides.push(this.side());
    }
    return sides.length === 1 ? sides[0]! : { kind: 'relation', sides, operators };
  }

  /** Sets joined or taken away, and ratios. */
  private side(): Node {
    const parts = [this.ratio()];
    while (this.take('\\cup')) parts.push(this.ratio());
    const from: Node = parts.length === 1 ? parts[0]! : { kind: 'union', parts };
    return this.take('\\setminus') ? { kind: 'difference', from, without: this.ratio() } : from;
  }

  private ratio(): Node {
    const parts = [this.sum()];
    while (this.take(':')) parts.push(this.sum());
    return parts.length === 1 ? parts[0]! : { kind: 'ratio', parts };
  }

  private sum(): Node {
    return this.nested(() => {
      const terms = [this.term()];
      for (;;) {
        if (['+', '-', '\\pm', '\\mp'].includes(this.name())) terms.push(this.term());
        else if (this.next.kind === 'number' && unitAfter(terms.at(-1)!) !== undefined) {
          const whole = this.joined(terms.pop()!, this.term());
          if (whole === undefined) throw new Unreadable('two quantities side by side');
          terms.push(whole);
        } else return terms.length === 1 ? terms[0]! : { kind: 'sum', terms };
      }
    });
  }

  /** `5 feet 3 inches` as 63 inches; undefined where the second unit is no part of the first. */
  private joined(first: Node, second: Node): Node | undefined {
    const [whole, part] = [unitAfter(first), unitAfter(second)];
    const parts = whole && part && partOfUnit(whole.words, part.words, this.budget);
    if (parts === undefined) return undefined;
    const times: Node = { kind: 'number', value: parts, text: '' };
    const [one, two] = [first, second].map((node) => (node as ProductNode).factors.slice(0, -1));
    const terms: Node[] = [
      { kind: 'product', factors: [...one!, times] },
      { kind: 'product', factors: two! },
    ];
    const wholes = [parts, ...(whole!.wholes ?? []).map((more) => multiply(more, parts, this.budget))];
    return {
      kind: 'product',
      factors: [
        { kind: 'sum', terms },
        { ...part!, wholes },
      ],
    };
  }

  /** A product with its signs. */
  private term(): Node {
    let isNegative = false;
    let sign: string | undefined;
    for (let name = this.name(); ['+', '-', '\\pm', '\\mp'].includes(name); name = this.name()) {
      this.at++;
      if (name === '-') isNegative = !isNegative;
      else if (name !== '+') {
        if (sign !== undefined) throw new Unreadable('two signs ±');
        sign = name;
      }
    }
    const product = this.product();
    const signed: Node = isNegative ? { kind: 'negative', of: product } : product;
    return sign === undefined ? signed : { kind: 'plusminus', of: signed, flipped: sign === '\\mp' };
  }

  private product(): Node {
    const first = this.next;
    const factors: Node[] = [];
    if (first.kind === 'words') {
      this.at++;
      if (this.startsFactor()) throw new Unreadable('words before a value');
      return { kind: 'words', text: first.text };
    }
    if (first.kind === 'command' && isUnitSign(first.text)) {
      this.at++;
      factors.push({ kind: 'unit', words: first.text });
    }
    factors.push(this.factor());
    for (;;) {
      if (this.take('\\cdot') || this.take('*')) factors.push(this.factor());
      else if (this.take('/'))
        factors.push({ kind: 'inverse', of: this.unitLetter(factors) ?? this.factor() });
      else if (this.startsFactor()) {
        if (this.next.kind === 'number' && this.tokens[this.at - 1]?.kind === 'number')
          throw new Unreadable('two numbers side by side');
        const last = factors.at(-1)!;
        if (this.next.kind === 'number' && last.kind === 'unit' && !isUnitSign(last.words))
          return { kind: 'product', factors };
        factors.push(this.factor());
      } else return factors.length === 1 ? factors[0]! : { kind: 'product', factors };
    }
  }

  /** The h of `km/h`. */
  private unitLetter(factors: readonly Node[]): Node | undefined {
    const { kind, text } = this.next;
    if (kind !== 'symbol' || factors.at(-1)?.kind !== 'unit' || !/^[hsmgl]$/.test(text)) return undefined;
    this.at++;
    return { kind: 'unit', words: text };
  }

  private startsFactor(): boolean {
    const { kind, text } = this.next;
    if (kind === 'mark') return ['(', '[', '{'].includes(text) || (text === '|' && this.bars === 0);
    if (kind !== 'command') return true;
    const name = `\\${text}`;
    return !(
      RELATIONS.has(name) ||
      ['and', 'or', '}', '\\', 'cdot', 'cup', 'setminus', 'pm', 'mp', 'end', 'over', 'choose'].includes(
        text,
      ) ||
      ['rangle', 'rfloor', 'rceil', 'mid', 'dots'].includes(text)
    );
  }

  /** A primary with its suffixes: subscripts, primes, factorial, percent, degrees, exponents. */
  private factor(): Node {
    return this.nested(() => {
      let node = this.primary();
      for (;;) {
        const name = this.name();
        if (name === '!') node = { kind: 'call', name: '!', args: [node] };
        else if (name === '%' || name === '\\%') node = product(node, { kind: 'unit', words: 'percent' });
        else if (name === '\\degree') node = product(node, this.degrees());
        else if (name === '^' || name === '**') {
          this.at++;
          return { kind: 'power', base: node, exponent: this.exponent() };
        } else return node;
        this.at++;
        this.deeper();
      }
    });
  }

  /** `^\circ C` is a scale of temperature. */
  private degrees(): Node {
    const scale = this.tokens[this.at + 1];
    if (scale === undefined || !['C', 'F', 'K'].includes(scale.text))
      return { kind: 'unit', words: 'degree' };
    this.at++;
    return { kind: 'unit', words: `°${scale.text}` };
  }

  private exponent(): Node {
    if (this.take('-')) return { kind: 'negative', of: this.factor() };
    this.take('+');
    return this.factor();
  }

  private primary(): Node {
    const { kind, text } = this.next;
    if (this.at >= this.tokens.length) throw new Unreadable('the answer ends too early');
    this.at++;
    this.budget.spend();
    if (kind === 'number') return this.number(text);
    if (kind === 'symbol') return this.symbol(text);
    if (kind === 'words') return { kind: 'unit', words: text };
    if (kind === 'command') return this.command(text);
    if (text === '(' || text === '[') return this.group(text);
    if (text === '{') return this.braces();
    if (text === '|') return this.absolute();
    throw new Unreadable(`unexpected ${text}`);
  }

  private symbol(letter: string): Node {
    let name = letter;
    if (this.take('_')) name += `_${this.rawGroup()}`;
    while (this.take("'")) name += "'";
    const applied = FUNCTION_LETTERS.has(letter) && this.next.text === '(' && !this.next.spaced;
    if (!applied) return { kind: 'symbol', name };
    this.at++;
    const { items } = this.items();
    this.expect(')');
    return { kind: 'call', name: `${name}()`, args: items };
  }

  private command(name: string): Node {
    if (name === 'frac') return quotient(this.argument(), this.argument());
    if (name === 'sqrt') return this.root();
    if (name === 'binom' || name === 'choose')
      return { kind: 'call', name: 'binom', args: [this.argument(), this.argument()] };
    if (name === 'boxed' || name === 'fbox') return this.argument();
    if (name === '{') return this.set();
    if (name === 'emptyset') return { kind: 'group', open: '{', close: '}', items: [] };
    if (name === 'langle') return this.tuple('rangle');
    if (name === 'lfloor') return this.closed('floor', 'rfloor');
    if (name === 'lceil') return this.closed('ceil', 'rceil');
    if (name === 'begin') return this.environment();
    if (FUNCTIONS.has(name)) return this.functionCall(name);
    if (BIG_OPERATORS.has(name)) return this.bigOperator(name);
    if (isUnitSign(name)) return { kind: 'unit', words: name };
    if (SYMBOL_COMMANDS.has(name)) return this.symbol(`\\${name}`);
    throw new Unreadable(`unexpected \\${name}`);
  }

  /** An argument of `\frac`, `\sqrt` and so on: a group, or the next digit, letter or command. */
  protected argument(): Node {
    const { kind, text } = this.next;
    if (kind === 'number' && text.length > 1) {
      this.tokens[this.at] = { kind, text: text.slice(1), spaced: false };
      if (!/^\d\d+$/.test(text)) throw new Unreadable('not clear where the argument ends');
      return { kind: 'number', value: parseDecimal(text[0]!, this.budget), text: text[0]! };
    }
    if (kind === 'number') {
      this.at++;
      return { kind: 'number', value: parseDecimal(text, this.budget), text };
    }
    if (kind === 'mark' && text !== '{' && text !== '(') throw new Unreadable(`unexpected ${text}`);
    return this.nested(() => this.primary());
  }

  private root(): Node {
    let index = 2;
    if (this.next.text === '[') {
      this.at++;
      const { kind, text } = this.next;
      index = Number(text);
      if (kind !== 'number' || !(Number.isSafeInteger(index) && index >= 2 && index <= 100))
        throw new Unreadable('no index of a root');
      this.at++;
      this.expect(']');
    }
    // `\sqrt12` means the root of 12, although TeX prints something else.
    const of = this.next.kind === 'number' ? this.nested(() => this.primary()) : this.argument();
    return { kind: 'root', index, of };
  }

  private functionCall(name: string): Node {
    let base: Node | undefined;
    let exponent: Node | undefined;
    while (this.name() === '_' || this.name() === '^') {
      if (this.take('_')) base = this.next.text === '10' ? this.primary() : this.argument();
      else if (this.take('^')) exponent = this.exponent();
    }
    // sin^{-1} is the inverse function, not 1/sin.
    if (exponent?.kind === 'negative' && /^(sin|cos|tan)$/.test(name))
      return { kind: 'call', name: `arc${name}`, args: this.functionArguments() };
    const call: Node = {
      kind: 'call',
      name,
      args: [...this.functionArguments(), ...(base === undefined ? [] : [base])],
    };
    return exponent === undefined ? call : { kind: 'power', base: call, exponent };
  }

  /** The arguments in brackets, or the factors up to the next operator or function. */
  private functionArguments(): Node[] {
    if (this.take('(')) {
      const { items } = this.items();
      this.expect(')');
      return items;
    }
    const factors = [this.factor()];
    while (this.startsFactor() && !FUNCTIONS.has(this.next.text) && !['(', '['].includes(this.next.text))
      factors.push(this.factor());
    return [factors.length === 1 ? factors[0]! : { kind: 'product', factors }];
  }

  private bigOperator(name: string): Node {
    const limits: string[] = [];
    while (this.name() === '_' || this.name() === '^') {
      const mark = this.next.text;
      this.at++;
      limits.push(mark + this.rawGroup());
    }
    const body = this.nested(() => this.product());
    const whole: Node = { kind: 'call', name: `\\${name}${limits.sort().join('')}`, args: [body] };
    return finiteSeries(name, limits, body, this.budget) ?? whole;
  }

  private group(open: '(' | '['): Node {
    const bars = this.bars;
    this.bars = 0;
    const { items } = this.items();
    this.bars = bars;
    const close = this.next.text;
    if (close !== ')' && close !== ']') throw new Unreadable('a bracket is not closed');
    this.at++;
    const matches = (open === '(') === (close === ')');
    if (items.length === 1 && matches) return items[0]!;
    return { kind: 'group', open, close, items } satisfies GroupNode;
  }

  private tuple(end: string): Node {
    const { items } = this.items();
    this.expect(`\\${end}`);
    return { kind: 'group', open: '(', close: ')', items };
  }

  private set(): Node {
    if (this.take('\\}')) return { kind: 'group', open: '{', close: '}', items: [] };
    const { items } = this.items();
    this.expect('\\}');
    return { kind: 'group', open: '{', close: '}', items };
  }

  private braces(): Node {
    const bars = this.bars;
    this.bars = 0;
    const node = this.list();
    this.bars = bars;
    this.expect('}');
    return node;
  }

  private absolute(): Node {
    this.bars++;
    const of = this.sum();
    this.bars--;
    this.expect('|');
    return { kind: 'call', name: 'abs', args: [of] };
  }

  private closed(name: string, end: string): Node {
    const of = this.sum();
    this.expect(`\\${end}`);
    return { kind: 'call', name, args: [of] };
  }

  private environment(): Node {
    const name = this.rawGroup();
    if (!MATRICES.has(name)) throw new Unreadable(`unknown environment ${name}`);
    if (name === 'array' && this.next.text === '{') this.rawGroup();
    const rows: Node[][] = [[]];
    while (this.name() !== '\\end') {
      if (this.take('\\\\')) rows.push([]);
      else if (!this.take('&')) rows.at(-1)!.push(this.statement());
    }
    this.at++;
    this.rawGroup();
    if (rows.at(-1)!.length === 0) rows.pop();
    return { kind: 'matrix', bars: name === 'vmatrix', rows } satisfies MatrixNode;
  }
}

type ProductNode = Extract<Node, { readonly kind: 'product' }>;
type UnitNode = Extract<Node, { readonly kind: 'unit' }>;

/** The unit that a number ends with. */
function unitAfter(node: Node): UnitNode | undefined {
  const last = node.kind === 'product' && node.factors.length > 1 ? node.factors.at(-1)! : undefined;
  return last?.kind === 'unit' ? last : undefined;
}

function product(value: Node, unit: Node): Node {
  return { kind: 'product', factors: [value, unit] };
}
