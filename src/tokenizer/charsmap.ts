/** SentencePiece's compiled map of characters: a trie of what is replaced, and the texts in its place. */

type Normalizer = (text: string) => string;

/** Units of the trie, and the texts that its leaves point to, each ended by a zero byte. */
interface Charsmap {
  readonly units: Uint32Array;
  readonly texts: Uint8Array;
}

const FLAG = 0x80000000;
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
const encoder = new TextEncoder();

/**
 * Normalizes as `tokenizers` does with a `Precompiled` part, which is not SentencePiece's way: of a grapheme of less
 * than six bytes the shortest beginning that the map knows replaces the whole; in others each character is looked up.
 *
 * @throws Error for bytes that are no map
 */
export function precompiled(base64: unknown): Normalizer {
  const map = charsmapOf(base64);
  const graphemes = new Intl.Segmenter('und', { granularity: 'grapheme' });
  const known = new Map<string, string>();
  const normalized = (grapheme: string) => {
    const bytes = encoder.encode(grapheme);
    const whole = bytes.length < 6 ? prefixes(map, bytes, 0)[0] : undefined;
    if (whole) return whole.text;
    return Array.from(grapheme, (character) => {
      const found = prefixes(map, encoder.encode(character), 0)[0];
      return found ? found.text : character;
    }).join('');
  };
  const replacement = (grapheme: string) => {
    const before = known.get(grapheme);
    if (before !== undefined) return before;
    const now = normalized(grapheme);
    if (known.size < 10_000) known.set(grapheme, now);
    return now;
  };
  const changed = Array.from({ length: 128 }, (_, code) => String.fromCharCode(code)).filter(
    (character) => replacement(character) !== character,
  );
  const isChanged = new RegExp(`[${changed.join('').replace(/[\\\]^-]/g, '\\$&')}]`, 'g');
  return (text) =>
    text.replace(STRETCHES, (stretch, alone: string | undefined) => {
      if (alone !== undefined) return alone.replace(isChanged, replacement);
      let all = '';
      for (const { segment } of graphemes.segment(stretch)) all += replacement(segment);
      return all;
    });
}

const ALONE = '(?<![^\\t\\n -~])[\\t\\n -~](?![^\\t\\n -~])';
/** Characters of ASCII between others of it, each a grapheme of its own (the group), and what is between these. */
const STRETCHES = new RegExp(`((?:${ALONE})+)|(?:(?!${ALONE})[\\s\\S])+`, 'g');

/**
 * Normalizes as SentencePiece does: at each place the longest beginning that the map knows is replaced.
 * With `squeezes` spaces are taken from the ends, and several within are one.
 *
 * @throws Error for bytes that are no map
 */
export function sentencePiece(base64: unknown, squeezes: boolean): Normalizer {
  const mapped = base64 === undefined ? (text: string) => text : longestFirst(charsmapOf(base64));
  return squeezes ? (text) => mapped(text).split(/ +/).filter(Boolean).join(' ') : mapped;
}

function longestFirst(map: Charsmap): Normalizer {
  return (text) => {
    const bytes = encoder.encode(text);
    let [all, from, at] = ['', 0, 0];
    while (at < bytes.length) {
      const longest = prefixes(map, bytes, at).at(-1);
      if (longest) {
        all += decoder.decode(bytes.subarray(from, at)) + longest.text;
        at += longest.bytes;
        from = at;
      } else at += bytesOfCharacter(bytes[at] as number);
    }
    return all + decoder.decode(bytes.subarray(from));
  };
}

const bytesOfCharacter = (first: number) => (first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4);

function charsmapOf(base64: unknown): Charsmap {
  const bytes = Buffer.from(typeof base64 === 'string' ? base64 : '', 'base64');
  const size = bytes.length >= 4 ? bytes.readUInt32LE(0) : 0;
  if (size < 4 || size % 4 !== 0 || 4 + size > bytes.length)
    throw new Error('precompiled_charsmap: expected the base64 of a compiled map of characters');
  const units = new Uint32Array(size / 4);
  for (let i = 0; i < units.length; i += 1) units[i] = bytes.readUInt32LE(4 + 4 * i);
  return { units, texts: bytes.subarray(4 + size) };
}

/** The beginnings of the bytes from `at` on that the map knows, from the shortest to the longest. */
function prefixes({ units, texts }: Charsmap, bytes: Uint8Array, at: number) {
  const found: { readonly bytes: number; readonly text: string }[] = [];
  let node = offsetOf(units[0] as number);
  for (let i = at; i < bytes.length && bytes[i] !== 0; i += 1) {
    node ^= bytes[i] as number;
    const unit = units[node];
    // A unit of a leaf has the flag, and so never the byte's label.
    if (unit === undefined || (unit & (FLAG | 0xff)) >>> 0 !== bytes[i]) break;
    node ^= offsetOf(unit);
    if ((unit >>> 8) & 1) {
      const start = (units[node] ?? 0) & ~FLAG;
      const end = texts.indexOf(0, start);
      found.push({
        bytes: i + 1 - at,
        text: decoder.decode(texts.subarray(start, end < 0 ? undefined : end)),
      });
    }
  }
  return found;
}

const offsetOf = (unit: number) => (unit >>> 10) << ((unit & 0x200) >>> 6);
