import { isDeepStrictEqual } from 'node:util';
import type { TokenizerJson } from './checks.js';
import { tokenText } from './configured-tokens.js';
import { checkCharacters, HuggingFaceTokenizer } from './huggingface.js';
import { byteCharacters } from './token-bytes.js';
import type { Tokenizer } from './tokenizer.js';
import type { TokenizerFiles } from './tokenizer-files.js';

const SPECIAL_TEXTS = ['<|bos|>', '<|eos|>', '<|pad|>'] as const;
const FIRST_SPECIAL = 256;
const SPECIAL_PATTERN = /(<\|(?:bos|eos|pad)\|>)/;
const [BOS, EOS, PAD] = SPECIAL_TEXTS;
const NAMES = { bos_token: BOS, eos_token: EOS, pad_token: PAD };

/**
 * The tokenizer of the embedded default model: ids 0 to 255 are the bytes of UTF-8, then come `<|bos|>`, `<|eos|>` and
 * `<|pad|>`. Bytes rather than only the few characters of arithmetic, so that every text, also of a user's data, has
 * ids; the 230 unused rows cost a small model next to nothing. It is saved as a byte-level BPE without merges in a
 * standard tokenizer.json, which other programs can read.
 */
export function byteTokenizer(): Tokenizer {
  const tokenizer = byteTokenizerJson();
  const config = {
    ...NAMES,
    clean_up_tokenization_spaces: false,
    tokenizer_class: 'PreTrainedTokenizerFast',
  };
  const contents = new Map([
    ['tokenizer.json', Buffer.from(`${JSON.stringify(tokenizer)}\n`)],
    ['tokenizer_config.json', Buffer.from(`${JSON.stringify(config, null, 2)}\n`)],
  ]);
  return new ByteTokenizer({ directory: 'bytes', tokenizer, config, chatTemplates: new Map(), contents });
}

/** Whether a directory has exactly the byte tokenizer, without a chat template or other special tokens, which it would lose. */
export function isByteTokenizer({ tokenizer, config, chatTemplates }: TokenizerFiles): boolean {
  const parts = ({
    model,
    pre_tokenizer,
    decoder,
    normalizer,
    post_processor,
    added_tokens,
  }: TokenizerJson) => [
    [model, pre_tokenizer, decoder, normalizer, post_processor],
    added_tokens.map(({ id, content }) => [id, content]),
  ];
  return (
    chatTemplates.size === 0 &&
    Object.entries(NAMES).every(([key, text]) => (tokenText(config[key]) ?? text) === text) &&
    isDeepStrictEqual(parts(tokenizer), parts(byteTokenizerJson()))
  );
}

class ByteTokenizer extends HuggingFaceTokenizer {
  /** The same ids in a tenth of the time. */
  override encode(text: string): number[] {
    checkCharacters(text);
    if (!text.includes('<|')) return [...Buffer.from(text, 'utf8')];
    return text.split(SPECIAL_PATTERN).flatMap((part) => {
      const special = SPECIAL_TEXTS.indexOf(part as (typeof SPECIAL_TEXTS)[number]);
      return special >= 0 ? [FIRST_SPECIAL + special] : [...Buffer.from(part, 'utf8')];
    });
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
