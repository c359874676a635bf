import { join } from 'node:path';
import { writeFileAtomically } from '../files/atomic-file.js';
import { DataError } from '../files/data-error.js';
import { makeDirectories } from '../files/directory.js';
import { ChatRenderer } from './chat-template.js';
import type { TokenizerJson } from './checks.js';
import { byteCharacters, utf8 } from './token-bytes.js';
import type { DecodeOptions, EncodeOptions, Tokenizer } from './tokenizer.js';
import { type TokenizerFiles, tokenText } from './tokenizer-files.js';

const SPECIAL_TEXTS = ['<|bos|>', '<|eos|>', '<|pad|>'] as const;
const FIRST_SPECIAL = 256;
const SPECIAL_PATTERN = /(<\|(?:bos|eos|pad)\|>)/;

/**
 * The tokenizer of the embedded default model: ids 0 to 255 are the bytes of UTF-8, then come `<|bos|>`, `<|eos|>` and
 * `<|pad|>`. Bytes rather than only the few characters of arithmetic, so that every text, also of a user's data, has
 * ids; the 230 unused rows cost a small model next to nothing. It is saved as a byte-level BPE without merges in a
 * standard tokenizer.json, which other programs can read.
 */
export function byteTokenizer(): Tokenizer {
  return new ByteTokenizer();
}

/** Whether a directory has exactly the byte tokenizer, without a chat template or other special tokens, which it would lose. */
export function isByteTokenizer({ tokenizer: json, config, chatTemplates }: TokenizerFiles): boolean {
  const expected = byteTokenizerJson();
  const named = ['bos_token', 'eos_token', 'pad_token'].map((key) => tokenText(config[key]));
  return (
    chatTemplates.size === 0 &&
    named.every((text, i) => text === undefined || text === SPECIAL_TEXTS[i]) &&
    JSON.stringify([json.model, json.pre_tokenizer, json.decoder, json.normalizer, json.post_processor]) ===
      JSON.stringify([
        expected.model,
        expected.pre_tokenizer,
        expected.decoder,
        expected.normalizer,
        expected.post_processor,
      ]) &&
    json.added_tokens.length === SPECIAL_TEXTS.length &&
    json.added_tokens.every(
      (token, i) => token.id === FIRST_SPECIAL + i && token.content === SPECIAL_TEXTS[i],
    )
  );
}

class ByteTokenizer implements Tokenizer {
  readonly vocabSize = FIRST_SPECIAL + SPECIAL_TEXTS.length;
  readonly bosId = FIRST_SPECIAL;
  readonly eosId = FIRST_SPECIAL + 1;
  readonly padId = FIRST_SPECIAL + 2;
  readonly prefixIds: readonly number[] = [];
  readonly suffixIds: readonly number[] = [];
  readonly hasChatTemplate = false;

  encode(text: string, _options?: EncodeOptions): number[] {
    if (!text.includes('<|')) return [...Buffer.from(text, 'utf8')];
    return text.split(SPECIAL_PATTERN).flatMap((part) => {
      const special = SPECIAL_TEXTS.indexOf(part as (typeof SPECIAL_TEXTS)[number]);
      return special >= 0 ? [FIRST_SPECIAL + special] : [...Buffer.from(part, 'utf8')];
    });
  }

  decode(ids: ArrayLike<number>, { skipSpecialTokens = false }: DecodeOptions = {}): string {
    let text = '';
    let bytes: number[] = [];
    const flush = (): void => {
      text += Buffer.from(bytes).toString('utf8');
      bytes = [];
    };
    for (const id of Array.from(ids)) {
      if (!Number.isInteger(id) || id < 0 || id >= this.vocabSize) {
        throw new DataError(
          'tokenizer',
          `the id ${id} is not in the vocabulary of ${this.vocabSize} (byte tokenizer)`,
        );
      }
      if (id < FIRST_SPECIAL) {
        bytes.push(id);
        continue;
      }
      flush();
      if (!skipSpecialTokens) text += SPECIAL_TEXTS[id - FIRST_SPECIAL];
    }
    flush();
    return text;
  }

  tokenBytes(id: number): Uint8Array {
    return id < FIRST_SPECIAL ? Uint8Array.of(id) : utf8(SPECIAL_TEXTS[id - FIRST_SPECIAL] ?? '');
  }

  isSpecial(id: number): boolean {
    return id >= FIRST_SPECIAL && id < this.vocabSize;
  }

  applyChatTemplate(): string {
    return new ChatRenderer(new Map(), {}).render([]);
  }

  async save(directory: string): Promise<void> {
    await makeDirectories(directory);
    const [bos, eos, pad] = SPECIAL_TEXTS;
    const config = {
      bos_token: bos,
      eos_token: eos,
      pad_token: pad,
      clean_up_tokenization_spaces: false,
      tokenizer_class: 'PreTrainedTokenizerFast',
    };
    const write = (name: string, json: string) =>
      writeFileAtomically(join(directory, name), [utf8(`${json}\n`)]);
    await write('tokenizer.json', JSON.stringify(byteTokenizerJson()));
    await write('tokenizer_config.json', JSON.stringify(config, null, 2));
  }
}

function byteTokenizerJson(): TokenizerJson & { readonly version: string } {
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false };
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: SPECIAL_TEXTS.map((content, i) => ({
      id: FIRST_SPECIAL + i,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: byteLevel,
    post_processor: null,
    decoder: byteLevel,
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(byteCharacters().map((character, byte) => [character, byte])),
      merges: [],
    },
  } as TokenizerJson & { readonly version: string };
}
