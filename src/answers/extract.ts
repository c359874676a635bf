// The final answer of a worked solution.
import { checkText } from '../native/errors.js';
import { type Found, lastBoxed } from './boxed.js';
import { choiceOf, letterOf } from './choice.js';
import { withoutDerivation } from './derivation.js';
import { formulas } from './formulas.js';
import { withoutMarkdown } from './markdown.js';
import { normalise, plainForm } from './normalise.js';
import { lastPlain, unitAfter } from './plain.js';

/**
 * The place of the answer.
 * - `boxed`: the last balanced `\boxed{…}`
 * - `marker`: behind the last `####` before a question that the text goes on with
 * - `phrase`: behind the last "answer is", "Answer:" or "final answer"
 * - `whole`: the text is nothing but an answer
 * - `math`: the last formula between dollar signs or `\(…\)`
 * - `number`: the last number
 * - `choice`: the last letter of a multiple choice
 */
export type ExtractionMethod = 'boxed' | 'marker' | 'phrase' | 'whole' | 'math' | 'number' | 'choice';

/** Whether an answer was found where a solution marks its own; undefined: none was found. */
export const isMarked = (method: ExtractionMethod | undefined): boolean =>
  method === 'boxed' || method === 'marker' || method === 'phrase';

export interface ExtractedAnswer {
  readonly answer: string;
  readonly method: ExtractionMethod;
}

export interface ExtractionOptions {
  /** The preferred kind of answer if the text marks none: `choice` prefers a letter to a number, and one announced later to a box without. Default `any`. */
  readonly expect?: 'any' | 'choice' | undefined;
  /** The prompt opened reasoning (`<think>`), and the text goes on in it: one that never ends it gives no answer. Default false. */
  readonly inReasoning?: boolean | undefined;
}

/**
 * The answer of a solution, or undefined where it gives none. In a text with `</think>`, only the part after it counts.
 */
export function extractAnswer(
  text: string,
  { expect = 'any', inReasoning = false }: ExtractionOptions = {},
): ExtractedAnswer | undefined {
  checkText('extractAnswer', text);
  const { spoken, body } = spokenPart(text, inReasoning);
  const found = (answer: string | undefined, method: ExtractionMethod) =>
    answer === undefined || normalise(answer) === '' ? undefined : { answer: answer.trim(), method };
  const boxed = lastBoxed(spoken);
  const phrase = lastPhrase(spoken);
  // A final answer that is announced after a box takes precedence over it, and a choice over a box with none.
  const isLater = boxed !== undefined && phrase !== undefined && phrase.at > boxed.at;
  const chooses =
    isLater &&
    expect === 'choice' &&
    letterOf(boxed.text) === undefined &&
    letterOf(answerIn(phrase.text, expect)?.answer ?? '') !== undefined;
  if (boxed !== undefined && !(isLater && (phrase.isFinal || chooses))) return found(boxed.text, 'boxed');
  const marker = spoken.lastIndexOf('####');
  if (marker >= 0)
    return found(withoutDerivation(sentence(spoken.slice(marker).replace(/^#+/, ''))), 'marker');
  if (phrase !== undefined) {
    const said = answerIn(phrase.text, expect);
    if (said !== undefined) return found(said.answer, 'phrase');
    if (boxed !== undefined) return found(boxed.text, 'boxed');
  }
  const letter = expect === 'choice' ? lastChoice(spoken) : undefined;
  const whole = spoken.slice(body);
  if (letter === undefined && isBare(whole)) return found(withoutDerivation(whole.trim()), 'whole');
  const value = lastValue(spoken);
  const isDeclined =
    value !== undefined && DECLINES.test(spoken.slice(Math.max(0, value.at - 200), value.at));
  const last =
    letter ?? (value && !isDeclined ? ownValue(value, spoken, DENIES) : undefined) ?? lastChoice(spoken);
  return last && found(last.answer, last.method);
}

/** The sentence behind the last phrase that announces an answer: `January 5, 2021`, of which the answer is 2021. */
export function announced(text: string, { inReasoning = false }: ExtractionOptions = {}): string | undefined {
  return lastPhrase(spokenPart(text, inReasoning).spoken)?.text;
}

/** Cuts a text to what counts of it, and finds where its words begin. */
function spokenPart(text: string, inReasoning: boolean): { readonly spoken: string; readonly body: number } {
  const { text: read, body } = withoutMarkdown(tagged(withoutReasoning(text, inReasoning)), isBare);
  return { spoken: withoutRunOn(read), body };
}

const REASONING_END = /<\/(?:think|thinking|thought|reasoning)>/gi;
const REASONING_BEGIN = /^\s*<(?:think|thinking|thought|reasoning)>/i;
/** Texts of the tokens that end a turn; `</s>` in the middle ends words that are struck out. */
const TURN =
  /<\|(?:im_start|im_end|endoftext|eot_id|eom_id|end_of_text|return)\|>|<end_of_turn>|<eos>|<｜end▁of▁sentence｜>|<\/s>\s*$/;

/** The text after the reasoning, up to the end of the turn; empty if the reasoning never ends. */
function withoutReasoning(text: string, isOpened: boolean): string {
  const end = text.search(TURN);
  const turn = end < 0 ? text : text.slice(0, end);
  let start = 0;
  for (const match of turn.matchAll(REASONING_END)) start = match.index + match[0].length;
  return start === 0 && (isOpened || REASONING_BEGIN.test(turn)) ? '' : turn.slice(start);
}

/** Whether a text ends within reasoning: one that began, in it or in its prompt, and has no end. */
export function endsInReasoning(text: string, isOpened: boolean): boolean {
  return (isOpened || REASONING_BEGIN.test(text)) && text.search(REASONING_END) < 0;
}

/** The text between the last `<answer>` and its end, as R1-Zero's prompt asks for it; all of the text without one. */
function tagged(text: string): string {
  const begin = text.toLowerCase().lastIndexOf('<answer>');
  if (begin < 0) return text;
  const [inside = ''] = text.slice(begin + '<answer>'.length).split(/<\/answer>/i);
  return inside.trim() === '' ? text : inside;
}

/** The text up to a question that it goes on with after its `####`, as a base model does: what follows answers another. */
function withoutRunOn(text: string): string {
  const marker = text.indexOf('####');
  const next = marker < 0 ? -1 : text.slice(marker).search(/^[ \t#*]*(?:Question|Problem|Q)[ \t]*\d*\**:/m);
  return next < 0 ? text : text.slice(0, marker + next);
}

const PHRASE =
  /(final\s+answer|answer)\*{0,2}\s*(?::|=|is\s+therefore|is\b|(?:would|must|could|may|might)\s+be\b)\s*\*{0,2}|\bthe\s+(?:(?:final|two|three|possible)\s+)?answers(?:\s+are\b|\s*:)|^[ \t]*A:\s|^[#* ]{0,8}answer\**\s{1,3}(?=\S)|(?:最终|最後)?答案(?:是|为|為)?\*{0,2}\s?[:：]?/gim;
const FILLER =
  /^(?:\s|[:*]|(?:is|the|final|answer|option|choice|indeed|simply|just|either|approximately|about|then|thus|=)\b|=)+/i;

const MAX_SENTENCE = 2000;

interface Phrase extends Found {
  readonly isFinal: boolean;
}

/** The sentence behind the last announcement of an answer that is not empty. */
function lastPhrase(text: string): Phrase | undefined {
  for (const match of [...text.matchAll(PHRASE)].reverse()) {
    const end = match.index + match[0].length;
    const rest = text.slice(end, end + MAX_SENTENCE).replace(FILLER, '');
    const said = sentence(rest);
    // Whoever asks `The answer is 5?` and goes on says the answer afterwards.
    const isAsked = /^\s*[?？]\s*\S/.test(rest.slice(rest.indexOf(said) + said.length));
    if (said !== '' && !isAsked) return { at: match.index, text: said, isFinal: /final|最/i.test(match[0]) };
  }
  return undefined;
}

/** The text up to the end of the sentence or line. Full stops in numbers and formulas do not end it. */
function sentence(rest: string): string {
  const text = rest.slice(0, MAX_SENTENCE);
  let dollars = 0;
  let depth = 0;
  let at = 0;
  for (; at < text.length; at++) {
    const character = text[at]!;
    if (character === '\\') {
      if (text[at + 1] === '(' || text[at + 1] === '[') depth++;
      else if (text[at + 1] === ')' || text[at + 1] === ']') depth--;
      else if (text[at + 1] === '{' || text[at + 1] === '}') depth += text[at + 1] === '{' ? 1 : -1;
      at++;
    } else if (character === '$' && text[at + 1] !== '$') dollars++;
    else if (character === '{') depth++;
    else if (character === '}') depth--;
    else if (character === '\n' && text.slice(0, at).trim() !== '' && depth <= 0 && dollars % 2 === 0) break;
    else if (
      (/[。！？]/.test(character) ||
        (/[.!?]/.test(character) && /^(?:\s|$|\*|<)/.test(text.slice(at + 1, at + 2)))) &&
      depth <= 0
    ) {
      // A dollar sign without a partner is money.
      const isMoney = dollars % 2 === 1 && /^\s*\$\s?[\d,.]+[^$]*$/.test(text.slice(0, at));
      if ((dollars % 2 === 0 || isMoney) && !(character === '!' && text[at + 1] === undefined)) break;
    }
  }
  const said = text.slice(0, at).trim();
  // At the end of a sentence `5!` is an exclamation.
  return text[at] === '.' ? said : said.replace(/(?<=\d)!+$/, '');
}

/** The answer within a sentence that announces one: all of it, the choice it begins with, or its last value. */
function answerIn(said: string, expect: 'any' | 'choice'): { readonly answer: string } | undefined {
  const choice = /^\**\(?([A-Z])\)?\**(?:[.):,]|\s|$)/.exec(said);
  const isOne = !/^\W*[A-Z]\)?\**\s*(?:,|\/|&|or\b|and\b)\s*\(?[A-Z]\b/.test(said);
  if (choice !== null && isOne && (expect === 'choice' || choiceOf(plainForm(normalise(said))) !== undefined))
    return { answer: expect === 'choice' ? choice[1]! : said };
  const plain = withoutDerivation(said);
  const [nothing] = NOTHING.exec(said) ?? [];
  if (nothing !== undefined) return { answer: nothing };
  if (isTakenBack(said)) return { answer: said };
  if (isBare(plain)) return { answer: plain };
  const value = lastValue(said);
  if (value !== undefined) return ownValue(value, said) ?? { answer: said };
  return said.split(/\s+/).length <= 4 ? { answer: said } : undefined;
}

/** Words that say that there is no value: numbers after them are reasons. */
const NOTHING =
  /^(?:undefined|indeterminate|impossible|infinite(?:ly many)?|none|not (?:possible|defined|a real number)|no (?:real |integer )?(?:solutions?|answers?|values?))\b/i;
/** Words before a value that make it another one, or a bound: `not 5`, `less than 5`, `half of 5`, `the sum of 3 and 5`. */
const CHANGES = new RegExp(
  String.raw`(?:\b(?:${[
    "not|isn['’]t|(?:cannot|can['’]t|could not|couldn['’]t|can not) (?:be|equal)|except|above|below|under|over|twice|double|triple|half|divisible by",
    '(?:less|more|greater|fewer|larger|smaller|higher|lower) than|as (?:many|much) as',
    String.raw`one of [^:=]*[,\s]`,
    String.raw`between(?: [^,;:=]*\band)?|from [^,;:=]*\bto`,
    '(?:half|third|quarter|fourth|fifth|tenth|root|square|cube|reciprocal|factorial|multiple)s? of',
    String.raw`(?:sum|product|difference|quotient|average|mean|ratio) (?:of|between) [^,;:=]*\band`,
  ].join('|')})|(?:\$|\\\)|\/\s?\d+|%)\s+of|[<>≠≤≥]|不是|并非|小于|大于|少于|多于)\s*$`,
  'iu',
);
/** A denial before a last number that nothing announces; without one it counts, as in Math-Verify. */
const DENIES =
  /(?:\b(?:not|isn['’]t|(?:cannot|can['’]t|could not|couldn['’]t|can not) (?:be|equal))|不是|并非)\s*$/iu;
/** Words that say, up to a value in the same sentence, that no answer is found. */
const DECLINES =
  /\b(?:cannot|can['’]t|can not|could not|couldn['’]t|unable to|not able to|impossible to|not possible to) (?:be )?(?:determined?|solved?|answer(?:ed)?|known)\b(?![^.!?]*\b(?:but|however|so|thus|hence|therefore|yet)\b)[^.!?;:=\n]*$/i;
const MINUS = /(?:^|[^\d\s])\s*\b(?:minus|negative)\s*$/i;

/**
 * A value with the sign that the words before it give: `minus 5` is -5. Undefined where they say that the answer is
 * another.
 */
function ownValue<T extends Value>(value: T, text: string, changes = CHANGES): T | undefined {
  const before = text.slice(Math.max(0, value.at - 100), value.at);
  if (changes.test(before)) return undefined;
  return MINUS.test(before) && /^\s?\d/.test(value.answer) ? { ...value, answer: `-${value.answer}` } : value;
}

/** `5, which is wrong`. */
function isTakenBack(said: string): boolean {
  return /\b(?:(?:is|was|be|seems) (?:wrong|incorrect|false|not (?:right|correct|true))|\(?(?:wrong|incorrect)\)?)\W*$/i.test(
    said,
  );
}

const TYPED = /\\(?:text\w*|mbox|mathrm)\s?\{[^{}]*\}/g;
const COMMANDS = /\\(?:begin|end)\{[a-z]*\}|\\[a-zA-Z]+/g;

/** Whether the text is only an answer: a formula, a value with its unit, a few words. */
function isBare(text: string): boolean {
  const trimmed = text.trim();
  if (trimmed === '' || trimmed.length > MAX_SENTENCE) return false;
  const withoutMath = trimmed.replace(/\$[^$]*\$|\\\([\s\S]*?\\\)|\\\[[\s\S]*?\\\]/g, ' ');
  const outside = withoutMath.replace(TYPED, ' ').replace(COMMANDS, ' ');
  const words = (outside.match(/\p{L}[\p{L}'’]{2,}/gu) ?? []).filter((word) => word !== 'and');
  if (/[.!?]\s+\p{Lu}/u.test(outside) || /\b(?:is|as|so|we|it|be|are|was)\b/.test(outside)) return false;
  if (/[\d$\\]/.test(trimmed)) {
    // Words may follow a value as its unit, but not precede it.
    const isNamed = /^[\s*]*(?!(?:sqrt|pi|sin|cos|tan|log|ln|and|or)\b)\p{L}[\p{L}'’]+(?:\s|\p{Nd})/u.test(
      withoutMath,
    );
    return words.length <= 3 && !isNamed;
  }
  return words.length <= 2;
}

interface Value {
  readonly at: number;
  readonly answer: string;
  readonly method: ExtractionMethod;
}

const NUMBER =
  /(?<![\w.\\^_{])[-−]?\s?(?:\\?[$€£])?\s?(?:\d+\s\d+\/\d+|(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|[1-9]\d{0,2}(?: \d{3}){1,6}(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?(?:\s?\/\s?\d+)?)(?:\s?(?:\\?%|percent\b|pct\b|(?:thousand|million|billion|trillion)\b))?/g;

/** The last formula, or the last number outside formulas, whichever comes later. */
function lastValue(text: string): Value | undefined {
  let math: Value | undefined;
  let outside = '';
  let end = 0;
  for (const formula of formulas(text)) {
    const content = formula.text.trim();
    if (content === '' || isProse(content)) continue;
    math = { at: formula.at, answer: content + unitAfter(text, formula.end), method: 'math' };
    outside += text.slice(end, formula.at) + '\n'.repeat(formula.end - formula.at);
    end = formula.end;
  }
  outside += text.slice(end);
  const plain = lastPlain(outside);
  const number: Value | undefined =
    plain === undefined ? lastNumber(outside) : { at: plain.at, answer: plain.text, method: 'number' };
  if (math === undefined || number === undefined) return math ?? number;
  return number.at > math.at ? number : math;
}

function lastNumber(text: string): Value | undefined {
  let number: Value | undefined;
  for (const match of text.matchAll(NUMBER))
    number = { at: match.index, answer: match[0].trim(), method: 'number' };
  return number;
}

/** Dollar signs around words are money, not mathematics. */
function isProse(content: string): boolean {
  const plain = content.replace(TYPED, ' ').replace(COMMANDS, ' ');
  return (
    (plain.match(/(?<![\p{L}])\p{Ll}{3,}(?![\p{L}])/gu) ?? []).length >= 2 ||
    /^[\d.,]+\s(?!or\b|and\b)[a-z]{2,}/.test(plain)
  );
}

/** A letter in brackets or after `option`, there also a small one; alone one of the first ten: later ones name values. */
const CHOICE =
  /(?<![\p{L}\d'’])(?:\(([A-Z])\)|(?<=\b(?:[Oo]ption|[Cc]hoice)(?: is)? )(?:([A-Z])|\(?([a-h])\)?(?=[.,:)]|\s*$|\s+is\b))|\(?([A-J])\)?)(?![\p{L}\d'’])/gu;

function lastChoice(text: string): Value | undefined {
  let last: Value | undefined;
  for (const match of text.matchAll(CHOICE)) {
    const [, bracketed, named, small, bare] = match;
    const letter = bracketed ?? named ?? small ?? (bare as string);
    // "A" before a small word is an article, and "I" is a person.
    const isWord =
      bare === 'I' || (bare === 'A' && /^A\s\p{Ll}/u.test(text.slice(match.index, match.index + 3)));
    if (DENIES.test(text.slice(Math.max(0, match.index - 20), match.index))) continue;
    if (!isWord) last = { at: match.index, answer: letter, method: 'choice' };
  }
  return last;
}
