/** Pre-tokenizers of text, as in Hugging Face's Rust library. */

import { matchesOf, type Part, partsOf, patternOf, unknownPart } from './patterns.js';
import { byteCharacters, utf8 } from './token-bytes.js';

/** Cuts a text; `isFirst`: nothing stands before it. */
export type PreTokenizer = (text: string, isFirst: boolean) => string[];

interface Piece {
  readonly text: string;
  /** Nothing stands before it in the whole text. */
  readonly isFirst: boolean;
}

interface Cut {
  (piece: Piece): Piece[];
  /** The pattern of a cut that isolates each match. */
  readonly isolated?: RegExp;
}

/** Treatments of the matches of a pattern. */
const BEHAVIORS = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'] as const;
type Behavior = (typeof BEHAVIORS)[number];

/** GPT-2's pattern, which a byte-level pre-tokenizer uses unless `use_regex` is off. */
const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** A character of a word, as Rust's regular expressions understand `\w`. */
const WORD = String.raw`\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}`;
const PUNCTUATION = /[\p{P}\u0021-\u002F\u003A-\u0040\u005B-\u0060\u007B-\u007E]/gu;

/** A pre-tokenizer in two halves, so that the tokens of a word can be kept under the word as it stands in the text. */
export interface WordCutter {
  /** The words of a text, in order. */
  readonly words: PreTokenizer;
  /** The spelling of a word in the vocabulary. */
  readonly spelled: (word: string) => string;
}

/** @throws Error for a pre-tokenizer that is not known */
export function wordCutterOf(json: unknown): WordCutter | undefined {
  const parts = partsOf(json, 'pretokenizers');
  const cuts = parts.flatMap(cutsOf);
  if (cuts.length === 0) return undefined;
  const isByteLevel = parts.at(-1)?.type === 'ByteLevel';
  return {
    words: wordsBy(isByteLevel ? cuts.slice(0, -1) : cuts),
    spelled: isByteLevel ? inBytes : (word) => word,
  };
}

/** @throws Error for a pre-tokenizer that is not known */
export function preTokenizerOf(json: unknown): PreTokenizer | undefined {
  const cutter = wordCutterOf(json);
  return cutter && ((text, isFirst) => cutter.words(text, isFirst).map(cutter.spelled));
}

function wordsBy(cuts: readonly Cut[]): PreTokenizer {
  const words: PreTokenizer = (text, isFirst) =>
    cuts
      .reduce((pieces, cut) => pieces.flatMap(cut), [{ text, isFirst }] as Piece[])
      .map((piece) => piece.text);
  const pattern = cuts.length === 1 ? cuts[0]?.isolated : undefined;
  if (pattern === undefined) return words;
  return (text, isFirst) => {
    const found: string[] = text.match(pattern) ?? [];
    let length = 0;
    let hasEmpty = false;
    for (const match of found) {
      length += match.length;
      if (match === '') hasEmpty = true;
    }
    // Matches that leave nothing between them are the pieces already.
    if (length !== text.length) return words(text, isFirst);
    return hasEmpty ? found.filter((match) => match !== '') : found;
  };
}

function cutsOf(part: Part): Cut[] {
  switch (part.type) {
    case 'ByteLevel':
      return byteLevel(part);
    case 'Metaspace':
      return metaspace(part);
    case 'Split':
      return [split(patternOf(part.pattern), behaviorOf(part.behavior), part.invert === true)];
    case 'Whitespace':
      return [split(new RegExp(`[${WORD}]+|[^${WORD}\\p{White_Space}]+`, 'gu'), 'Removed', true)];
    case 'WhitespaceSplit':
      return [split(/\p{White_Space}/gu, 'Removed')];
    case 'BertPreTokenizer':
      return [split(/\p{White_Space}/gu, 'Removed'), split(PUNCTUATION, 'Isolated')];
    case 'Punctuation':
      return [split(PUNCTUATION, behaviorOf(part.behavior ?? 'Isolated'))];
    case 'Digits':
      return [split(/\p{N}/gu, part.individual_digits === true ? 'Isolated' : 'Contiguous')];
    case 'CharDelimiterSplit':
      return [split(patternOf({ String: part.delimiter }), 'Removed')];
    case 'FixedLength':
      return [split(new RegExp(`.{1,${Number(part.length ?? 5)}}`, 'gsu'), 'Isolated')];
    default:
      return unknownPart('pre-tokenizer', part);
  }
}

const BYTE_CHARACTERS = byteCharacters();

const inBytes = (text: string) => Array.from(utf8(text), (byte) => BYTE_CHARACTERS[byte]).join('');

function byteLevel({ add_prefix_space: prefixed, use_regex: cuts }: Part): Cut[] {
  const toBytes = ({ text, isFirst }: Piece): Piece[] => [{ text: inBytes(text), isFirst }];
  const prefix = ({ text, isFirst }: Piece): Piece[] => [
    { text: text.startsWith(' ') ? text : ` ${text}`, isFirst },
  ];
  return [
    ...(prefixed === true ? [prefix] : []),
    ...(cuts === false ? [] : [split(patternOf({ Regex: GPT2 }), 'Isolated')]),
    toBytes,
  ];
}

/** The scheme of Metaspace; files from before there were schemes have `add_prefix_space`. */
export function prependScheme({ prepend_scheme: scheme, add_prefix_space: prefixed }: Part): string {
  const found = String(scheme ?? 'always');
  if (!['always', 'first', 'never'].includes(found)) throw new Error(`prepend_scheme ${found} is not known`);
  return prefixed === false ? 'never' : found;
}

function metaspace(part: Part): Cut[] {
  const mark = String(part.replacement ?? '▁');
  const scheme = prependScheme(part);
  const replace = ({ text, isFirst }: Piece): Piece[] => {
    const marked = text.replaceAll(' ', mark);
    const prepends = !marked.startsWith(mark) && (scheme === 'always' || (scheme === 'first' && isFirst));
    return [{ text: prepends ? mark + marked : marked, isFirst }];
  };
  if (part.split === false) return [replace];
  return [replace, split(patternOf({ String: mark }), 'MergedWithNext')];
}

function behaviorOf(value: unknown): Behavior {
  const found = BEHAVIORS.find(
    (each) => each.toLowerCase() === String(value).toLowerCase().replaceAll('_', ''),
  );
  if (found === undefined) throw new Error(`the behavior ${JSON.stringify(value)} is not known`);
  return found;
}

interface Span {
  start: number;
  end: number;
  readonly isMatch: boolean;
}

function split(pattern: RegExp, behavior: Behavior, invert = false): Cut {
  const cut: Cut = ({ text, isFirst }) =>
    joined(spansOf(text, pattern, invert), behavior)
      .filter(({ start, end }) => end > start)
      .map(({ start, end }) => ({ text: text.slice(start, end), isFirst: isFirst && start === 0 }));
  return behavior === 'Isolated' && pattern.global ? Object.assign(cut, { isolated: pattern }) : cut;
}

/** Matches and the texts between them, over the whole text. */
function spansOf(text: string, pattern: RegExp, invert: boolean): Span[] {
  const spans: Span[] = [];
  let end = 0;
  for (const match of matchesOf(text, pattern)) {
    if (match.index > end) spans.push({ start: end, end: match.index, isMatch: invert });
    spans.push({ start: match.index, end: match.index + match[0].length, isMatch: !invert });
    end = match.index + match[0].length;
  }
  if (end < text.length) spans.push({ start: end, end: text.length, isMatch: invert });
  return spans;
}

function joined(spans: readonly Span[], behavior: Behavior): Span[] {
  const all: Span[] = [];
  let before = false;
  switch (behavior) {
    case 'Removed':
      return spans.filter(({ isMatch }) => !isMatch);
    case 'Isolated':
      return [...spans];
    case 'MergedWithNext':
      for (const span of [...spans].reverse()) {
        const next = all[0];
        if (span.isMatch && !before && next) next.start = span.start;
        else all.unshift({ ...span });
        before = span.isMatch;
      }
      return all;
    default:
      for (const span of spans) {
        const last = all.at(-1);
        const joins = behavior === 'Contiguous' ? span.isMatch === before : span.isMatch && !before;
        if (joins && last) last.end = span.end;
        else all.push({ ...span });
        before = span.isMatch;
      }
      return all;
  }
}
