// Converts a tree to an exact value: a quotient of two polynomials. Whole powers, roots of numbers, i, percent,
// degrees, units and determinants are computed; other functions become atoms.

import type { StepBudget } from './budget.js';
import { type Atom, type Polynomial, Polynomials, type Ratio, type Term } from './polynomial.js';
import { rootOfWhole } from './radical.js';
import * as rational from './rational.js';
import { NotExact, type Rational } from './rational.js';
import { isZeroAtSamples } from './sampling.js';
import type { Node } from './syntax.js';
import { unitOf } from './units.js';

/** A power of a sum is multiplied out up to this many terms. */
const MAX_TERMS = 1500;
const MAX_FACTORIAL = 500;
/** A binomial coefficient of an expression is multiplied out up to this many factors. */
const MAX_CHOSEN = 12;
/** Rows of a determinant that is expanded. */
const MAX_ROWS = 6;

/** Functions of several numbers, whose arguments may be in braces. */
const CHOOSES = new Set(['max', 'min', 'gcd', 'lcm']);

export class Algebra {
  readonly polynomials: Polynomials;
  /** Whether sampling had to decide anything. */
  sampled = false;
  /** Whether a function or operator that is not computed took part. */
  opaque = false;

  constructor(readonly budget: StepBudget) {
    this.polynomials = new Polynomials(budget);
  }

  /** The value of a tree. Throws {@link NotExact} where it is not a number or expression, or is undefined. */
  value(node: Node): Ratio {
    this.budget.spend();
    switch (node.kind) {
      case 'number':
        return this.constant(node.value);
      case 'symbol':
        return this.symbol(node.name);
      case 'sum':
        return node.terms.map((term) => this.finite(term)).reduce((a, b) => this.add(a, b));
      case 'product':
        return node.factors.map((factor) => this.finite(factor)).reduce((a, b) => this.multiply(a, b));
      case 'negative':
        return this.negative(this.value(node.of));
      case 'inverse':
        return this.inverse(this.finite(node.of));
      case 'power':
        return this.power(this.finite(node.base), this.finite(node.exponent));
      case 'root':
        return this.root(this.finite(node.of), node.index);
      case 'call':
        return this.call(node.name, node.args);
      case 'unit':
        return this.unit(node.words);
      case 'based':
        return this.free(`digits ${node.digits.replace(/^0+(?=.)/, '')} base ${node.base}`);
      case 'matrix':
        if (node.bars) return this.determinant(node.rows);
        throw new NotExact('a matrix is no number');
      default:
        throw new NotExact(`a ${node.kind} is no number`);
    }
  }

  constant(value: Rational): Ratio {
    return this.whole(this.polynomials.constant(value));
  }

  subtract(a: Ratio, b: Ratio): Ratio {
    return this.add(a, this.negative(b));
  }

  negative({ over, under }: Ratio): Ratio {
    return { over: this.polynomials.negative(over), under };
  }

  multiply(a: Ratio, b: Ratio): Ratio {
    const { polynomials } = this;
    return {
      over: polynomials.multiply(a.over, b.over),
      under: isOne(b.under) ? a.under : polynomials.multiply(a.under, b.under),
    };
  }

  /** A key that is equal for equal polynomials; for quotients only if both are written alike. */
  key({ over, under }: Ratio): string {
    return `(${this.polynomials.key(over)})/(${this.polynomials.key(under)})`;
  }

  /** The rational number that a value is, if it is one. */
  rational({ over, under }: Ratio): Rational | undefined {
    if (!isOne(under) || over.size > 1) return undefined;
    const [term] = over.values();
    if (term === undefined) return rational.ZERO;
    return term.powers.length === 0 ? term.coefficient : undefined;
  }

  private add(a: Ratio, b: Ratio): Ratio {
    const { polynomials } = this;
    const isCommon = a.under === b.under || polynomials.key(a.under) === polynomials.key(b.under);
    if (isCommon) return { over: polynomials.add(a.over, b.over), under: a.under };
    return {
      over: polynomials.add(polynomials.multiply(a.over, b.under), polynomials.multiply(b.over, a.under)),
      under: polynomials.multiply(a.under, b.under),
    };
  }

  /** The value of a part of an expression. Nothing is computed with infinity: ∞ - ∞ and 0·∞ are no numbers. */
  private finite(node: Node): Ratio {
    const inner = node.kind === 'negative' ? node.of : node;
    if (inner.kind === 'symbol' && inner.name === '\\infty') throw new NotExact('infinity is no number');
    return this.value(node);
  }

  private inverse({ over, under }: Ratio): Ratio {
    const [term] = over.values();
    if (term === undefined || this.isHiddenZero(over)) throw new NotExact('division by zero');
    if (over.size > 1) return { over: under, under: over };
    return this.whole(this.polynomials.multiply(under, this.polynomials.termPower(term, -1)));
  }

  /** Whether functions make a zero that no exact form shows, as in 1/\sin 0. */
  private isHiddenZero(over: Polynomial): boolean {
    const hasFunction = [...over.values()].some(({ powers }) =>
      powers.some(([id]) => this.polynomials.atom(id).kind === 'function'),
    );
    return hasFunction && isZeroAtSamples(this, this.whole(over));
  }

  private power(base: Ratio, exponent: Ratio): Ratio {
    const constant = this.rational(exponent);
    const isWhole = constant !== undefined && constant.under === 1n;
    if (isWhole && base.over.size === 0 && constant.over <= 0n)
      throw new NotExact('0 to the power of 0 or less');
    const times = constant === undefined ? undefined : rational.wholeNumber(rational.whole(constant.over));
    if (constant === undefined || times === undefined || constant.under > 100n)
      return this.functionOf('power', [base, exponent]);
    if (!isWhole)
      return this.power(this.root(base, Number(constant.under)), this.constant(rational.whole(times)));
    try {
      return this.wholePower(base, times) ?? this.functionOf('power', [base, exponent]);
    } catch (error) {
      // A power too long to compute becomes an atom.
      if (error instanceof NotExact || error instanceof RangeError)
        return this.functionOf('power', [base, exponent]);
      throw error;
    }
  }

  private wholePower(base: Ratio, exponent: number): Ratio | undefined {
    const [term] = base.over.values();
    if (term === undefined) return base;
    const { polynomials } = this;
    if (base.over.size === 1 && isOne(base.under)) return this.whole(polynomials.termPower(term, exponent));
    const times = Math.abs(exponent);
    const terms = Math.max(base.over.size, base.under.size);
    if (times > 64 || manyTerms(terms, times)) return undefined;
    const raise = (polynomial: Polynomial) => {
      let result = polynomials.one;
      for (let i = 0; i < times; i++) result = polynomials.multiply(result, polynomial);
      return result;
    };
    const raised = { over: raise(base.over), under: raise(base.under) };
    return exponent < 0 ? this.inverse(raised) : raised;
  }

  private root(of: Ratio, index: number): Ratio {
    const [term] = of.over.values();
    if (term === undefined) return of;
    if (of.over.size > 1 || !isOne(of.under)) return this.functionOf(`root ${index}`, [of]);
    const { coefficient, powers } = term;
    const isNegative = coefficient.over < 0n;
    if (isNegative && (powers.length > 0 || (index !== 2 && index % 2 === 0)))
      return this.functionOf(`root ${index}`, [of]);
    // The root of a/b is the root of a·b^(index-1), over b.
    const size = isNegative ? -coefficient.over : coefficient.over;
    const scaled = rational.power(rational.whole(coefficient.under), index - 1, this.budget).over * size;
    const { factor, radicals } = rootOfWhole(scaled, index, this.budget);
    const outside = rational.fraction(factor, coefficient.under, this.budget);
    let result = this.constant(isNegative && index % 2 === 1 ? rational.negative(outside) : outside);
    for (const radical of radicals)
      result = this.multiply(result, this.whole(this.polynomials.ofAtom(radical.atom, radical.exponent)));
    if (isNegative && index === 2) result = this.multiply(result, this.symbol('i'));
    if (powers.length === 0) return result;
    const rest: Term = { coefficient: rational.ONE, powers };
    return this.multiply(
      result,
      this.functionOf(`root ${index}`, [this.whole(this.polynomials.ofTerms([rest]))]),
    );
  }

  private symbol(name: string): Ratio {
    if (name === 'i') return this.atom({ key: 'i', kind: 'imaginary' });
    if (name === '\\infty') return this.functionOf('infinity', []);
    return this.free(name);
  }

  private call(name: string, nodes: readonly Node[]): Ratio {
    const [inside] = nodes;
    // Bars around a matrix and `\det` before it mean its determinant.
    if (inside?.kind === 'matrix' && (name === 'abs' || name === 'det')) return this.determinant(inside.rows);
    const items = CHOOSES.has(name) && inside?.kind === 'group' ? inside.items : nodes;
    const args = items.map((node) => this.finite(node));
    const [first] = args;
    if (first === undefined) return this.functionOf(name, []);
    const isZero = first.over.size === 0;
    if (isZero && LOGARITHMS.has(name)) throw new NotExact('a logarithm of zero');
    const one = this.constant(rational.ONE);
    const over = (a: Ratio, b: Ratio) => this.multiply(a, this.inverse(b));
    const f = (inner: string) => this.functionOf(inner, [first]);
    switch (name) {
      case 'tan':
        return over(f('sin'), f('cos'));
      case 'cot':
        return over(f('cos'), f('sin'));
      case 'sec':
        return over(one, f('cos'));
      case 'csc':
        return over(one, f('sin'));
      case 'exp':
        return this.power(this.free('e'), first);
      case 'cbrt':
        return this.root(first, 3);
      case 'binom':
        return this.wholeCall(name, args) ?? this.choose(args) ?? this.functionOf(name, args);
      case 'lg':
      case 'log':
        return args.length === 2 ? over(f('ln'), this.functionOf('ln', [args[1]!])) : f('log');
      default:
        return this.wholeCall(name, args) ?? this.functionOf(name, args);
    }
  }

  /** The largest or smallest of rational numbers, or the divisor or multiple of whole ones. */
  private chosen(name: string, values: readonly (Rational | undefined)[]): Ratio | undefined {
    const known = values.filter((value) => value !== undefined);
    if (known.length < values.length) return undefined;
    if (name === 'max' || name === 'min') {
      const least = (a: Rational, b: Rational) =>
        a.over * b.under < b.over * a.under === (name === 'min') ? a : b;
      return this.constant(known.reduce(least));
    }
    if (known.some(({ under }) => under !== 1n)) return undefined;
    const divisor = (a: bigint, b: bigint): bigint => {
      this.budget.spend();
      return b === 0n ? a : divisor(b, a % b);
    };
    const size = (a: bigint) => (a < 0n ? -a : a);
    const whole = known.map(({ over }) => size(over));
    if (name === 'gcd') return this.constant(rational.whole(whole.reduce(divisor)));
    return this.constant(
      rational.whole(whole.reduce((a, b) => (a * b === 0n ? 0n : (a / divisor(a, b)) * b))),
    );
  }

  /** Functions of whole numbers, and of rational ones where they need no more. */
  private wholeCall(name: string, args: readonly Ratio[]): Ratio | undefined {
    const values = args.map((arg) => this.rational(arg));
    const [first, second] = values;
    if (first === undefined) return undefined;
    if (CHOOSES.has(name)) return this.chosen(name, values);
    if (name === 'abs') return this.constant(first.over < 0n ? rational.negative(first) : first);
    if (name === 'floor' || name === 'ceil') {
      const rest = ((first.over % first.under) + first.under) % first.under;
      const floor = (first.over - rest) / first.under;
      return this.constant(rational.whole(name === 'ceil' && rest > 0n ? floor + 1n : floor));
    }
    const n = rational.wholeNumber(first);
    if (name === '!' && n !== undefined && n < 0) throw new NotExact('a factorial below zero');
    if (n === undefined || n < 0 || n > MAX_FACTORIAL) return undefined;
    this.budget.spend(n);
    if (name === '!') return this.constant(rational.whole(product(1, n)));
    const k = second === undefined ? undefined : rational.wholeNumber(second);
    if (name !== 'binom' || k === undefined || k < 0) return undefined;
    return this.constant(rational.whole(k > n ? 0n : product(n - k + 1, n) / product(1, k)));
  }

  /** `n` over a whole `k` as a polynomial: n(n − 1)…(n − k + 1) / k!. */
  private choose([n, under]: readonly Ratio[]): Ratio | undefined {
    const below = under && this.rational(under);
    const k = below && rational.wholeNumber(below);
    if (n === undefined || k === undefined || k < 0 || k > MAX_CHOSEN) return undefined;
    let result = this.constant(rational.fraction(1n, product(1, k), this.budget));
    for (let i = 0; i < k; i++)
      result = this.multiply(result, this.subtract(n, this.constant(rational.whole(BigInt(i)))));
    return result;
  }

  /** Determinant by expansion along the first row. */
  private determinant(rows: readonly (readonly Node[])[]): Ratio {
    if (rows.length > MAX_ROWS || rows.length === 0 || rows.some((row) => row.length !== rows.length))
      throw new NotExact('no determinant of a few rows');
    const values = rows.map((row) => row.map((entry) => this.finite(entry)));
    const minor = (row: number, columns: readonly number[]): Ratio => {
      const entries = values[row] ?? [];
      return columns
        .map((column, i) => {
          const others = columns.filter((other) => other !== column);
          const product =
            others.length === 0 ? entries[column]! : this.multiply(entries[column]!, minor(row + 1, others));
          return i % 2 === 0 ? product : this.negative(product);
        })
        .reduce((a, b) => this.add(a, b));
    };
    return minor(
      0,
      values.map((_, i) => i),
    );
  }

  private unit(words: string): Ratio {
    const { factor, pi, bases } = unitOf(words, this.budget);
    let value = this.constant(factor);
    if (pi) value = this.multiply(value, this.free('\\pi'));
    for (const [base, exponent] of bases) {
      const unit = this.polynomials.ofAtom({ key: `unit ${base}`, kind: 'free' }, exponent);
      value = this.multiply(value, this.whole(unit));
    }
    return value;
  }

  private free(key: string): Ratio {
    return this.atom({ key, kind: 'free' });
  }

  private functionOf(name: string, args: readonly Ratio[]): Ratio {
    const key = `${name}(${args.map((arg) => this.key(arg)).join(',')})`;
    this.budget.spend(key.length >> 4);
    return this.atom({ key, kind: 'function', name, args });
  }

  private atom(atom: Atom): Ratio {
    return this.whole(this.polynomials.ofAtom(atom));
  }

  private whole(over: Polynomial): Ratio {
    return { over, under: this.polynomials.one };
  }
}

const LOGARITHMS = new Set(['ln', 'log', 'lg']);

/** Exactly the polynomial 1. */
function isOne(polynomial: Polynomial): boolean {
  const [term] = polynomial.values();
  return (
    polynomial.size === 1 && term!.powers.length === 0 && rational.equals(term!.coefficient, rational.ONE)
  );
}

/** Whether a sum of `terms` terms to a power may have more than {@link MAX_TERMS}. */
function manyTerms(terms: number, times: number): boolean {
  let count = 1;
  for (let i = 1; i < terms && count <= MAX_TERMS; i++) count *= (times + i) / i;
  return count > MAX_TERMS;
}

function product(from: number, to: number): bigint {
  let result = 1n;
  for (let i = from; i <= to; i++) result *= BigInt(i);
  return result;
}
