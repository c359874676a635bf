/** Normalizers of text, as in Hugging Face's Rust library. */
import { precompiled, sentencePiece } from './charsmap.js';
import { type Part, partsOf, patternOf, replaced, unknownPart } from './patterns.js';

type Normalizer = (text: string) => string;

/** @throws Error for a normalizer that is not known */
export function normalizerOf(json: unknown): Normalizer | undefined {
  const steps = partsOf(json, 'normalizers').map(stepOf);
  if (steps.length === 0) return undefined;
  return (text) => steps.reduce((now, step) => step(now), text);
}

function stepOf(part: Part): Normalizer {
  switch (part.type) {
    case 'NFC':
    case 'NFD':
    case 'NFKC':
    case 'NFKD':
      return (text) => text.normalize(part.type as string);
    case 'Lowercase':
      return lowercase;
    case 'StripAccents':
      return (text) => text.replace(/\p{M}/gu, '');
    case 'Prepend':
      return (text) => (text === '' ? text : String(part.prepend) + text);
    case 'Replace': {
      const [pattern, content] = [patternOf(part.pattern), String(part.content ?? '')];
      return (text) => replaced(text, pattern, content);
    }
    case 'Strip':
      return strip(part);
    case 'BertNormalizer':
      return bert(part);
    case 'Precompiled':
      return precompiled(part.precompiled_charsmap);
    // Only gguf-tokenizer.ts makes this part; no tokenizer.json has it.
    case 'SentencePiece':
      return sentencePiece(part.precompiled_charsmap, part.remove_extra_whitespaces === true);
    default:
      return unknownPart('normalizer', part);
  }
}

/** Character by character: a final sigma is one like any other. */
const lowercase = (text: string) => Array.from(text, (character) => character.toLowerCase()).join('');

function strip({ strip_left: left, strip_right: right }: Part): Normalizer {
  const ends = [left === true && '^\\p{White_Space}+', right === true && '\\p{White_Space}+$'];
  const pattern = new RegExp(ends.filter(Boolean).join('|') || '(?!)', 'gu');
  return (text) => text.replace(pattern, '');
}

const CHINESE =
  /[\u4E00-\u9FFF\u3400-\u4DBF\u{20000}-\u{2A6DF}\u{2A700}-\u{2B73F}\u{2B740}-\u{2B81F}\u{2B920}-\u{2CEAF}\uF900-\uFAFF\u{2F800}-\u{2FA1F}]/gu;

function bert({
  clean_text: cleans,
  handle_chinese_chars: chinese,
  strip_accents: accents,
  lowercase: lower,
}: Part): Normalizer {
  return (given) => {
    let text = given;
    if (cleans !== false)
      text = text.replace(/(?![\t\n\r])[\0\uFFFD\p{Cc}\p{Cf}\p{Co}]/gu, '').replace(/\p{White_Space}/gu, ' ');
    if (chinese !== false) text = text.replace(CHINESE, (character) => ` ${character} `);
    if (accents ?? lower !== false) text = text.normalize('NFD').replace(/\p{Mn}/gu, '');
    return lower === false ? text : lowercase(text);
  };
}
