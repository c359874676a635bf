import type { TokenizerJson } from './checks.js';

/** How GPT-2 splits text; what a byte-level pre-tokenizer does unless `use_regex` is off. */
const GPT2_PATTERN = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/**
 * The same tokenizer with Unicode's definition of white space. In two places the library uses JavaScript's definition,
 * which includes U+FEFF and excludes U+0085, and so splits text with them unlike every other implementation. Both are
 * rewritten as a pattern, in which the library translates `\s` correctly.
 */
export function withUnicodeWhiteSpace(json: TokenizerJson): TokenizerJson {
  return { ...json, normalizer: rewrite(json.normalizer), pre_tokenizer: rewrite(json.pre_tokenizer) };
}

function rewrite(part: unknown): unknown {
  if (typeof part !== 'object' || part === null) return part;
  const component = part as Readonly<Record<string, unknown>>;
  if (component.type === 'Sequence') {
    const key = 'normalizers' in component ? 'normalizers' : 'pretokenizers';
    return { ...component, [key]: (component[key] as unknown[]).map(rewrite) };
  }
  // With add_prefix_space the space must be added before the split, which only the library's own path does.
  if (
    component.type === 'ByteLevel' &&
    component.use_regex !== false &&
    component.add_prefix_space !== true
  ) {
    const split = { type: 'Split', pattern: { Regex: GPT2_PATTERN }, behavior: 'Isolated', invert: false };
    return { type: 'Sequence', pretokenizers: [split, { ...component, use_regex: false }] };
  }
  if (component.type === 'Strip') {
    const ends = [
      component.strip_left && String.raw`\A\s+`,
      component.strip_right && String.raw`\s+\z`,
    ].filter(Boolean);
    return { type: 'Replace', pattern: { Regex: ends.join('|') }, content: '' };
  }
  return part;
}
