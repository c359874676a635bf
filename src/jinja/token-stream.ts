import { JinjaError } from './errors.js';
import type { Token } from './lexer.js';

/** The tokens of a template, read one after the other. */
export class TokenStream {
  private at = 0;

  constructor(private readonly all: readonly Token[]) {}

  get current(): Token {
    return this.all[this.at] as Token;
  }

  get following(): Token {
    return this.all[Math.min(this.at + 1, this.all.length - 1)] as Token;
  }

  next(): Token {
    const { current } = this;
    if (current.type !== 'eof') this.at++;
    return current;
  }

  is(type: Token['type'], ...values: readonly string[]): boolean {
    const { current } = this;
    return current.type === type && (values.length === 0 || values.includes(current.value));
  }

  /** Goes past the current token where it is that one. */
  skip(type: Token['type'], ...values: readonly string[]): boolean {
    const isThat = this.is(type, ...values);
    if (isThat) this.at++;
    return isThat;
  }

  /** @throws JinjaError where the current token is another */
  expect(type: Token['type'], ...values: readonly string[]): Token {
    if (this.is(type, ...values)) return this.next();
    throw this.wrong(
      `expected ${values.map((value) => `'${value}'`).join(' or ') || type}, found ${this.found}`,
    );
  }

  get found(): string {
    const { type, value } = this.current;
    return type === 'eof' ? 'the end of the template' : value === '' ? type : `'${value.slice(0, 40)}'`;
  }

  wrong(what: string): JinjaError {
    return new JinjaError(`line ${this.current.line}: ${what}`);
  }
}
