// Statements, carried out.
import { bind, needText } from './arguments.js';
import type { Budget } from './budget.js';
import { JinjaError, unsupported } from './errors.js';
import { Evaluator } from './evaluator.js';
import { bounded, MAX_TEXT } from './operators.js';
import { str } from './print.js';
import { Scope } from './scope.js';
import type { Expression, Filtering, Signature, Statement, Target } from './syntax.js';
import { Callable, Dict, elements, Namespace, Tuple, truth, Undefined, type Value } from './values.js';

type Loop = Statement & { readonly kind: 'for' };
type Leaving = 'break' | 'continue' | undefined;

/** The text that statements write. */
class Output {
  private readonly parts: string[] = [];
  private length = 0;

  write(text: string): void {
    this.length += text.length;
    if (this.length > MAX_TEXT) throw new JinjaError(`it writes ${this.length} characters`);
    this.parts.push(text);
  }

  get text(): string {
    return this.parts.join('');
  }
}

export class Executor {
  private readonly evaluator: Evaluator;

  constructor(private readonly budget: Budget) {
    this.evaluator = new Evaluator(budget);
  }

  /** The text of the statements. */
  text(body: readonly Statement[], scope: Scope): string {
    const output = new Output();
    if (this.run(body, scope, output)) throw new JinjaError('break or continue outside of a loop');
    return output.text;
  }

  private run(body: readonly Statement[], scope: Scope, output: Output): Leaving {
    for (const statement of body) {
      this.budget.spend();
      const leaving = this.one(statement, scope, output);
      if (leaving) return leaving;
    }
    return undefined;
  }

  private one(node: Statement, scope: Scope, output: Output): Leaving {
    switch (node.kind) {
      case 'text':
        output.write(node.text);
        return undefined;
      case 'print':
        output.write(str(this.value(node.value, scope)));
        return undefined;
      case 'set':
        this.assign(node.target, this.value(node.value, scope), scope);
        return undefined;
      case 'capture': {
        const text = this.text(node.body, new Scope(scope));
        this.assign(node.target, this.filtered(text, node.filters, scope), scope);
        return undefined;
      }
      case 'if': {
        const branch = node.branches.find(([test]) => truth(this.value(test, scope)));
        return this.run(branch?.[1] ?? node.otherwise, scope, output);
      }
      case 'for':
        this.loop(node, scope, output);
        return undefined;
      case 'break':
      case 'continue':
        return node.kind;
      case 'macro':
        scope.set(node.name, this.macro(node.name, node.signature, node.body, scope));
        return undefined;
      case 'call': {
        const caller = this.macro('caller', node.signature, node.body, scope);
        const { args, named } = this.evaluator.given(node.call.given, scope);
        const callee = this.value(node.call.of, scope);
        output.write(
          str(this.evaluator.call(callee, { args, named: new Map([...named, ['caller', caller]]) })),
        );
        return undefined;
      }
      case 'filter':
        output.write(str(this.filtered(this.text(node.body, new Scope(scope)), node.filters, scope)));
        return undefined;
      case 'body':
        output.write(this.text(node.body, new Scope(scope)));
        return undefined;
    }
  }

  private value(of: Expression, scope: Scope): Value {
    return this.evaluator.value(of, scope);
  }

  private filtered(text: string, filters: readonly Filtering[], scope: Scope): Value {
    return filters.reduce<Value>((value, filter) => this.evaluator.filter(value, filter, scope), text);
  }

  private assign(target: Target, value: Value, scope: Scope): void {
    if (target.kind === 'name') {
      scope.set(target.name, value);
    } else if (target.kind === 'member') {
      const namespace = scope.get(target.name);
      if (!(namespace instanceof Namespace))
        throw new JinjaError('cannot assign attribute on non-namespace object');
      checkMember(target.attribute);
      namespace.values.set(target.attribute, value);
    } else {
      const values = elements(value);
      if (values.length !== target.items.length)
        throw new JinjaError(`expected ${target.items.length} values to unpack, found ${values.length}`);
      for (const [i, each] of target.items.entries()) this.assign(each, values[i] as Value, scope);
    }
  }

  private loop(node: Loop, scope: Scope, output: Output): void {
    const { where } = node;
    const all = elements(this.value(node.over, scope));
    const items = where
      ? all.filter((each) => {
          const inner = new Scope(scope);
          this.assign(node.target, each, inner);
          return truth(this.value(where, inner));
        })
      : all;
    // One pass to its end keeps `else` away in Jinja; one that is left by `break` or `continue` does not.
    let isDone = false;
    for (const [i, each] of items.entries()) {
      this.budget.spend();
      const inner = new Scope(scope);
      inner.set('loop', loopVariable(items, i));
      this.assign(node.target, each, inner);
      const leaving = this.run(node.body, inner, output);
      if (leaving === 'break') break;
      isDone ||= leaving === undefined;
    }
    if (!isDone) this.run(node.otherwise, new Scope(scope), output);
  }

  private macro(
    name: string,
    { names, defaults }: Signature,
    body: readonly Statement[],
    scope: Scope,
  ): Callable {
    const takesMore = mentions(body, 'varargs');
    const takesNames = mentions(body, 'kwargs');
    const takesCaller = mentions(body, 'caller');
    return new Callable(name, ({ args, named }) => {
      const inner = new Scope(scope);
      const rest = new Map(named);
      const caller = rest.get('caller');
      if (takesCaller && !names.includes('caller')) {
        inner.set('caller', caller ?? new Undefined("'caller'"));
        rest.delete('caller');
      }
      const known = new Map([...rest].filter(([each]) => names.includes(each)));
      const others = [...rest].filter(([each]) => !names.includes(each));
      if (takesNames) inner.set('kwargs', new Dict(others));
      else if (others[0]) throw new JinjaError(`macro '${name}' takes no keyword argument '${others[0][0]}'`);
      if (takesMore) inner.set('varargs', new Tuple(args.slice(names.length)));
      const values = bind(
        name,
        { args: takesMore ? args.slice(0, names.length) : args, named: known },
        names,
      );
      for (const [i, parameter] of names.entries()) {
        const otherwise = defaults[i - names.length + defaults.length];
        const value = values[i] ?? (values[i] === null ? null : otherwise && this.value(otherwise, inner));
        inner.set(parameter, value === undefined ? new Undefined(`parameter '${parameter}'`) : value);
      }
      return bounded(this.text(body, inner));
    });
  }
}

/** The variable `loop` in the pass at an index of `items`. */
function loopVariable(items: readonly Value[], at: number): Callable {
  const attributes: Readonly<Record<string, () => Value>> = {
    index: () => BigInt(at + 1),
    index0: () => BigInt(at),
    revindex: () => BigInt(items.length - at),
    revindex0: () => BigInt(items.length - at - 1),
    first: () => at === 0,
    last: () => at === items.length - 1,
    length: () => BigInt(items.length),
    previtem: () => (at > 0 ? (items[at - 1] as Value) : new Undefined('the item before the first')),
    nextitem: () =>
      at + 1 < items.length ? (items[at + 1] as Value) : new Undefined('the item after the last'),
    cycle: () =>
      new Callable('cycle', ({ args }) => {
        if (args.length === 0) throw new JinjaError('no items for cycling given');
        return args[at % args.length] as Value;
      }),
  };
  const refuse = () => {
    throw new JinjaError('the loop is not recursive');
  };
  return new Callable('loop', refuse, (name) => {
    if (/^(changed|depth0?)$/.test(name)) throw unsupported(`loop.${name}`);
    return Object.hasOwn(attributes, name) ? attributes[name]?.() : undefined;
  });
}

/** Namespaces have no attributes that begin with an underscore. */
export function checkMember(name: string): void {
  if (needText(name, 'namespace').startsWith('_'))
    throw new JinjaError(`a namespace cannot store the attribute '${name.slice(0, 40)}'`);
}

/** Whether statements read a variable. */
function mentions(node: unknown, name: string): boolean {
  if (typeof node !== 'object' || node === null) return false;
  const { kind, name: own } = node as { kind?: unknown; name?: unknown };
  return (kind === 'name' && own === name) || Object.values(node).some((each) => mentions(each, name));
}
