// Expressions, parsed with Jinja's precedence.
import type { Call, Expression, Filtering } from './syntax.js';
import type { TokenStream } from './token-stream.js';

/** An expression; several with commas between them are a tuple. */
export function tupleOrOne(stream: TokenStream, hasCondition = true, mayBeEmpty = false): Expression {
  const items: Expression[] = [];
  let isTuple = false;
  while (true) {
    if (items.length > 0) stream.expect('op', ',');
    if (endsTuple(stream)) break;
    items.push(expression(stream, hasCondition));
    if (!stream.is('op', ',')) break;
    isTuple = true;
  }
  if (isTuple) return { kind: 'tuple', items };
  if (items[0] !== undefined) return items[0];
  if (!mayBeEmpty) throw stream.wrong(`expected an expression, found ${stream.found}`);
  return { kind: 'tuple', items };
}

function endsTuple(stream: TokenStream): boolean {
  return stream.is('end') || stream.is('endoutput') || stream.is('op', ')') || stream.is('name', 'recursive');
}

export function expression(stream: TokenStream, hasCondition = true): Expression {
  let then = or(stream);
  if (!hasCondition) return then;
  while (stream.skip('name', 'if')) {
    const test = or(stream);
    const otherwise = stream.skip('name', 'else') ? expression(stream) : undefined;
    then = { kind: 'condition', test, then, otherwise };
  }
  return then;
}

function or(stream: TokenStream): Expression {
  let left = and(stream);
  while (stream.skip('name', 'or')) left = { kind: 'or', left, right: and(stream) };
  return left;
}

function and(stream: TokenStream): Expression {
  let left = not(stream);
  while (stream.skip('name', 'and')) left = { kind: 'and', left, right: not(stream) };
  return left;
}

function not(stream: TokenStream): Expression {
  return stream.skip('name', 'not') ? { kind: 'not', of: not(stream) } : comparison(stream);
}

function comparison(stream: TokenStream): Expression {
  const first = sum(stream);
  const rest: [string, Expression][] = [];
  while (true) {
    if (stream.is('op', '==', '!=', '<', '<=', '>', '>=')) {
      const operator = stream.next().value;
      rest.push([operator, sum(stream)]);
    } else if (stream.skip('name', 'in')) rest.push(['in', sum(stream)]);
    else if (
      stream.is('name', 'not') &&
      stream.following.type === 'name' &&
      stream.following.value === 'in'
    ) {
      stream.next();
      stream.next();
      rest.push(['not in', sum(stream)]);
    } else break;
  }
  return rest.length === 0 ? first : { kind: 'compare', first, rest };
}

function binary(next: (stream: TokenStream) => Expression, ...operators: readonly string[]) {
  return (stream: TokenStream): Expression => {
    let left = next(stream);
    while (stream.is('op', ...operators))
      left = { kind: 'binary', operator: stream.next().value, left, right: next(stream) };
    return left;
  };
}

const power = binary((stream) => unary(stream), '**');
const product = binary(power, '*', '/', '//', '%');
const sum = binary(concat, '+', '-');

function concat(stream: TokenStream): Expression {
  const first = product(stream);
  const items = [first];
  while (stream.skip('op', '~')) items.push(product(stream));
  return items.length === 1 ? first : { kind: 'concat', items };
}

function unary(stream: TokenStream, hasFilter = true): Expression {
  const node: Expression = stream.skip('op', '-')
    ? { kind: 'negative', of: unary(stream, false) }
    : stream.skip('op', '+')
      ? { kind: 'positive', of: unary(stream, false) }
      : primary(stream);
  const whole = postfix(stream, node);
  return hasFilter ? filtered(stream, whole) : whole;
}

const CONSTANTS = new Map<string, null | boolean>([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
]);

function primary(stream: TokenStream): Expression {
  const { type, value } = stream.current;
  if (type === 'name') {
    stream.next();
    const constant = CONSTANTS.get(value);
    return constant === undefined ? { kind: 'name', name: value } : { kind: 'constant', value: constant };
  }
  if (type === 'text') {
    let text = '';
    while (stream.is('text')) text += stream.next().value;
    return { kind: 'constant', value: text };
  }
  if (type === 'int' || type === 'float') {
    const digits = stream.next().value.replaceAll('_', '');
    return { kind: 'constant', value: type === 'int' ? BigInt(digits) : Number(digits) };
  }
  if (stream.skip('op', '(')) {
    const inside = tupleOrOne(stream, true, true);
    stream.expect('op', ')');
    return inside;
  }
  if (stream.skip('op', '[')) return { kind: 'list', items: listed(stream, ']', () => expression(stream)) };
  if (stream.skip('op', '{')) {
    const pair = (): readonly [Expression, Expression] => {
      const key = expression(stream);
      stream.expect('op', ':');
      return [key, expression(stream)];
    };
    return { kind: 'dict', pairs: listed(stream, '}', pair) };
  }
  throw stream.wrong(`unexpected ${stream.found}`);
}

function listed<T>(stream: TokenStream, close: string, item: () => T): T[] {
  const items: T[] = [];
  while (!stream.is('op', close)) {
    if (items.length > 0) stream.expect('op', ',');
    if (stream.is('op', close)) break;
    items.push(item());
  }
  stream.expect('op', close);
  return items;
}

function postfix(stream: TokenStream, start: Expression): Expression {
  let node = start;
  while (true) {
    if (stream.skip('op', '.')) {
      const { type, value } = stream.current;
      if (type !== 'name' && type !== 'int') throw stream.wrong(`expected a name, found ${stream.found}`);
      stream.next();
      node =
        type === 'name'
          ? { kind: 'attribute', of: node, name: value }
          : { kind: 'item', of: node, at: { kind: 'constant', value: BigInt(value) } };
    } else if (stream.skip('op', '[')) node = subscript(stream, node);
    else if (stream.is('op', '(')) node = { kind: 'call', of: node, given: call(stream) };
    else return node;
  }
}

function subscript(stream: TokenStream, of: Expression): Expression {
  const bounds: (Expression | undefined)[] = [undefined, undefined, undefined];
  let parts = 0;
  while (!stream.is('op', ']')) {
    if (stream.skip('op', ':')) {
      if (++parts > 2) throw stream.wrong("unexpected ':'");
      continue;
    }
    bounds[parts] = expression(stream);
    if (!stream.is('op', ':', ']')) throw stream.wrong(`unexpected ${stream.found}`);
  }
  stream.expect('op', ']');
  if (parts > 0) return { kind: 'slice', of, bounds };
  const [at] = bounds;
  if (at === undefined) throw stream.wrong("unexpected ']'");
  return { kind: 'item', of, at };
}

function filtered(stream: TokenStream, start: Expression): Expression {
  let node = start;
  while (true) {
    if (stream.skip('op', '|')) node = { kind: 'filter', of: node, ...filtering(stream) };
    else if (stream.skip('name', 'is')) node = test(stream, node);
    else if (stream.is('op', '(')) node = { kind: 'call', of: node, given: call(stream) };
    else return node;
  }
}

const NOTHING: Call = { args: [], named: [] };

/** The name of a filter and its arguments. */
export function filtering(stream: TokenStream): Filtering {
  const name = stream.expect('name').value;
  return { name, given: stream.is('op', '(') ? call(stream) : NOTHING };
}

function test(stream: TokenStream, of: Expression): Expression {
  const isNegated = stream.skip('name', 'not');
  const name = stream.expect('name').value;
  let given = NOTHING;
  if (stream.is('op', '(')) given = call(stream);
  else if (beginsArgument(stream)) {
    if (stream.is('name', 'is')) throw stream.wrong('tests cannot be chained with is');
    given = { args: [postfix(stream, primary(stream))], named: [] };
  }
  const node: Expression = { kind: 'test', of, name, given };
  return isNegated ? { kind: 'not', of: node } : node;
}

function beginsArgument(stream: TokenStream): boolean {
  if (stream.is('name')) return !stream.is('name', 'else', 'or', 'and');
  return stream.is('text') || stream.is('int') || stream.is('float') || stream.is('op', '[', '{');
}

function call(stream: TokenStream): Call {
  const args: Expression[] = [];
  const named: [string, Expression][] = [];
  let spread: Expression | undefined;
  let spreadNamed: Expression | undefined;
  stream.expect('op', '(');
  while (!stream.is('op', ')')) {
    if (args.length + named.length > 0 || spread || spreadNamed) stream.expect('op', ',');
    if (stream.is('op', ')')) break;
    if (stream.skip('op', '*')) spread = expression(stream);
    else if (stream.skip('op', '**')) spreadNamed = expression(stream);
    else if (stream.is('name') && stream.following.type === 'op' && stream.following.value === '=') {
      const { value } = stream.next();
      stream.next();
      named.push([value, expression(stream)]);
    } else if (named.length > 0 || spread || spreadNamed)
      throw stream.wrong('an argument without a name follows one with a name');
    else args.push(expression(stream));
  }
  stream.expect('op', ')');
  return { args, named, spread, spreadNamed };
}
