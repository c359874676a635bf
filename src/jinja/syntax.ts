// The syntax tree of a template.
import type { Value } from './values.js';

export interface Call {
  readonly args: readonly Expression[];
  readonly named: readonly (readonly [string, Expression])[];
  /** `*args` and `**kwargs`. */
  readonly spread?: Expression | undefined;
  readonly spreadNamed?: Expression | undefined;
}

export type Expression =
  | { readonly kind: 'constant'; readonly value: Value }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'list' | 'tuple' | 'concat'; readonly items: readonly Expression[] }
  | { readonly kind: 'dict'; readonly pairs: readonly (readonly [Expression, Expression])[] }
  | { readonly kind: 'attribute'; readonly of: Expression; readonly name: string }
  | { readonly kind: 'item'; readonly of: Expression; readonly at: Expression }
  | {
      readonly kind: 'slice';
      readonly of: Expression;
      readonly bounds: readonly (Expression | undefined)[];
    }
  | { readonly kind: 'call'; readonly of: Expression; readonly given: Call }
  | { readonly kind: 'filter'; readonly of: Expression; readonly name: string; readonly given: Call }
  | { readonly kind: 'test'; readonly of: Expression; readonly name: string; readonly given: Call }
  | { readonly kind: 'not' | 'negative' | 'positive'; readonly of: Expression }
  | { readonly kind: 'and' | 'or'; readonly left: Expression; readonly right: Expression }
  | {
      readonly kind: 'binary';
      readonly operator: string;
      readonly left: Expression;
      readonly right: Expression;
    }
  | {
      readonly kind: 'compare';
      readonly first: Expression;
      readonly rest: readonly (readonly [string, Expression])[];
    }
  | {
      readonly kind: 'condition';
      readonly test: Expression;
      readonly then: Expression;
      readonly otherwise?: Expression | undefined;
    };

/** The target of an assignment: a name, an attribute of a namespace, or several. */
export type Target =
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'member'; readonly name: string; readonly attribute: string }
  | { readonly kind: 'targets'; readonly items: readonly Target[] };

export interface Signature {
  readonly names: readonly string[];
  /** The last names. */
  readonly defaults: readonly Expression[];
}

export type Statement =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'print'; readonly value: Expression }
  | { readonly kind: 'set'; readonly target: Target; readonly value: Expression }
  | {
      readonly kind: 'capture';
      readonly target: Target;
      readonly filters: readonly Filtering[];
      readonly body: readonly Statement[];
    }
  | {
      readonly kind: 'if';
      readonly branches: readonly (readonly [Expression, readonly Statement[]])[];
      readonly otherwise: readonly Statement[];
    }
  | {
      readonly kind: 'for';
      readonly target: Target;
      readonly over: Expression;
      readonly where?: Expression | undefined;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
    }
  | { readonly kind: 'break' | 'continue' }
  | {
      readonly kind: 'macro';
      readonly name: string;
      readonly signature: Signature;
      readonly body: readonly Statement[];
    }
  | {
      readonly kind: 'call';
      readonly call: Expression & { readonly kind: 'call' };
      readonly signature: Signature;
      readonly body: readonly Statement[];
    }
  | { readonly kind: 'filter'; readonly filters: readonly Filtering[]; readonly body: readonly Statement[] }
  | { readonly kind: 'body'; readonly body: readonly Statement[] };

export interface Filtering {
  readonly name: string;
  readonly given: Call;
}
