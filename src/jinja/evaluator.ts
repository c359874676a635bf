// Values of expressions.
import { attribute, item } from './attributes.js';
import type { Budget } from './budget.js';
import { JinjaError, unsupported } from './errors.js';
import { filterNamed } from './filters.js';
import { arithmetic, compare, concatenated, contains, equal, sliced } from './operators.js';
import type { Scope } from './scope.js';
import type { Call, Expression, Filtering } from './syntax.js';
import { TESTS } from './tests.js';
import {
  type Arguments,
  Callable,
  Dict,
  elements,
  isInt,
  isText,
  Tuple,
  textOf,
  truth,
  typeName,
  Undefined,
  type Value,
} from './values.js';

/** Evaluates expressions in scopes; every step and every character of a text that is made costs of the budget. */
export class Evaluator {
  constructor(private readonly budget: Budget) {}

  value(of: Expression, scope: Scope): Value {
    this.budget.spend();
    const result = this.of(of, scope);
    if (typeof result === 'string') this.budget.spend(result.length >> 6);
    return result;
  }

  private of(node: Expression, scope: Scope): Value {
    switch (node.kind) {
      case 'constant':
        return node.value;
      case 'name':
        return scope.get(node.name) ?? missing(scope.get(node.name), node.name);
      case 'list':
        return node.items.map((each) => this.value(each, scope));
      case 'tuple':
        return new Tuple(node.items.map((each) => this.value(each, scope)));
      case 'concat':
        return concatenated(node.items.map((each) => this.value(each, scope)));
      case 'dict':
        return new Dict(
          node.pairs.map(([key, value]) => [this.value(key, scope), this.value(value, scope)] as const),
        );
      case 'attribute':
        return attribute(this.value(node.of, scope), node.name);
      case 'item':
        return item(this.value(node.of, scope), this.value(node.at, scope));
      case 'slice': {
        const of = this.value(node.of, scope);
        return sliced(
          of,
          node.bounds.map((bound) => bound && this.value(bound, scope)),
        );
      }
      case 'call':
        return this.call(this.value(node.of, scope), this.given(node.given, scope));
      case 'filter':
        return this.filter(this.value(node.of, scope), node, scope);
      case 'test': {
        const test = Object.hasOwn(TESTS, node.name) ? TESTS[node.name] : undefined;
        if (test === undefined) throw unsupported(`the test '${node.name.slice(0, 40)}'`);
        return test(this.value(node.of, scope), this.given(node.given, scope));
      }
      case 'not':
        return !truth(this.value(node.of, scope));
      case 'negative':
        return negative(this.value(node.of, scope));
      case 'positive':
        return positive(this.value(node.of, scope));
      case 'and':
      case 'or': {
        const left = this.value(node.left, scope);
        return truth(left) === (node.kind === 'or') ? left : this.value(node.right, scope);
      }
      case 'binary':
        return arithmetic(node.operator, this.value(node.left, scope), this.value(node.right, scope));
      case 'compare':
        return this.compare(node.first, node.rest, scope);
      case 'condition':
        if (truth(this.value(node.test, scope))) return this.value(node.then, scope);
        return node.otherwise ? this.value(node.otherwise, scope) : new Undefined('a value without else');
    }
  }

  private compare(
    first: Expression,
    rest: readonly (readonly [string, Expression])[],
    scope: Scope,
  ): boolean {
    let left = this.value(first, scope);
    for (const [operator, expression] of rest) {
      const right = this.value(expression, scope);
      if (!holds(operator, left, right)) return false;
      left = right;
    }
    return true;
  }

  /** The arguments of a call, with those that `*` and `**` spread. */
  given(call: Call, scope: Scope): Arguments {
    const args = call.args.map((each) => this.value(each, scope));
    const named = new Map(call.named.map(([name, each]) => [name, this.value(each, scope)] as const));
    if (call.spread) args.push(...elements(this.value(call.spread, scope)));
    const spread = call.spreadNamed && this.value(call.spreadNamed, scope);
    if (spread === undefined) return { args, named };
    if (!(spread instanceof Dict)) throw new JinjaError(`** expects a dict, found ${typeName(spread)}`);
    for (const [key, value] of spread.pairs()) {
      if (!isText(key)) throw new JinjaError('keywords must be strings');
      if (named.has(textOf(key)))
        throw new JinjaError(`multiple values for keyword argument '${textOf(key)}'`);
      named.set(textOf(key), value);
    }
    return { args, named };
  }

  call(callee: Value, given: Arguments): Value {
    if (callee instanceof Undefined) throw callee.error;
    if (!(callee instanceof Callable)) throw new JinjaError(`'${typeName(callee)}' object is not callable`);
    return callee.call(given);
  }

  filter(value: Value, { name, given }: Filtering, scope: Scope): Value {
    return filterNamed(name)(value, this.given(given, scope));
  }
}

function missing(found: Value | undefined, name: string): Value {
  return found === null ? null : new Undefined(`'${name.slice(0, 60)}'`);
}

function holds(operator: string, left: Value, right: Value): boolean {
  switch (operator) {
    case '==':
      return equal(left, right);
    case '!=':
      return !equal(left, right);
    case 'in':
      return contains(right, left);
    case 'not in':
      return !contains(right, left);
    case '<':
      return compare(left, right, operator) < 0;
    case '<=':
      return compare(left, right, operator) <= 0;
    case '>':
      return compare(left, right, operator) > 0;
    default:
      return compare(left, right, operator) >= 0;
  }
}

function negative(value: Value): Value {
  if (isInt(value)) return -BigInt(value);
  if (typeof value === 'number') return -value;
  throw value instanceof Undefined
    ? value.error
    : new JinjaError(`bad operand type for unary -: '${typeName(value)}'`);
}

function positive(value: Value): Value {
  if (isInt(value)) return BigInt(value);
  if (typeof value === 'number') return value;
  throw value instanceof Undefined
    ? value.error
    : new JinjaError(`bad operand type for unary +: '${typeName(value)}'`);
}
