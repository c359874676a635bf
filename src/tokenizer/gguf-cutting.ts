/** Pre-tokenizers by llama.cpp's names (`tokenizer.ggml.pre`): the patterns that the models were trained with. */
import { isDeepStrictEqual } from 'node:util';
import type { JsonObject, JsonValue } from '../weights/json.js';

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const spaced = (digits: string, letter = '\\p{L}', letters = letter) =>
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?${letters}+|${digits}| ?[^\\s${letter}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
const cased = (lower: string, upper: string) =>
  `[^\\r\\n\\p{L}\\p{N}]?${upper}*${lower}+|[^\\r\\n\\p{L}\\p{N}]?${upper}+${lower}*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
const PATTERNS: Readonly<Record<string, string>> = {
  'llama-bpe': spaced('\\p{N}{1,3}'),
  llama3: spaced('\\p{N}{1,3}'),
  'llama-v3': spaced('\\p{N}{1,3}'),
  'smaug-bpe': spaced('\\p{N}{1,3}'),
  dbrx: spaced('\\p{N}{1,3}'),
  qwen2: spaced('\\p{N}'),
  // Marks belong to the letters before them.
  qwen35: spaced('\\p{N}', '\\p{L}\\p{M}', '[\\p{L}\\p{M}]'),
  'deepseek-r1-qwen': spaced('\\p{N}'),
  stablelm2: spaced('\\p{N}'),
  tekken: cased('[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]'),
};
/** GPT-2's own pattern, with each digit apart or not. `default` names none: models of any have it where their converter knew no better. */
const DIGITS_APART = ['smollm', 'starcoder', 'refact', 'command-r', 'codeshell', 'exaone'];
const GPT2 = ['gpt-2', 'gpt2', 'phi-2', 'jina-es', 'jina-de', 'olmo', 'mpt', 'jais'];
/** Whole pre-tokens that are tokens are taken as such, without merges. */
const IGNORE_MERGES = ['llama-bpe', 'llama3', 'llama-v3', 'tekken'];

/** Every name. */
export const CUTTINGS: readonly string[] = [...Object.keys(PATTERNS), ...DIGITS_APART, ...GPT2].sort();

export const BYTE_LEVEL = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };

/** The `pre_tokenizer` of tokenizer.json, or undefined for an unknown name. */
export function cuttingOf(pre: string): JsonValue | undefined {
  if (GPT2.includes(pre)) return BYTE_LEVEL;
  if (DIGITS_APART.includes(pre)) return sequence({ type: 'Digits', individual_digits: true }, BYTE_LEVEL);
  if (!Object.hasOwn(PATTERNS, pre)) return undefined;
  const pattern = { Regex: PATTERNS[pre] as string };
  return sequence(
    { type: 'Split', pattern, behavior: 'Isolated', invert: false },
    { ...BYTE_LEVEL, use_regex: false },
  );
}

const sequence = (...pretokenizers: JsonObject[]): JsonObject => ({ type: 'Sequence', pretokenizers });

/** llama.cpp's name of a `pre_tokenizer`, or undefined where it has none for it. */
export function preOf(preTokenizer: unknown, ignores: boolean): string | undefined {
  const wanted = plain(preTokenizer);
  const names = ['gpt-2', 'smollm', 'llama-bpe', 'qwen2', 'qwen35', 'tekken'];
  return names.find(
    (name) => isDeepStrictEqual(plain(cuttingOf(name)), wanted) && ignoresMerges(name) === ignores,
  );
}

/** A value without parts that do not affect ids. */
function plain(value: unknown): unknown {
  const { type, pretokenizers, ...rest } = (value ?? {}) as Record<string, unknown>;
  if (type === 'Sequence') return (pretokenizers as unknown[]).map(plain);
  if (type !== 'ByteLevel') return { type, ...rest };
  const { trim_offsets: _, ...settings } = rest;
  return { type, add_prefix_space: false, use_regex: true, ...settings };
}

/** Whether whole pre-tokens that are tokens are taken as such, without merges. */
export function ignoresMerges(pre: string): boolean {
  return IGNORE_MERGES.includes(pre);
}

/** Whether text is brought into Unicode's composed form first. */
export function composes(pre: string): boolean {
  return pre === 'qwen2' || pre === 'qwen35' || pre === 'deepseek-r1-qwen';
}
