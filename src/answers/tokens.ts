// Tokens of an answer in LaTeX or plain notation. One pass, no recursion.
import type { StepBudget } from './budget.js';
import { ALIASES, FUNCTIONS, LAYOUT, PLAIN_COMMANDS, SYMBOL_TYPE, TYPE_COMMANDS } from './notation.js';
import { isUnitName, isUnitSign } from './units.js';

type TokenKind = 'number' | 'symbol' | 'mark' | 'command' | 'words';

export interface Token {
  readonly kind: TokenKind;
  /** A number's digits, a symbol's name, a mark such as `<=`, a command's name after `\`, or words. */
  readonly text: string;
  /** White space stood before it. */
  readonly spaced: boolean;
}

export interface TokenOptions {
  /**
   * Read `1,234` as one number, outside brackets and in those whose items are set apart by `, ` as in `\{1,000, 2,000\}`; else as a
   * list of two.
   */
  readonly thousands: boolean;
}

const NUMBER =
  /\d+(?:\.\d*)?(?:[eE][+-]?\d{1,6}(?![\d.]))?|\.\d+|\.(?=\s?\\(?:overline|bar|dot)(?![a-zA-Z]))/y;
const THOUSANDS = /[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)(?:\.\d+)?/y;
/** `1 000 000`; the fraction of a mixed number is none of its groups. */
const SPACED_THOUSANDS = /[1-9]\d{0,2}(?: \d{3}){1,6}(?![\d/]|\s[\d/]|,\d)(?:\.\d+)?/y;
const DECIMAL_COMMA = /(?:\d{4,}|0(?=,\d{3})),\d+(?![\d,.])/y;
const LETTERS = /[A-Za-z]+/y;
const OTHER_LETTERS = /[\p{L}\p{M}]+/uy;
const COMMAND = /\\(?:[A-Za-z]+|[\s\S])/y;
const MARK = /<=|>=|!=|==|=<|=>|\*\*|[\s\S]/y;
const BOLD = new Set(['mathbf', 'boldsymbol', 'bm', 'pmb']);
const MAX_WORD = 40;
const ORDINAL = new Set(['st', 'nd', 'rd', 'th']);

/** The tokens of a normalised answer. */
export function tokenise(source: string, budget: StepBudget, { thousands }: TokenOptions): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  /** Whether commas in each open bracket may be those of thousands. */
  const open: boolean[] = [];
  const spacedAt = spacedBrackets(source, budget);
  let spaced = false;
  const push = (kind: TokenKind, text: string) => {
    tokens.push({ kind, text, spaced });
    spaced = false;
  };
  const match = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    return pattern.exec(source)?.[0];
  };
  while (at < source.length) {
    budget.spend();
    const character = source[at]!;
    if (/\s/.test(character)) {
      spaced = true;
      at++;
      continue;
    }
    if (/[\d.]/.test(character)) {
      const isOutside = open.length === 0;
      const hasCommas = thousands && (open.at(-1) ?? true);
      const grouped = hasCommas
        ? (match(THOUSANDS) ?? (isOutside ? match(DECIMAL_COMMA) : undefined))
        : undefined;
      const written = grouped ?? match(SPACED_THOUSANDS) ?? match(NUMBER);
      if (written !== undefined) {
        at += written.length;
        const text = written.replaceAll(' ', '');
        const isDecimalComma = grouped !== undefined && !/^\d{1,3}(?:,\d{3})+(?:\.|$)/.test(grouped);
        push(
          'number',
          isDecimalComma || /^0,/.test(text) ? text.replace(',', '.') : text.replaceAll(',', ''),
        );
        budget.spend(text.length >> 2);
        continue;
      }
    }
    const letters = match(LETTERS);
    if (letters !== undefined) {
      at += letters.length;
      pushLetters(letters, spaced, tokens, push);
      continue;
    }
    const foreign = match(OTHER_LETTERS);
    if (foreign !== undefined) {
      at += foreign.length;
      push(foreign.length > MAX_WORD ? 'mark' : 'words', foreign);
      continue;
    }
    const command = match(COMMAND);
    if (command !== undefined) {
      at += command.length;
      const name = command.slice(1);
      if (TYPE_COMMANDS.has(name) || SYMBOL_TYPE.has(name)) {
        const group =
          braced(source, at, budget) ?? (SYMBOL_TYPE.has(name) ? nextCharacter(source, at) : undefined);
        if (group !== undefined && pushTyped(name, group.text, push)) at = group.end;
      } else if (LAYOUT.has(name)) {
        spaced = true;
        // `\left.` opens nothing.
        if ((name === 'left' || name === 'right') && source[at] === '.') at++;
      } else if (/^q?quad[a-zA-Z]/.test(name)) {
        const [, rest = ''] = /^q?quad(.+)$/.exec(name)!;
        at -= rest.length;
        spaced = true;
      } else {
        if (name === '{') open.push(spacedAt.has(at - 1));
        else if (name === '}') open.pop();
        const known = ALIASES.get(name) ?? name;
        push(known !== name && !/^[a-z{}]/.test(known) ? 'mark' : 'command', known);
      }
      continue;
    }
    const mark = match(MARK)!;
    at += mark.length;
    if (mark === '(' || mark === '[') open.push(spacedAt.has(at - 1));
    else if (mark === ')' || mark === ']') open.pop();
    push(mark !== '%' && isUnitSign(mark) ? 'command' : 'mark', mark);
  }
  return tokens;
}

/** The places of brackets with `, ` or `;` between their own items. */
function spacedBrackets(source: string, budget: StepBudget): ReadonlySet<number> {
  budget.spend(source.length >> 2);
  const found = new Set<number>();
  const open: number[] = [];
  for (let at = 0; at < source.length; at++) {
    const character = source[at]!;
    if ('([{'.includes(character)) open.push(at);
    else if (')]}'.includes(character)) open.pop();
    else if (open.length > 0 && (character === ';' || (character === ',' && source[at + 1] === ' ')))
      found.add(open.at(-1)!);
  }
  return found;
}

/** Letters without a backslash: a product of symbols, a function, a unit, or words. */
function pushLetters(
  letters: string,
  spaced: boolean,
  tokens: readonly Token[],
  push: (kind: TokenKind, text: string) => void,
): void {
  const last = tokens.at(-1);
  const afterNumber = last?.kind === 'number';
  const afterValue =
    last !== undefined && (afterNumber || last.kind === 'words' || [')', '}', '/'].includes(last.text));
  if (letters.length === 1) push('symbol', letters);
  else if (letters === 'and' || letters === 'or') push('command', letters);
  else if (letters === 'in' && last?.kind === 'symbol') push('command', 'in');
  else if (afterNumber && !spaced && ORDINAL.has(letters)) push('words', 'ordinal');
  else if (PLAIN_COMMANDS.has(letters) && !(afterNumber && spaced && isUnitName(letters)))
    push('command', ALIASES.get(letters) ?? letters);
  else if (afterValue && isUnitName(letters)) push('words', letters);
  else if (/^[A-Z]+$/.test(letters)) push('symbol', letters);
  else if (isWord(letters) && (spaced || !afterNumber)) push('words', letters);
  else if (/^[A-Z][a-z]{2}$/.test(letters) || (spaced && last?.kind === 'words')) push('words', letters);
  else for (const letter of letters) push('symbol', letter);
}

/** `eggs` and `cup` are words; letters in the order of the alphabet, such as `abcd`, are a product. */
function isWord(letters: string): boolean {
  if (letters.length === 3) return /^[^aeiou][aeiou][^aeiou]$/.test(letters);
  const isAscending = [...letters].every((letter, i) => i === 0 || letter > letters[i - 1]!);
  return letters.length >= 4 && letters.length <= MAX_WORD && !isAscending;
}

/** The group of a command such as `\text`. False where the group is mathematics, to be read as an ordinary group. */
function pushTyped(name: string, group: string, push: (kind: TokenKind, text: string) => void): boolean {
  const text = group.trim();
  if (SYMBOL_TYPE.has(name)) {
    // Bold type tells letters apart, **i** from i; around numbers it is decoration.
    if (BOLD.has(name) && /\d|\\(?:pi|infty)(?![a-z])/.test(text.replace(/_(?:\w|\{\w*\})/g, '')))
      return false;
    push('symbol', `\\${name}{${text.replace(/\s/g, '')}}`);
    return true;
  }
  if (text === '') return true;
  const words = text.replace(/^[,;\s]+|[,;.\s]+$/g, '');
  if (words === 'and' || words === 'or') push('command', words);
  else if (FUNCTIONS.has(words) && !(isUnitName(words) && name !== 'operatorname')) push('command', words);
  else if (words.length === 1 && /^[a-zA-Z]$/.test(words)) {
    if (isUnitName(words) && !name.startsWith('math')) push('words', words);
    else push('symbol', words);
  } else if (/^[\p{L}\p{M}][\p{L}\p{M}\s'./-]*$/u.test(words)) push('words', words);
  else return false;
  return true;
}

/** The one letter or digit that a command takes where no brace follows. */
function nextCharacter(source: string, start: number): Group | undefined {
  const at = source[start] === ' ' ? start + 1 : start;
  return /[A-Za-z\d]/.test(source[at] ?? '') ? { text: source[at]!, end: at + 1 } : undefined;
}

interface Group {
  readonly text: string;
  readonly end: number;
}

/** The balanced group that begins at `start`, without its braces. */
function braced(source: string, start: number, budget: StepBudget): Group | undefined {
  let open = start;
  while (source[open] === ' ') open++;
  if (source[open] !== '{') return undefined;
  let depth = 0;
  for (let at = open; at < source.length; at++) {
    budget.spend();
    if (source[at] === '{') depth++;
    else if (source[at] === '}' && --depth === 0) return { text: source.slice(open + 1, at), end: at + 1 };
  }
  return undefined;
}
