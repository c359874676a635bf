// An answer as text: marks of layout removed, spellings made one, nothing that carries meaning touched.
import {
  ALIASES,
  BIG_OPERATORS,
  FUNCTIONS,
  LAYOUT,
  LOWERED,
  RAISED,
  SYMBOL_TYPE,
  TYPE_COMMANDS,
  UNICODE,
} from './notation.js';

const OTHER_COMMANDS =
  'frac sqrt boxed begin end pi pm mp le ge ne in cup cap infty circ cdot angle alpha beta theta';

const COMMANDS = new Set([
  ...LAYOUT,
  ...TYPE_COMMANDS,
  ...SYMBOL_TYPE,
  ...ALIASES.keys(),
  ...FUNCTIONS,
  ...BIG_OPERATORS,
  ...OTHER_COMMANDS.split(' '),
]);

/** The answer without mere layout: dollar signs of mathematics, spacing, full stops, doubled backslashes. */
export function normalise(answer: string): string {
  // A letter and its accent are one character or two, and look alike.
  const levelled = answer
    .normalize('NFC')
    .replace(RAISED, (run) => `^{${run.normalize('NFKD')}}`)
    .replace(LOWERED, (run) => `_{${run.normalize('NFKD')}}`);
  let text = '';
  for (const character of levelled) text += UNICODE.get(character) ?? narrow(character);
  text = singleBackslashes(text);
  text = withoutDelimiters(text);
  return withoutDecoration(text)
    .replace(/(?<=\d)\s?(?:\\!\s?)+,\s?(?=\d{3})|,\s?(?:\\!\s?)+(?=\d{3})/g, '')
    .replace(/(?<=\d)(?:\\(?:text|mbox|mathrm|mathord)\s?)?(?:\{,\}|\\,)(?=\d{3})/g, '')
    .replace(/(?<![\d.,'’])\d{1,3}(?:['’]\d{3})+(?![\d'’])/g, (match) => match.replace(/['’]/g, ''))
    .replace(/\\\\|\\[!,;:> ]|~/g, (match) => (match === '\\\\' ? match : ' '))
    .replace(/\^\s?(?:\{\s?\\(?:circ|degree)\s?\}|\\(?:circ|degree)(?![a-zA-Z]))/g, '\\degree ')
    .replace(/\^\s?(?:\{\s?\\prime\s?\}|\\prime)/g, "'")
    .replace(
      /(?<![\\\w]|\{\s?)deg(?:rees?)? ([CF])(?:elsius|ahrenheit)?\b/gi,
      (_, scale: string) => `\\degree ${scale.toUpperCase()}`,
    )
    .replace(
      /(?<![\p{L}\p{M}])([ap])\.\s?m\b\.?|(?<=\d:\d\d ?)([ap])m\b/giu,
      (_, dotted?: string, plain?: string) => `${dotted ?? plain}m`.toLowerCase(),
    )
    .replace(/\s+/g, ' ')
    .replace(/^[\s*`]*__([^_]+)__[.\s*`]*$/, '$1')
    .replace(/^[\s*`]+/, '')
    .replace(/(\d)\s?(?:\.{2,}|…)\s?$/, '$1\\dots')
    .replace(TRAILING, '')
    .replace(
      /^(\d+(?:\.\d+)?) (squared|cubed|factorial)$/i,
      (_, number: string, word: string) => number + POWERS[word.toLowerCase() as keyof typeof POWERS],
    );
}

/** Anchored at single characters, so that a long run of spaces inside costs nothing. */
const TRAILING = /(?<![\s.,;:*`\\])[\s.,;:*`\\]+$/;

/** `\\frac` is `\frac` where the text was escaped twice; in a matrix `\\` ends a row. */
function singleBackslashes(text: string): string {
  if (!text.includes('\\\\')) return text;
  if (text.includes('\\\\begin{')) return text.replace(/\\\\(?=[a-zA-Z{}])/g, '\\');
  if (text.includes('\\begin{')) return text;
  return text.replace(/\\\\([a-zA-Z]+)/g, (match, name: string) =>
    COMMANDS.has(name) ? `\\${name}` : match,
  );
}

/** Removes the signs that open and close mathematics. A dollar sign without a partner is money. */
function withoutDelimiters(text: string): string {
  const plain = text.replace(/\\\\|\\[()[\]]/g, (match) => (match === '\\\\' ? match : ' '));
  const dollars = plain.match(/\\\$|\$/g)?.filter((match) => match === '$').length ?? 0;
  if (dollars % 2 === 0) return plain.replace(/\\\$|\$/g, (match) => (match === '$' ? ' ' : match));
  return plain.replace(/\\\$|\$(?=\s?[\d.])|\$/g, (match, at: number) =>
    match === '$' && !/[\d.]/.test(plain[at + 1] ?? '') ? ' ' : '\\$',
  );
}

/** Words that are part of a number, and no unit that may be left out. */
const POWERS = { squared: '^2', cubed: '^3', factorial: '!' } as const;

const COLOUR =
  /\\(?:text|cell)?color\s?(?:\[\w+\]\s?)?\{[^{}]*\}|\\f?colorbox\s?(?:\{[\w!]*\}\s?){1,2}(?=\{)/g;
/** Words that lead to the answer, in an answer. */
const LEAD =
  /^[\s*]*(?:\\(?:text|textbf|textit|textrm|mbox|mathrm)\s?\{[^{}]{0,80}\b(?:is|are|equals|answer)\s?:?\s?\}|(?:the\s)?(?:final\s|correct\s)?answer\s?(?:is\b|:)|(?:最终|最後)?答案(?:是|为|為)?\s?:?)\s?:?(?=.*\S)/i;

/** Quotation marks around all of it. */
const QUOTED = /^\s*["“”„]([^"“”„]*)["“”][\s.]*$/;

/** Ticks and pictures, but crosses, which say that an answer is wrong. */
const PICTURES =
  /(?![❌❎✖🚫⛔])(?:[✓✔☑🗸]|\p{Emoji_Presentation}|\p{Extended_Pictographic}\uFE0F)[\uFE0F\u200D]*/gu;

/** Faces in signs after an answer. */
const FACES = /(?<=\S)\s[:;]-?[)D](?![\w)])/g;

/** Removes pictures beside an answer, colours, words before it and quotation marks around it. */
function withoutDecoration(text: string): string {
  const words = text.replace(PICTURES, ' ').replace(FACES, ' ');
  return (words.trim() === '' ? text : words).replace(COLOUR, ' ').replace(LEAD, '').replace(QUOTED, '$1');
}

/** Full-width forms of ASCII as ASCII. */
function narrow(character: string): string {
  const code = character.charCodeAt(0);
  return code >= 0xff01 && code <= 0xff5e ? String.fromCharCode(code - 0xfee0) : character;
}

const SMALL_WORDS = new Set(['the', 'a', 'an']);
/** Words that are no names, and no products of letters, whatever their case. */
const CASELESS = new Set('YES NO TRUE FALSE EVEN ODD NONE'.split(' '));

/**
 * A form for comparing answers as text. Two answers with the same form are the same whatever they mean: space goes only where
 * it means nothing, and `1, 234` stays apart from `1,234`, `3 1/2` from `31/2`.
 */
export function plainForm(normalised: string): string {
  const unwrapped = normalised
    .replace(
      /\\(?:text|textbf|textit|textrm|mbox|mathrm)\s?\{([^{}\\]*)\}/g,
      (_, words: string) => ` ${words} `,
    )
    .replace(/\\(?:left|right)(?![a-zA-Z])/g, '')
    .replace(/\\[dt]frac(?![a-zA-Z])/g, '\\frac')
    .replace(/\s+/g, ' ')
    .trim();
  if (/^[\p{L}\p{M} '-]+$/u.test(unwrapped)) return wordsForm(unwrapped);
  return unwrapped.replace(/(.?) (?=(.?))/gu, (_, before: string, after: string) =>
    isSeparated(before, after) ? `${before} ` : before,
  );
}

/** Words without articles; the capital of a name or of a sentence's first word does not count. */
export function wordsForm(words: string): string {
  const all = words.trim().split(/\s+/);
  // Two letters may be a product, except in a sentence.
  const isSentence = all.every((word) => word.length > 1) && all.some((word) => word.length > 3);
  const capital = isSentence ? /^\p{Lu}\p{Ll}+$/u : /^\p{Lu}\p{Ll}{2,}$/u;
  const kept = all.map((word) =>
    capital.test(word) || CASELESS.has(word.toUpperCase()) ? word.toLowerCase() : word,
  );
  const plain = kept.length > 1 ? kept.filter((word) => !SMALL_WORDS.has(word)) : kept;
  return plain.join(' ');
}

function isSeparated(before: string, after: string): boolean {
  if (before === ',') return /\d/.test(after);
  return /[\p{L}\d.]/u.test(before) && /[\p{L}\d.\\]/u.test(after);
}
