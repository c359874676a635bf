// Statements, parsed as Jinja does, with its extension for loop controls and transformers' tag `generation`.
import { unsupported } from './errors.js';
import { expression, filtering, tupleOrOne } from './expressions.js';
import { tokens } from './lexer.js';
import type { Expression, Filtering, Signature, Statement, Target } from './syntax.js';
import { TokenStream } from './token-stream.js';

/** @throws JinjaError that names the line */
export function parsed(source: string): readonly Statement[] {
  const stream = new TokenStream(tokens(source));
  return block(stream, []);
}

/** Statements up to one of the tags, whose name is then the current token. */
function block(stream: TokenStream, ends: readonly string[]): Statement[] {
  const body: Statement[] = [];
  while (!stream.is('eof')) {
    if (stream.is('data')) body.push({ kind: 'text', text: stream.next().value });
    else if (stream.skip('output')) {
      body.push({ kind: 'print', value: tupleOrOne(stream) });
      stream.expect('endoutput');
    } else {
      stream.expect('begin');
      if (ends.length > 0 && stream.is('name', ...ends)) return body;
      body.push(...statement(stream));
      stream.expect('end');
    }
  }
  if (ends.length > 0) throw stream.wrong(`expected ${ends.join(' or ')}, found the end of the template`);
  return body;
}

/** The statements of a tag's body; the closing tag's name is read. */
function body(
  stream: TokenStream,
  ...ends: readonly string[]
): { readonly body: Statement[]; readonly end: string } {
  stream.skip('op', ':');
  stream.expect('end');
  return { body: block(stream, ends), end: stream.next().value };
}

type Parser = (stream: TokenStream) => Statement | readonly Statement[];

const STATEMENTS: Readonly<Record<string, Parser>> = {
  if: condition,
  for: loop,
  set: assignment,
  macro: (stream) => {
    const name = stream.expect('name').value;
    return { kind: 'macro', name, signature: signature(stream), body: body(stream, 'endmacro').body };
  },
  call: (stream) => {
    const parameters = stream.is('op', '(') ? signature(stream) : { names: [], defaults: [] };
    const call = expression(stream);
    if (call.kind !== 'call') throw stream.wrong('expected a call');
    return { kind: 'call', call, signature: parameters, body: body(stream, 'endcall').body };
  },
  filter: (stream) => {
    const first = filtering(stream);
    return { kind: 'filter', filters: [first, ...filters(stream)], body: body(stream, 'endfilter').body };
  },
  generation: (stream) => ({ kind: 'body', body: body(stream, 'endgeneration').body }),
  break: () => ({ kind: 'break' }),
  continue: () => ({ kind: 'continue' }),
};

function statement(stream: TokenStream): readonly Statement[] {
  const { value } = stream.expect('name');
  const parser = Object.hasOwn(STATEMENTS, value) ? STATEMENTS[value] : undefined;
  if (parser === undefined)
    throw unsupported(`the tag '${value.slice(0, 40)}' (line ${stream.current.line})`);
  const found = parser(stream);
  return Array.isArray(found) ? found : [found as Statement];
}

function condition(stream: TokenStream): Statement {
  const branches: [Expression, Statement[]][] = [];
  while (true) {
    const test = tupleOrOne(stream, false);
    const found = body(stream, 'elif', 'else', 'endif');
    branches.push([test, found.body]);
    if (found.end === 'elif') continue;
    return { kind: 'if', branches, otherwise: found.end === 'else' ? body(stream, 'endif').body : [] };
  }
}

function loop(stream: TokenStream): Statement {
  const to = target(stream, false);
  stream.expect('name', 'in');
  const over = tupleOrOne(stream, false);
  const where = stream.skip('name', 'if') ? expression(stream) : undefined;
  if (stream.is('name', 'recursive')) throw unsupported(`a recursive loop (line ${stream.current.line})`);
  const found = body(stream, 'endfor', 'else');
  const otherwise = found.end === 'else' ? body(stream, 'endfor').body : [];
  return { kind: 'for', target: to, over, where, body: found.body, otherwise };
}

function assignment(stream: TokenStream): Statement {
  const to = target(stream, true);
  if (stream.skip('op', '=')) return { kind: 'set', target: to, value: tupleOrOne(stream) };
  return { kind: 'capture', target: to, filters: filters(stream), body: body(stream, 'endset').body };
}

function filters(stream: TokenStream): Filtering[] {
  const all: Filtering[] = [];
  while (stream.skip('op', '|')) all.push(filtering(stream));
  return all;
}

function target(stream: TokenStream, hasMembers: boolean): Target {
  const items: Target[] = [];
  let isTuple = false;
  do {
    if (items.length > 0 && !stream.is('name') && !stream.is('op', '(')) break;
    items.push(oneTarget(stream, hasMembers));
    isTuple ||= stream.is('op', ',');
  } while (stream.skip('op', ','));
  return isTuple ? { kind: 'targets', items } : (items[0] as Target);
}

function oneTarget(stream: TokenStream, hasMembers: boolean): Target {
  if (stream.skip('op', '(')) {
    const inside = target(stream, hasMembers);
    stream.expect('op', ')');
    return inside;
  }
  const name = stream.expect('name').value;
  if (/^(true|false|none)$/i.test(name)) throw stream.wrong(`cannot assign to ${name}`);
  if (hasMembers && stream.skip('op', '.'))
    return { kind: 'member', name, attribute: stream.expect('name').value };
  return { kind: 'name', name };
}

function signature(stream: TokenStream): Signature {
  const names: string[] = [];
  const defaults: Expression[] = [];
  stream.expect('op', '(');
  while (!stream.is('op', ')')) {
    if (names.length > 0) stream.expect('op', ',');
    names.push(stream.expect('name').value);
    if (stream.skip('op', '=')) defaults.push(expression(stream));
    else if (defaults.length > 0)
      throw stream.wrong('a parameter without a default follows one with a default');
  }
  stream.expect('op', ')');
  return { names, defaults };
}
