// Polynomials with exact coefficients over atoms: variables, π, i, square roots of primes, and anything that is not
// computed. Exponents may be negative.
import type { StepBudget } from './budget.js';
import { add, isZero, multiply, negative, ONE, power, type Rational, whole } from './rational.js';

export interface Atom {
  /** Equal for equal atoms. */
  readonly key: string;
  /**
   * free: a variable, a unit, π or e, between which no polynomial identity holds; imaginary: i² = -1; radical: the
   * index-th root of a whole number; function: a function of other values, which only sampling can compare.
   */
  readonly kind: 'free' | 'imaginary' | 'radical' | 'function';
  /** Index and radicand of a radical. */
  readonly index?: number;
  readonly radicand?: bigint;
  /** Name and arguments of a function. */
  readonly name?: string;
  readonly args?: readonly Ratio[];
}

export interface Term {
  readonly coefficient: Rational;
  /** Atoms with exponents other than 0, in the order of atoms. */
  readonly powers: readonly (readonly [atom: number, exponent: number])[];
}

/** Terms by the key of their powers; none is zero. */
export type Polynomial = ReadonlyMap<string, Term>;

export interface Ratio {
  readonly over: Polynomial;
  readonly under: Polynomial;
}

const MAX_EXPONENT = 1e9;

export class Polynomials {
  private readonly atoms: Atom[] = [];
  private readonly ids = new Map<string, number>();
  readonly one: Polynomial;

  constructor(readonly budget: StepBudget) {
    this.one = this.constant(ONE);
  }

  atom(id: number): Atom {
    return this.atoms[id]!;
  }

  /** The polynomial that is the atom alone. */
  ofAtom(atom: Atom, exponent = 1): Polynomial {
    let id = this.ids.get(atom.key);
    if (id === undefined) {
      id = this.atoms.push(atom) - 1;
      this.ids.set(atom.key, id);
    }
    return this.ofTerms([{ coefficient: ONE, powers: [[id, exponent]] }]);
  }

  constant(value: Rational): Polynomial {
    return this.ofTerms([{ coefficient: value, powers: [] }]);
  }

  add(a: Polynomial, b: Polynomial): Polynomial {
    return this.ofTerms([...a.values(), ...b.values()]);
  }

  negative(a: Polynomial): Polynomial {
    return new Map([...a].map(([key, term]) => [key, { ...term, coefficient: negative(term.coefficient) }]));
  }

  multiply(a: Polynomial, b: Polynomial): Polynomial {
    const sum = new Map<string, Term>();
    for (const left of a.values()) {
      for (const right of b.values()) {
        const coefficient = multiply(left.coefficient, right.coefficient, this.budget);
        this.addTerm(sum, { coefficient, powers: merged(left.powers, right.powers) });
      }
    }
    return sum;
  }

  /** A single term to a whole power, negative ones too. */
  termPower({ coefficient, powers }: Term, exponent: number): Polynomial {
    if (powers.some(([, e]) => Math.abs(e * exponent) > MAX_EXPONENT))
      throw new RangeError('exponent too large');
    return this.ofTerms([
      {
        coefficient: power(coefficient, exponent, this.budget),
        powers: powers.map(([atom, e]) => [atom, e * exponent] as const),
      },
    ]);
  }

  ofTerms(terms: Iterable<Term>): Polynomial {
    const sum = new Map<string, Term>();
    for (const term of terms) this.addTerm(sum, term);
    return sum;
  }

  /** A text that is the same for equal polynomials. */
  key(a: Polynomial): string {
    const terms = [...a].map(([key, { coefficient }]) => `${coefficient.over}/${coefficient.under}*${key}`);
    this.budget.spend(terms.length);
    return terms.sort().join('+');
  }

  private addTerm(sum: Map<string, Term>, term: Term): void {
    this.budget.spend(1 + term.powers.length);
    const reduced = this.reduced(term);
    if (isZero(reduced.coefficient)) return;
    const key = reduced.powers.map(([atom, exponent]) => `${atom}^${exponent}`).join(' ');
    const found = sum.get(key);
    if (found === undefined) {
      sum.set(key, reduced);
      return;
    }
    const coefficient = add(found.coefficient, reduced.coefficient, this.budget);
    if (isZero(coefficient)) sum.delete(key);
    else sum.set(key, { coefficient, powers: reduced.powers });
  }

  /** Reduces i to the power of 0 or 1, and radicals below their index. */
  private reduced(term: Term): Term {
    let { coefficient } = term;
    const powers: (readonly [number, number])[] = [];
    for (const [id, exponent] of term.powers) {
      const { kind, index = 2, radicand = -1n } = this.atoms[id]!;
      let left = exponent;
      if (kind === 'imaginary' || kind === 'radical') {
        const times = Math.floor(exponent / index);
        left = exponent - times * index;
        if (times !== 0)
          coefficient = multiply(coefficient, power(whole(radicand), times, this.budget), this.budget);
      }
      if (left !== 0) powers.push([id, left]);
    }
    return { coefficient, powers };
  }
}

function merged(a: Term['powers'], b: Term['powers']): Term['powers'] {
  const powers: (readonly [number, number])[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const [left, right] = [a[i], b[j]];
    if (right === undefined || (left !== undefined && left[0] < right[0])) {
      powers.push(left!);
      i++;
    } else if (left === undefined || right[0] < left[0]) {
      powers.push(right);
      j++;
    } else {
      powers.push([left[0], left[1] + right[1]]);
      i++;
      j++;
    }
  }
  return powers;
}
