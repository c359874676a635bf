import { dirname, join } from 'node:path';
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import { writeFileAtomically } from '../files/atomic-file.js';
import { badTokenizer, DataError, reasonOf } from '../files/data-error.js';
import { makeDirectories } from '../files/directory.js';
import { checkText, invalid } from '../native/errors.js';
import { type Timed, withinProcessorTime } from '../native/processor-time.js';
import { shown } from '../native/shown.js';
import { respectAddedTokens } from './added-tokens.js';
import { bytePairsOf } from './byte-pairs.js';
import { renderedWithCalls } from './call-arguments.js';
import { ChatRenderer } from './chat-template.js';
import type { AddedTokenJson, TokenizerJson } from './checks.js';
import { tokenText } from './configured-tokens.js';
import { decoderOf } from './decoders.js';
import { wordEncoder } from './known-words.js';
import { normalizerOf } from './normalizers.js';
import { preTokenizerOf } from './pre-tokenizers.js';
import { spellingOf, utf8 } from './token-bytes.js';
import type {
  ChatMessage,
  ChatTemplateOptions,
  DecodeOptions,
  EncodeOptions,
  Tokenizer,
} from './tokenizer.js';
import type { TokenizerFiles } from './tokenizer-files.js';
import { replaceUnigram } from './unigram.js';

/** Runs of one character, each with another one after it, which make a careless pattern backtrack to its beginning. */
const PROBES = ['a', 'A', '0', ' ', '\n', '.', 'é', 'aB', 'a ', '\u4e2d'].map(
  (part) => `${part.repeat(48)}!\u0001x`,
);
/** Processor time. */
const PROBE_MS = 2000;
/** Max tokens of a character: its bytes, and a normaliser's replacement for it. */
const MAX_GROWTH = 64;

/** A tokenizer described by a tokenizer.json. */
export class HuggingFaceTokenizer implements Tokenizer {
  readonly vocabSize: number;
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
  readonly padId: number | undefined;
  readonly prefixIds: readonly number[];
  readonly suffixIds: readonly number[];

  private readonly json: TokenizerJson;
  private readonly file: string;
  private readonly built: Built;
  private continuation: Built | undefined;
  private readonly chat: ChatRenderer;
  private readonly special: ReadonlySet<number | undefined>;
  private readonly spelling: ReturnType<typeof spellingOf>;

  constructor(private readonly files: TokenizerFiles) {
    this.file = join(files.directory, 'tokenizer.json');
    this.json = files.tokenizer;
    this.built = buildLibrary(this.json, files.config, this.file);
    this.checkProbes();
    // A place for each id, added tokens included.
    this.vocabSize = (this.library as unknown as Internals).model.vocab.length;
    this.bosId = this.specialId('bos_token');
    this.eosId = this.specialId('eos_token');
    this.padId = this.specialId('pad_token', false);
    [this.prefixIds, this.suffixIds] = this.affixes();
    const { additional_special_tokens: additional = [] } = specialTexts(files.config);
    this.special = new Set([
      ...this.json.added_tokens.filter(({ special }) => special).map(({ id }) => id),
      ...(additional as string[]).map((text) => this.library.token_to_id(text)),
    ]);
    this.spelling = spellingOf(this.json.decoder);
    this.chat = new ChatRenderer(files.chatTemplates, specialTexts(files.config));
  }

  private get library(): LibraryTokenizer {
    return this.built.library;
  }

  get hasChatTemplate(): boolean {
    return !this.chat.isEmpty;
  }

  encode(text: string, { addSpecialTokens = true, continuation = false }: EncodeOptions = {}): number[] {
    checkCharacters(text);
    const { library, words } = continuation ? this.forContinuation() : this.built;
    const ids = words?.(text) ?? this.read(library, text);
    if (continuation || !addSpecialTokens) return ids;
    return [...this.prefixIds, ...ids, ...this.suffixIds];
  }

  private read(library: LibraryTokenizer, text: string): number[] {
    const { ids, tokens } = library.encode(text, { add_special_tokens: false });
    const unknown = ids.indexOf(undefined as unknown as number);
    if (unknown < 0) return ids;
    throw this.refused(
      `the vocabulary has no token for ${JSON.stringify(tokens[unknown])} and no unknown-word token`,
    );
  }

  decode(ids: ArrayLike<number>, { skipSpecialTokens = false }: DecodeOptions = {}): string {
    const list = Array.from(ids);
    // The library cannot decode an empty list, and writes "undefined" for an unknown id.
    if (list.length === 0) return '';
    for (const id of list) {
      if (this.library.id_to_token(id) === undefined)
        throw this.refused(`the id ${id} is not in the vocabulary of ${this.vocabSize}`);
    }
    return this.library.decode(list, {
      skip_special_tokens: skipSpecialTokens,
      clean_up_tokenization_spaces: false,
    });
  }

  tokenBytes(id: number): Uint8Array {
    const token = this.library.id_to_token(id);
    if (token === undefined) return new Uint8Array();
    return this.spelling?.(token) ?? utf8(this.decode([id]));
  }

  isSpecial(id: number): boolean {
    return this.special.has(id);
  }

  applyChatTemplate(messages: readonly ChatMessage[], options?: ChatTemplateOptions): string {
    if (!Array.isArray(messages))
      throw invalid(
        `applyChatTemplate: expected a list of messages such as [{ role: 'user', content: '…' }], found ${shown(messages)}`,
      );
    return renderedWithCalls(messages, (given) => this.chat.render(given, options));
  }

  templateReads(name: string, as?: 'variable'): boolean {
    return this.chat.reads(name, as);
  }

  async save(directory: string): Promise<void> {
    for (const [name, content] of this.files.contents) {
      const path = join(directory, name);
      await makeDirectories(dirname(path));
      await writeFileAtomically(path, [content]);
    }
  }

  /** Texts whose tokens are looked at before any other: where a pattern takes exponential time, or a normaliser multiplies. */
  private checkProbes(): void {
    for (const text of PROBES) {
      const encode = () => this.encode(text, { addSpecialTokens: false }).length;
      let tokens: Timed<number>;
      try {
        tokens = withinProcessorTime(encode, PROBE_MS);
      } catch (error) {
        throw this.refused(`cannot encode ${JSON.stringify(text.slice(0, 8))}… (${reasonOf(error)})`, error);
      }
      if (tokens.late || tokens.value > MAX_GROWTH * text.length) {
        const what = tokens.late ? `more than ${PROBE_MS} ms of a processor` : `${tokens.value} tokens`;
        throw this.refused(
          `takes ${what} for ${text.length} characters; a pattern or a normaliser in it grows without end`,
        );
      }
    }
  }

  private refused(what: string, cause?: unknown): DataError {
    return badTokenizer(what, { file: this.file, cause });
  }

  /** The same tokenizer without the space that some add before a text; most need no second one. */
  private forContinuation(): Built {
    if (this.continuation === undefined) {
      const json = withoutPrefixSpace(this.json);
      this.continuation = json === this.json ? this.built : buildLibrary(json, this.files.config, this.file);
    }
    return this.continuation;
  }

  private specialId(key: string, required = true): number | undefined {
    const text = tokenText(this.files.config[key]);
    if (text === undefined) return undefined;
    const id = this.library.token_to_id(text);
    if (id === undefined && required) {
      throw badTokenizer(`'${key}' is ${JSON.stringify(text)}, which is not in the vocabulary`, {
        file: join(this.files.directory, 'tokenizer_config.json'),
      });
    }
    return id;
  }

  /**
   * The special tokens that the post-processor adds around every text. `add_bos_token` of tokenizer_config.json is ignored,
   * as in transformers if there is a tokenizer.json.
   */
  private affixes(): [readonly number[], readonly number[]] {
    const read = (text: string, special: boolean): readonly (number | undefined)[] =>
      this.library.encode(text, { add_special_tokens: special }).ids;
    // A normaliser may leave nothing of a text, and then both sides would be one.
    const text = ['a', 'e', '1', '.'].find((text) => read(text, false).length > 0) ?? 'a';
    const bare = read(text, false);
    const full = read(text, true);
    if (bare.length === 0 && full.length > 1)
      throw this.refused(
        "'post_processor' adds tokens, and no text tells on which side: 'a', 'e', '1' and '.' have none",
      );
    if (!isWhole(full)) throw this.refused("'post_processor' adds a token that the vocabulary lacks");
    for (let start = 0; start + bare.length <= full.length; start++) {
      if (bare.every((id, i) => full[start + i] === id))
        return [full.slice(0, start), full.slice(start + bare.length)];
    }
    return [[], []];
  }
}

/** @throws DataError for half of a surrogate pair, which would become another character. Hugging Face's library refuses it too. */
export function checkCharacters(text: string): void {
  checkText('encode', text);
  if (text.isWellFormed()) return;
  const at = text.search(/\p{Cs}/u);
  const around = JSON.stringify(text.slice(Math.max(0, at - 8), at + 1));
  throw new DataError(
    'row',
    `character ${at + 1} of the text is half of a surrogate pair (at the end of ${around}), and no character; write the whole one, or leave it out`,
  );
}

function isWhole(ids: readonly (number | undefined)[]): ids is readonly number[] {
  return ids.every((id) => Number.isInteger(id));
}

/** The library's own state; its types call it private. */
interface Internals {
  readonly model: {
    encode: (words: readonly string[]) => string[];
    fuse_unk: boolean;
    readonly vocab: readonly string[];
    readonly tokens_to_ids: ReadonlyMap<string, number>;
  };
}

/** The library's own state; its types call it private. */
interface Filled {
  readonly model: { readonly unk_token?: string | null };
  readonly added_tokens: readonly AddedTokenJson[];
}

interface Built {
  readonly library: LibraryTokenizer;
  readonly words: ReturnType<typeof wordEncoder>;
}

function buildLibrary(json: TokenizerJson, config: TokenizerFiles['config'], file: string): Built {
  // Only these keys are read, as in transformers; tokenizer.json determines the rest.
  const { eos_token: eos, additional_special_tokens: additional } = specialTexts(config);
  try {
    const normalizer = normalizerOf(json.normalizer);
    const { type, vocab } = json.model;
    const isBpe = type === 'BPE';
    const library = new LibraryTokenizer(
      {
        ...json,
        model: {
          ...json.model,
          ...(isBpe ? { vocab: {}, merges: [] } : {}),
        },
        normalizer: null,
        pre_tokenizer: null,
        decoder: null,
      },
      { eos_token: eos, additional_special_tokens: additional },
    );
    if (isBpe) fillVocabulary(library, vocab as Readonly<Record<string, number>>);
    else if (type === 'Unigram')
      replaceUnigram((library as unknown as { model: never }).model, json.model as never);
    // The JavaScript library's own pre-tokenizers differ from the Rust library's.
    const preTokenizer = preTokenizerOf(json.pre_tokenizer);
    Object.assign(library, {
      ...(normalizer ? { normalizer } : {}),
      decoder: decoderOf(json.decoder) ?? null,
      pre_tokenizer: preTokenizer
        ? (text: string, { section_index }: { section_index: number }) =>
            preTokenizer(text, section_index === 0)
        : null,
    });
    const added = respectAddedTokens(library, hasPiece(json.model.vocab));
    if (!isBpe) return { library, words: undefined };
    const { model } = library as unknown as Internals;
    const refuse = (what: string): never => {
      throw badTokenizer(what, { file });
    };
    const bytePairs = bytePairsOf(json.model as object, (token) => model.tokens_to_ids.get(token), refuse);
    model.encode = (words) => words.flatMap(bytePairs).map((id) => model.vocab[id] as string);
    // The library joins unknown tokens of several words.
    model.fuse_unk = false;
    return { library, words: wordEncoder(json, added, bytePairs) };
  } catch (error) {
    if (error instanceof DataError) throw error;
    throw badTokenizer(`describes a tokenizer that cannot be built (${reasonOf(error)})`, {
      file,
      cause: error,
    });
  }
}

/** Fills both tables of a library made with an empty vocabulary. Its own way takes four times as long. */
function fillVocabulary(library: LibraryTokenizer, vocab: Readonly<Record<string, number>>): void {
  const { model, added_tokens: added } = library as unknown as Filled;
  const ids = new Map<string, number>();
  for (const token in vocab) ids.set(token, vocab[token] as number);
  const tokens = new Array<string>(ids.size);
  for (const [token, id] of ids) tokens[id] = token;
  const unknown = ids.get(model.unk_token as string);
  // Two of them may have one text.
  for (const { id, content } of added) {
    ids.set(content, id);
    tokens[id] = content;
  }
  Object.assign(model, { tokens_to_ids: ids, vocab: tokens, unk_token_id: unknown });
}

/** Whether a token is in the model's own vocabulary, a table of ids or a list of pieces. */
function hasPiece(vocab: unknown): ((token: string) => boolean) | undefined {
  if (Array.isArray(vocab)) {
    const pieces = new Set(vocab.map(([piece]) => piece as string));
    return (token) => pieces.has(token);
  }
  return typeof vocab === 'object' && vocab !== null ? (token) => Object.hasOwn(vocab, token) : undefined;
}

/** The same description with every prefix space switched off; the same object if there is none. */
function withoutPrefixSpace(json: TokenizerJson): TokenizerJson {
  const normalizer = stripPrefix(json.normalizer);
  const preTokenizer = stripPrefix(json.pre_tokenizer);
  if (normalizer === json.normalizer && preTokenizer === json.pre_tokenizer) return json;
  return { ...json, normalizer, pre_tokenizer: preTokenizer };
}

function stripPrefix(part: unknown): unknown {
  if (typeof part !== 'object' || part === null) return part;
  const component = part as Record<string, unknown>;
  switch (component.type) {
    case 'Prepend':
      return null;
    // Otherwise a continuation would lose the space before its first word.
    case 'Strip':
      return null;
    case 'Metaspace':
      return component.prepend_scheme === 'never'
        ? part
        : { ...component, prepend_scheme: 'never', add_prefix_space: false };
    case 'ByteLevel':
      return component.add_prefix_space === true ? { ...component, add_prefix_space: false } : part;
    case 'Sequence': {
      const key = 'normalizers' in component ? 'normalizers' : 'pretokenizers';
      const parts = component[key] as unknown[];
      const stripped = parts.map(stripPrefix);
      if (stripped.every((entry, i) => entry === parts[i])) return part;
      return { ...component, [key]: stripped.filter((entry) => entry !== null) };
    }
    default:
      return part;
  }
}

function specialTexts(config: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const texts: Record<string, unknown> = {};
  for (const key of [
    'bos_token',
    'eos_token',
    'unk_token',
    'sep_token',
    'pad_token',
    'cls_token',
    'mask_token',
  ]) {
    const text = tokenText(config[key]);
    if (text !== undefined) texts[key] = text;
  }
  if (Array.isArray(config.additional_special_tokens)) {
    texts.additional_special_tokens = config.additional_special_tokens.map(tokenText);
  }
  return texts;
}
