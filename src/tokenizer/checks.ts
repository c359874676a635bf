// Checks a tokenizer.json before the library reads it, which accepts invalid ids and builds a list as long as the
// largest.
import { badTokenizer } from '../files/data-error.js';
import { shown } from '../native/shown.js';

/** The parts of tokenizer.json used here; the library reads the rest. */
export interface TokenizerJson {
  readonly model: { readonly type?: string; readonly vocab?: unknown; readonly merges?: unknown };
  readonly added_tokens: readonly AddedTokenJson[];
  readonly normalizer: unknown;
  readonly pre_tokenizer: unknown;
  readonly post_processor: unknown;
  readonly decoder: unknown;
}

interface JsonModel {
  readonly continuing_subword_prefix?: unknown;
  readonly dropout?: unknown;
}

export interface AddedTokenJson {
  readonly id: number;
  readonly content: string;
  readonly special?: boolean;
}

/** More tokens than any vocabulary has; the library's memory follows the largest id. */
const MAX_ID = 2 ** 24;

/** Levels of lists and objects in a part; sequences of sequences need a few. */
const MAX_DEPTH = 64;

const MODEL_TYPES = ['BPE', 'Unigram', 'WordPiece'];

const PARTS = ['model', 'added_tokens', 'normalizer', 'pre_tokenizer', 'post_processor', 'decoder'];

/** @throws DataError that names the file and its error */
export function checkedTokenizer(json: Readonly<Record<string, unknown>>, file: string): TokenizerJson {
  const refuse = (what: string): never => {
    throw badTokenizer(what, { file });
  };
  const absent = PARTS.filter((key) => !Object.hasOwn(json, key));
  if (absent.length > 0)
    refuse(`lacks ${absent.map((key) => `'${key}'`).join(', ')}; it is not a tokenizer.json`);
  const deep = PARTS.slice(1).find((key) => isDeeper(json[key], MAX_DEPTH));
  if (deep !== undefined) refuse(`'${deep}' is nested deeper than ${MAX_DEPTH} levels`);
  const { vocab, ...model } = (json.model ?? {}) as TokenizerJson['model'] & JsonModel;
  const type = model.type ?? typeByKeys({ vocab, ...model });
  if (type !== undefined && !MODEL_TYPES.includes(type))
    refuse(`has a model of type ${shown(type)}; expected ${MODEL_TYPES.join(', ')}`);
  if (Array.isArray(vocab)) checkPieces(vocab, refuse);
  else if (type === 'Unigram') refuse("'model.vocab' is no list of pieces with their scores");
  else checkIds(vocab, refuse);
  if (type === undefined) refuse(`does not say 'model.type'; expected one of ${MODEL_TYPES.join(', ')}`);
  // Neither is computed here.
  if (model.continuing_subword_prefix && type === 'BPE')
    refuse(
      `has 'model.continuing_subword_prefix' ${shown(model.continuing_subword_prefix)}; expected none in BPE`,
    );
  if (model.dropout)
    refuse(`has 'model.dropout' ${shown(model.dropout)}, which cuts at random; expected none`);
  const { added_tokens: added } = json;
  const isToken = (token: unknown): boolean => {
    const { id, content } = (token ?? {}) as { id?: unknown; content?: unknown };
    return Number.isInteger(id) && typeof content === 'string';
  };
  if (!Array.isArray(added) || !added.every(isToken))
    return refuse("'added_tokens' is not a list of tokens with id and content");
  checkAddedTokens(added as TokenizerJson['added_tokens'], 'added_tokens', file);
  return { ...json, model: { ...(json.model as object), type } } as unknown as TokenizerJson;
}

/** The type of a model that does not name it, as old files do. */
function typeByKeys(model: JsonModel & Pick<TokenizerJson['model'], 'vocab' | 'merges'>): string | undefined {
  if (Array.isArray(model.vocab)) return 'Unigram';
  if (model.merges !== undefined) return 'BPE';
  return typeof model.continuing_subword_prefix === 'string' ? 'WordPiece' : undefined;
}

/** @throws DataError for a token with an id that is none */
export function checkAddedTokens(tokens: TokenizerJson['added_tokens'], key: string, file: string): void {
  for (const { id, content } of tokens)
    if (!isId(id)) throw badTokenizer(badId(`'${key}': ${shown(content)}`, id), { file });
}

/** Throws the error that a tokenizer.json has. */
export type Refuse = (what: string) => never;

/** The vocabulary of a Unigram model: each place is an id. */
function checkPieces(pieces: readonly unknown[], refuse: Refuse): void {
  const bad = pieces.findIndex(
    (piece) => !Array.isArray(piece) || typeof piece[0] !== 'string' || typeof piece[1] !== 'number',
  );
  if (bad >= 0)
    refuse(`'model.vocab': expected a piece and its score at place ${bad}, found ${shown(pieces[bad])}`);
}

function checkIds(vocab: unknown, refuse: Refuse): void {
  if (typeof vocab !== 'object' || vocab === null)
    refuse(`'model.vocab': expected tokens with their ids, found ${shown(vocab)}`);
  const ids = vocab as Readonly<Record<string, unknown>>;
  for (const token in ids) if (!isId(ids[token])) refuse(badId(`'model.vocab': ${shown(token)}`, ids[token]));
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((entry) => isDeeper(entry, levels - 1));
}

function isId(id: unknown): id is number {
  return Number.isInteger(id) && (id as number) >= 0 && (id as number) < MAX_ID;
}

function badId(what: string, id: unknown): string {
  return `${what} has the id ${shown(id)}; expected a whole number from 0 to ${MAX_ID - 1}`;
}
