/** The bytes of single tokens: a UTF-8 character may begin in one token and end in another. */

/** Turns the spelling of a token in the vocabulary into bytes. */
type Spelling = (token: string) => Uint8Array;

/** The printable character for each byte in byte-level vocabularies (GPT-2's table). */
export function byteCharacters(): string[] {
  const printable = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
}

/**
 * The decoder of a tokenizer.json for tokens that continue a text, without its treatment of the beginning of a text
 * (removing a space). Undefined for a decoder that does not work token by token.
 */
export function spellingOf(decoder: unknown): Spelling | undefined {
  const parts = flatten(decoder);
  if (parts.some(({ type }) => type === 'ByteLevel')) return byteLevel();
  const replacements: [string, string][] = [];
  let byteFallback = false;
  for (const { type, pattern, content, replacement } of parts) {
    switch (type) {
      case 'Replace': {
        const text = (pattern as { String?: unknown } | undefined)?.String;
        if (typeof text !== 'string' || typeof content !== 'string') return undefined;
        replacements.push([text, content]);
        break;
      }
      case 'Metaspace':
        replacements.push([typeof replacement === 'string' ? replacement : '▁', ' ']);
        break;
      case 'ByteFallback':
        byteFallback = true;
        break;
      case 'Fuse':
      case 'Strip':
        break;
      default:
        return undefined;
    }
  }
  if (parts.length === 0) return undefined;
  return (token) => {
    const byte = byteFallback ? byteOf(token) : undefined;
    if (byte !== undefined) return Uint8Array.of(byte);
    return utf8(replacements.reduce((text, [from, to]) => text.replaceAll(from, to), token));
  };
}

function flatten(decoder: unknown): Readonly<Record<string, unknown>>[] {
  if (typeof decoder !== 'object' || decoder === null) return [];
  const component = decoder as Readonly<Record<string, unknown>>;
  return component.type === 'Sequence' ? (component.decoders as unknown[]).flatMap(flatten) : [component];
}

function byteLevel(): Spelling {
  const bytes = new Map(byteCharacters().map((character, byte) => [character, byte]));
  return (token) => {
    const found = Array.from(token, (character) => bytes.get(character));
    // A token with any other character is its own text, as added ones are.
    return found.includes(undefined) ? utf8(token) : Uint8Array.from(found as number[]);
  };
}

/** The ids of the tokens such as `<0x0A>` of a text's bytes; undefined where the vocabulary lacks one. */
export function byteTokens(text: string, idOf: (token: string) => number | undefined): number[] | undefined {
  const ids: number[] = [];
  for (const byte of utf8(text)) {
    const id = idOf(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
    if (id === undefined) return undefined;
    ids.push(id);
  }
  return ids;
}

/** The byte that a token such as `<0x0A>` is. */
export function byteOf(token: string): number | undefined {
  const [, digits] = /^<0x([0-9A-Fa-f]{2})>$/.exec(token) ?? [];
  return digits === undefined ? undefined : Number.parseInt(digits, 16);
}

export function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
