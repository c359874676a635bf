/** Decoders of tokens to text, as in Hugging Face's Rust library. */
import { attempt } from '../native/attempt.js';
import { type Part, partsOf, patternOf, replaced, unknownPart } from './patterns.js';
import { prependScheme } from './pre-tokenizers.js';
import { byteOf, spellingOf } from './token-bytes.js';

/** The text of tokens. */
export type Decoder = (tokens: readonly string[]) => string;

type Chain = (tokens: readonly string[]) => string[];

/** U+FEFF is a character like any other. */
const utf8 = (fatal: boolean) => new TextDecoder('utf-8', { fatal, ignoreBOM: true });

/** @throws Error for a decoder that is not known */
export function decoderOf(json: unknown): Decoder | undefined {
  const chains = partsOf(json, 'decoders').map(chainOf);
  if (chains.length === 0) return undefined;
  return (tokens) => chains.reduce((all, chain) => chain(all), [...tokens]).join('');
}

function chainOf(part: Part): Chain {
  switch (part.type) {
    case 'ByteLevel': {
      const spelling = spellingOf(part) as (token: string) => Uint8Array;
      return (tokens) => [utf8(false).decode(Buffer.concat(tokens.map(spelling)))];
    }
    case 'Metaspace':
      return metaspace(part);
    case 'Replace': {
      const [pattern, content] = [patternOf(part.pattern), String(part.content ?? '')];
      return (tokens) => tokens.map((token) => replaced(token, pattern, content));
    }
    case 'ByteFallback':
      return fallback;
    case 'Fuse':
      return (tokens) => [tokens.join('')];
    case 'Strip':
      return strip(part);
    case 'WordPiece':
      return wordPiece(part);
    case 'BPEDecoder': {
      const suffix = String(part.suffix ?? '</w>');
      return (tokens) =>
        tokens.map((token, i) => token.replaceAll(suffix, i === tokens.length - 1 ? '' : ' '));
    }
    default:
      return unknownPart('decoder', part);
  }
}

/** Replaces the marks of spaces. The first token loses them, unless texts get none in front. */
function metaspace(part: Part): Chain {
  const mark = String(part.replacement ?? '▁');
  const first = prependScheme(part) === 'never' ? ' ' : '';
  return (tokens) => tokens.map((token, i) => token.replaceAll(mark, i === 0 ? first : ' '));
}

/** Bytes in a row are one text; where they are none, each is U+FFFD. */
function fallback(tokens: readonly string[]): string[] {
  const all: string[] = [];
  let bytes: number[] = [];
  const end = () => {
    if (bytes.length === 0) return;
    const text = attempt(() => utf8(true).decode(Uint8Array.from(bytes)));
    all.push(text ?? '\uFFFD'.repeat(bytes.length));
    bytes = [];
  };
  for (const token of tokens) {
    const byte = byteOf(token);
    if (byte !== undefined) {
      bytes.push(byte);
      continue;
    }
    end();
    all.push(token);
  }
  end();
  return all;
}

/** Takes up to `start` and `stop` of a character away from both ends of each token. */
function strip({ content, start, stop }: Part): Chain {
  const [most, least] = [Number(start ?? 0), Number(stop ?? 0)];
  return (tokens) =>
    tokens.map((token) => {
      const characters = [...token];
      const has = (i: number) => characters[i] === content;
      let begin = 0;
      while (begin < most && has(begin)) begin++;
      let end = characters.length;
      while (characters.length - end < least && has(end - 1)) end--;
      return characters.slice(begin, end).join('');
    });
}

/** Replacements of WordPiece's `cleanup`, in order. */
const CLEANED = [
  [' .', '.'],
  [' ?', '?'],
  [' !', '!'],
  [' ,', ','],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [' do not', " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
] as const;

function wordPiece({ prefix: given, cleanup }: Part): Chain {
  const prefix = String(given ?? '##');
  const clean = (token: string) => CLEANED.reduce((text, [from, to]) => text.replaceAll(from, to), token);
  return (tokens) =>
    tokens.map((token, i) => {
      const whole = i === 0 ? token : token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
      return cleanup === false ? whole : clean(whole);
    });
}
