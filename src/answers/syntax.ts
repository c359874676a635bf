// The syntax tree of an answer. Subtraction, division and fractions have no node of their own: a - b/c is
// sum [a, negative (product [b, inverse c])], so that long chains stay flat.
import type { Rational } from './rational.js';

export type Node =
  | NumberNode
  | { readonly kind: 'symbol'; readonly name: string }
  | { readonly kind: 'sum'; readonly terms: readonly Node[] }
  | { readonly kind: 'product'; readonly factors: readonly Node[] }
  | { readonly kind: 'negative'; readonly of: Node }
  | { readonly kind: 'inverse'; readonly of: Node }
  | { readonly kind: 'power'; readonly base: Node; readonly exponent: Node }
  | { readonly kind: 'root'; readonly index: number; readonly of: Node }
  | { readonly kind: 'call'; readonly name: string; readonly args: readonly Node[] }
  /** `\pm`, or with `flipped` `\mp`. */
  | { readonly kind: 'plusminus'; readonly of: Node; readonly flipped: boolean }
  /** `wholes`: how many of it the larger units of the same quantity hold, 12 for the inches of `5 feet 3 inches`. */
  | { readonly kind: 'unit'; readonly words: string; readonly wholes?: readonly Rational[] }
  /** Digits in another base than ten, `52_8`. */
  | { readonly kind: 'based'; readonly digits: string; readonly base: string }
  | GroupNode
  | ListNode
  | RelationNode
  | { readonly kind: 'union'; readonly parts: readonly Node[] }
  | { readonly kind: 'difference'; readonly from: Node; readonly without: Node }
  /** `1:2:3`. */
  | { readonly kind: 'ratio'; readonly parts: readonly Node[] }
  | MatrixNode
  | { readonly kind: 'words'; readonly text: string };

export interface NumberNode {
  readonly kind: 'number';
  readonly value: Rational;
  /** The number as written, without separators of thousands; empty if it was composed. */
  readonly text: string;
}

/** Brackets around several items, or an interval. One item in round brackets is that item. */
export interface GroupNode {
  readonly kind: 'group';
  readonly open: '(' | '[' | '{';
  readonly close: ')' | ']' | '}';
  readonly items: readonly Node[];
}

/** Items without brackets of their own. */
interface ListNode {
  readonly kind: 'list';
  readonly items: readonly Node[];
  /** Whether `or` stands between them. */
  readonly alternatives: boolean;
}

export interface RelationNode {
  readonly kind: 'relation';
  readonly sides: readonly Node[];
  /** One fewer than sides: = ≠ < > ≤ ≥ ≈ ∈ ≡. */
  readonly operators: readonly string[];
}

export interface MatrixNode {
  readonly kind: 'matrix';
  /** A determinant is not its matrix. */
  readonly bars: boolean;
  readonly rows: readonly (readonly Node[])[];
}

export const quotient = (over: Node, under: Node): Node => ({
  kind: 'product',
  factors: [over, { kind: 'inverse', of: under }],
});
