// Tokens that tokenizer_config.json names and tokenizer.json lacks.
import { badTokenizer } from '../files/data-error.js';
import { type AddedTokenJson, checkAddedTokens, type TokenizerJson } from './checks.js';

/** Keys of special tokens, in the order in which transformers adds them. Beginning and end of text must be there already. */
const NAMED = ['unk_token', 'sep_token', 'pad_token', 'cls_token', 'mask_token'];

/** Keys of further special tokens: a list, or an object of them by name. */
const FURTHER = ['extra_special_tokens', 'additional_special_tokens'];

/** More than any configuration names. */
const MAX_TOKENS = 100_000;

type Config = Readonly<Record<string, unknown>>;
type Named = Omit<AddedTokenJson, 'id'>;

/**
 * The tokenizer with the tokens that only its configuration names, as transformers adds them: with the id that the vocabulary has for
 * their text, else with the next free ones.
 *
 * @throws DataError for a token with an id that is none
 */
export function withConfiguredTokens(tokenizer: TokenizerJson, config: Config, file: string): TokenizerJson {
  const known = new Set(tokenizer.added_tokens.map(({ content }) => content));
  const missing = new Map<string, Named>();
  for (const token of [...listed(config, file), ...special(config)])
    if (!known.has(token.content) && !missing.has(token.content)) missing.set(token.content, token);
  if (missing.size === 0) return tokenizer;
  if (missing.size > MAX_TOKENS)
    throw badTokenizer(`names ${missing.size} tokens that are not in it`, { file });
  const ids = vocabularyOf(tokenizer);
  let next = tokenizer.added_tokens.reduce((most, { id }) => Math.max(most, id + 1), ids.size);
  const own = [...missing.values()].map((token): AddedTokenJson => {
    const id = ids.get(token.content) ?? next++;
    return { ...token, id };
  });
  return { ...tokenizer, added_tokens: [...tokenizer.added_tokens, ...own] };
}

/** A special token in tokenizer_config.json: its text, or an object with it. */
export function tokenText(entry: unknown): string | undefined {
  if (typeof entry === 'string') return entry;
  const content = (entry as { content?: unknown } | null | undefined)?.content;
  return typeof content === 'string' ? content : undefined;
}

/** Those of `added_tokens_decoder`, by their ids. */
function listed({ added_tokens_decoder: decoder }: Config, file: string): Named[] {
  if (typeof decoder !== 'object' || decoder === null) return [];
  const tokens = Object.entries(decoder as Record<string, Named | null>)
    .filter(([, token]) => typeof token?.content === 'string')
    .map(([id, token]) => ({ ...(token as Named), id: Number(id) }));
  checkAddedTokens(tokens, 'added_tokens_decoder', file);
  return tokens.toSorted((a, b) => a.id - b.id);
}

function special(config: Config): Named[] {
  const further = FURTHER.flatMap((key) => {
    const tokens = config[key];
    return typeof tokens === 'object' && tokens !== null ? (Object.values(tokens) as unknown[]) : [];
  });
  return [...NAMED.map((key) => config[key]), ...further].flatMap((token) => {
    const content = tokenText(token);
    if (content === undefined || content === '') return [];
    const settings = typeof token === 'object' ? token : {};
    return [
      {
        lstrip: false,
        rstrip: false,
        normalized: false,
        single_word: false,
        ...settings,
        content,
        special: true,
      },
    ];
  });
}

/** Ids of the model's pieces. */
function vocabularyOf({ model: { vocab } }: TokenizerJson): ReadonlyMap<string, number> {
  if (Array.isArray(vocab)) return new Map(vocab.map(([piece]: [string], id) => [piece, id]));
  return new Map(Object.entries((vocab ?? {}) as Record<string, number>));
}
