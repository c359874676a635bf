// Templates as tokens, with Jinja's rules for white space around tags: blocks trimmed and stripped, as transformers sets them.
import { JinjaError } from './errors.js';
import { SPACE, withoutLeft, withoutRight } from './white-space.js';

export interface Token {
  readonly type:
    | 'data'
    | 'begin'
    | 'end'
    | 'output'
    | 'endoutput'
    | 'name'
    | 'text'
    | 'int'
    | 'float'
    | 'op'
    | 'eof';
  readonly value: string;
  readonly line: number;
}

const OPENING = new RegExp(String.raw`\{(?:%([-+]?)[${SPACE}]*raw[${SPACE}]*(-?)%\}|([%{#])([-+]?))`, 'g');
const INSIDE = new RegExp(
  [
    `(?<space>[${SPACE}]+)`,
    String.raw`(?<float>(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+))`,
    String.raw`(?<int>0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*)`,
    String.raw`(?<name>[\p{L}\p{Nl}_][\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}]*)`,
    String.raw`(?<text>'[^'\\]*(?:\\[\s\S][^'\\]*)*'|"[^"\\]*(?:\\[\s\S][^"\\]*)*")`,
    String.raw`(?<op>\/\/|\*\*|==|!=|>=|<=|[-+*/%~[\](){}<>=.:|,;])`,
  ].join('|'),
  'iuy',
);

const CLOSES: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };

/** @throws JinjaError that names the line */
export function tokens(source: string): readonly Token[] {
  return new Lexer(source.replace(/\r\n?/g, '\n').replace(/\n$/, '')).all();
}

class Lexer {
  private readonly found: Token[] = [];
  private at = 0;
  private line = 1;
  /** Whether the next text begins a line, after nothing but a line break. */
  private startsLine = true;

  constructor(private readonly source: string) {}

  all(): readonly Token[] {
    while (this.at < this.source.length) {
      OPENING.lastIndex = this.at;
      const tag = OPENING.exec(this.source);
      if (tag === null) {
        this.push('data', this.source.slice(this.at));
        break;
      }
      const [whole, rawSign, rawTrim, kind = '%', plainSign] = tag;
      const sign = rawSign ?? plainSign ?? '';
      const isRaw = rawSign !== undefined;
      this.data(this.source.slice(this.at, tag.index), sign, kind !== '{');
      this.advance(tag.index + whole.length);
      if (isRaw) this.raw(rawTrim === '-');
      else if (kind === '#') this.comment();
      else this.tag(kind);
    }
    this.push('eof', '');
    return this.found;
  }

  private push(type: Token['type'], value: string): void {
    if (type !== 'data' || value !== '') this.found.push({ type, value, line: this.line });
  }

  private advance(to: number): void {
    for (let i = this.at; i < to; i++) if (this.source[i] === '\n') this.line++;
    if (to > this.at) this.startsLine = this.source[to - 1] === '\n';
    this.at = to;
  }

  /** The text before a tag, without the white space that the tag removes. */
  private data(text: string, sign: string, isBlock: boolean): void {
    this.push('data', this.stripped(text, sign, isBlock));
  }

  private stripped(text: string, sign: string, isBlock: boolean): string {
    if (sign === '-') return withoutRight(text);
    if (sign === '+' || !isBlock) return text;
    const lineStart = text.lastIndexOf('\n') + 1;
    if (lineStart === 0 && !this.startsLine) return text;
    return withoutLeft(text.slice(lineStart)) === '' ? text.slice(0, lineStart) : text;
  }

  /** Goes behind the end of a tag and the white space that it takes. */
  private behind(end: number, length: number, sign: string, takesBreak: boolean): void {
    let to = end + length;
    if (sign === '-') to = this.source.length - withoutLeft(this.source.slice(to)).length;
    else if (sign !== '+' && takesBreak && this.source[to] === '\n') to++;
    this.advance(to);
  }

  private comment(): void {
    const end = this.source.indexOf('#}', this.at);
    if (end < 0) throw this.wrong('a comment has no end');
    const sign = end > this.at ? (this.source[end - 1] as string) : '';
    this.behind(end, 2, sign, true);
  }

  private raw(trims: boolean): void {
    if (trims) this.behind(this.at, 0, '-', false);
    const close = new RegExp(String.raw`\{%([-+]?)[${SPACE}]*endraw[${SPACE}]*([-+]?)%\}`, 'g');
    close.lastIndex = this.at;
    const end = close.exec(this.source);
    if (end === null) throw this.wrong('a raw block has no end');
    const [whole, sign = '', trim = ''] = end;
    this.data(this.source.slice(this.at, end.index), sign, true);
    this.behind(end.index, whole.length, trim, true);
  }

  private tag(kind: string): void {
    const isBlock = kind === '%';
    const close = isBlock ? '%}' : '}}';
    const open: string[] = [];
    this.push(isBlock ? 'begin' : 'output', '');
    while (true) {
      if (open.length === 0) {
        const sign = /[-+]/.test(this.source[this.at] ?? '') ? (this.source[this.at] as string) : '';
        const hasSign =
          sign !== '' && (isBlock || sign === '-') && this.source.startsWith(close, this.at + 1);
        if (hasSign || this.source.startsWith(close, this.at)) {
          this.push(isBlock ? 'end' : 'endoutput', '');
          this.behind(this.at, hasSign ? 3 : 2, hasSign ? sign : '', isBlock);
          return;
        }
      }
      this.token(open);
    }
  }

  private token(open: string[]): void {
    INSIDE.lastIndex = this.at;
    const match = INSIDE.exec(this.source);
    if (match === null)
      throw this.wrong(
        this.at < this.source.length
          ? `${JSON.stringify(String.fromCodePoint(this.source.codePointAt(this.at) as number))} is no part of an expression`
          : 'a tag has no end',
      );
    const [type, value] = Object.entries(match.groups ?? {}).find(([, text]) => text !== undefined) as [
      Token['type'] | 'space',
      string,
    ];
    if (type === 'op') {
      if (value in CLOSES) open.push(CLOSES[value] as string);
      else if (')]}'.includes(value) && open.pop() !== value) throw this.wrong(`unexpected '${value}'`);
    }
    if (type !== 'space') this.push(type, type === 'text' ? this.unescaped(value.slice(1, -1)) : value);
    this.advance(this.at + value.length);
  }

  /** A text literal as Python's `unicode-escape` reads it. */
  private unescaped(text: string): string {
    if (!text.includes('\\')) return text;
    const simple: Readonly<Record<string, string>> = {
      n: '\n',
      t: '\t',
      r: '\r',
      a: '\x07',
      b: '\b',
      f: '\f',
      v: '\v',
      '\\': '\\',
      "'": "'",
      '"': '"',
      '\n': '',
    };
    return text.replace(
      /\\(?:x([\da-f]{2})|u([\da-f]{4})|U([\da-f]{8})|([0-7]{1,3})|([\s\S]))/gi,
      (all, x?: string, u?: string, long?: string, octal?: string, other?: string) => {
        const hex = x ?? u ?? long;
        if (hex !== undefined && /^\\[xuU]/.test(all)) {
          const code = Number.parseInt(hex, 16);
          if ((u !== undefined && all[1] === 'U') || (long !== undefined && all[1] === 'u')) return all;
          if (code > 0x10ffff) throw this.wrong('a text has an impossible escape');
          return String.fromCodePoint(code);
        }
        if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
        if (other !== undefined && 'xuUN'.includes(other))
          throw this.wrong('a text has an unfinished escape');
        return other === undefined ? all : (simple[other] ?? all);
      },
    );
  }

  private wrong(what: string): JinjaError {
    return new JinjaError(`line ${this.line}: ${what}`);
  }
}
