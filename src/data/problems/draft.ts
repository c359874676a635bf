/** A problem while it is being made: draws numbers, writes down steps, and gives up where the numbers do not work out. */
import { type PhiloxStream, shuffled } from '../../random/philox.js';
import type { Part } from '../split.js';
import { evaluate, type Fact, isFactOf, type Operation } from './facts.js';
import type { Level } from './levels.js';
import type { Operand, PlannedStep } from './problem.js';
import { CONTAINERS, NAMES, THINGS } from './words.js';

/** Thrown where a draft cannot be finished; the next draft has other numbers. */
export const UNUSABLE = new Error('the numbers of the draft do not work out');

/** Draws of an operand before a draft is given up. */
const TRIES = 120;

/** A sentence of the story. */
export interface Sentence {
  readonly text: string;
  /** Whether it may change places with others of the kind. */
  readonly movable?: boolean;
}

/** The story of a template. */
export interface Story {
  readonly sentences: readonly Sentence[];
  /** Asks for the result of the last step. */
  readonly question: string;
  /** The result of the last step as a noun: `the number of apples of Tom`; absent where only `question` can be asked. */
  readonly noun?: string;
  /** Set where `question` asks who of two has more: their last steps. */
  readonly who?: { readonly steps: readonly [number, number]; readonly names: readonly [string, string] };
}

export class Draft {
  readonly plan: PlannedStep[] = [];
  private readonly names: string[];
  private readonly things: string[];

  constructor(
    readonly draw: PhiloxStream,
    readonly level: Level,
    readonly part: Part,
    /** Operations of the story, without those of a coarse question. */
    readonly operations: number,
    readonly wording: number,
  ) {
    this.names = shuffled(draw, NAMES);
    this.things = shuffled(draw, THINGS);
  }

  /** A person that is not in the story yet. */
  person(): string {
    return this.names.pop() ?? this.fail();
  }

  thing(): string {
    return this.things.pop() ?? this.fail();
  }

  container(): string {
    return this.draw.pick(CONTAINERS);
  }

  /** The phrase of this problem's wording. */
  say(...phrases: readonly [string, string, string]): string {
    return phrases[this.wording] as string;
  }

  /** The phrase of this problem's wording, as a sentence that keeps its place. */
  told(...phrases: readonly [string, string, string]): Sentence {
    return { text: this.say(...phrases) };
  }

  between([least, most]: readonly [number, number]): number {
    if (most < least) return this.fail();
    return least + this.draw.below(most - least + 1);
  }

  start(): Operand {
    return { value: this.between(this.level.start) };
  }

  /** Writes a step down and gives its result. */
  step(about: string, left: Operand, op: Operation, right: Operand): Operand {
    const result = this.allowed({ left: left.value, op, right: right.value });
    if (result === undefined) return this.fail();
    const misread = misreading(op, this.wording);
    this.plan.push({ about, left, op, right, result, ...(misread ? { misread } : {}) });
    return { value: result, step: this.plan.length - 1 };
  }

  /** A step with an operand whose fact belongs to the problem's part. */
  change(
    about: string,
    from: Operand,
    ops: readonly Operation[],
  ): { readonly op: Operation; readonly by: number; readonly to: Operand } {
    const { level, draw } = this;
    for (let i = 0; i < TRIES; i++) {
      // Products grow fast, so they are rarer.
      const op = draw.pick(draw.below(2) === 0 ? ops : ops.filter((one) => one !== '×'));
      const by = this.between(op === '×' ? [2, level.factor] : level.change);
      if (this.allowed({ left: from.value, op, right: by }) !== undefined)
        return { op, by, to: this.step(about, from, op, { value: by }) };
    }
    return this.fail();
  }

  /** `k` groups of `a`: a product whose fact belongs to the problem's part. */
  groups(about: string, mostOfEach = 25): { readonly k: number; readonly a: number; readonly to: Operand } {
    const { level } = this;
    for (let i = 0; i < TRIES; i++) {
      const k = this.between([2, level.factor + 3]);
      const a = this.between([3, Math.min(mostOfEach, level.change[1])]);
      if (this.allowed({ left: k, op: '×', right: a }) !== undefined)
        return { k, a, to: this.step(about, { value: k }, '×', { value: a }) };
    }
    return this.fail();
  }

  /** An amount from which `what` can be taken. */
  enough(about: string, what: Operand): { readonly has: number; readonly left: Operand } {
    for (let i = 0; i < TRIES; i++) {
      const has = what.value + this.between(this.level.change);
      if (this.allowed({ left: has, op: '-', right: what.value }) !== undefined)
        return { has, left: this.step(about, { value: has }, '-', what) };
    }
    return this.fail();
  }

  fail(): never {
    throw UNUSABLE;
  }

  private allowed(fact: Fact): number | undefined {
    const result = evaluate(fact);
    if (result === undefined || result > this.level.maxValue || (result === 0 && fact.op !== 'mod'))
      return undefined;
    return isFactOf(this.part, fact) ? result : undefined;
  }
}

/** The operation of a reader who takes differences and products in any wording but the first for sums. */
function misreading(op: Operation, wording: number): Operation | undefined {
  return wording > 0 && (op === '-' || op === '×') ? '+' : undefined;
}
