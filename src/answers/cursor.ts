// A place in a list of tokens, and how deep the reader of them is.
import type { StepBudget } from './budget.js';
import type { Token } from './tokens.js';

/** The text is not in a notation that can be parsed. */
export class Unreadable extends Error {
  override readonly name = 'Unreadable';
}

const MAX_DEPTH = 180;
const END: Token = { kind: 'mark', text: '', spaced: false };

export class Cursor {
  protected at = 0;
  private depth = 0;

  constructor(
    protected readonly tokens: Token[],
    protected readonly budget: StepBudget,
  ) {}

  expectEnd(): void {
    if (this.at < this.tokens.length) throw new Unreadable(`unexpected ${this.next.text}`);
  }

  /** The text of a group, or of the next token: a name, not a value. */
  protected rawGroup(): string {
    if (this.next.text !== '{' || this.next.kind !== 'mark') {
      if (this.at >= this.tokens.length) throw new Unreadable('the answer ends too early');
      return this.tokens[this.at++]!.text;
    }
    let text = '';
    let depth = 0;
    do {
      if (this.at >= this.tokens.length) throw new Unreadable('a brace is not closed');
      const token = this.tokens[this.at++]!;
      this.budget.spend();
      if (token.kind === 'mark' && token.text === '{') depth++;
      else if (token.kind === 'mark' && token.text === '}') depth--;
      else text += token.text;
    } while (depth > 0);
    return text;
  }

  protected get next(): Token {
    return this.tokens[this.at] ?? END;
  }

  /** The next mark, or the next command with its backslash. */
  protected name(): string {
    const { kind, text } = this.next;
    return kind === 'command' ? `\\${text}` : kind === 'mark' ? text : '';
  }

  protected take(name: string): boolean {
    if (this.name() !== name) return false;
    this.at++;
    return true;
  }

  protected expect(name: string): void {
    if (!this.take(name)) throw new Unreadable(`expected ${name}, found ${this.next.text || 'the end'}`);
  }

  protected nested<T>(read: () => T): T {
    this.budget.spend();
    const depth = this.depth;
    this.deeper();
    const result = read();
    this.depth = depth;
    return result;
  }

  /** A level of nesting for something that grows to the right, such as a row of factorials; it ends with the level around it. */
  protected deeper(): void {
    if (++this.depth > MAX_DEPTH) throw new Unreadable('too deep');
  }
}
