/** A tokenizer as the metadata of a GGUF file. */
import { badTokenizer } from '../files/data-error.js';
import type { Typed } from '../weights/gguf/writer.js';
import { tokenText } from './configured-tokens.js';
import { preOf } from './gguf-cutting.js';
import { BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED } from './gguf-tokenizer.js';
import type { TokenizerFiles } from './tokenizer-files.js';

/** Ids of the vocabulary without a token. */
const UNUSED = 5;

/**
 * @param rows of the embedding; ids that no token has are filled
 * @throws DataError for a tokenizer that llama.cpp has no kind for
 */
export function ggufTokens(files: TokenizerFiles, rows: number): Map<string, Typed> {
  const { tokenizer, config, directory, chatTemplates } = files;
  const {
    type,
    vocab,
    merges,
    ignore_merges: ignores = false,
  } = tokenizer.model as typeof tokenizer.model & {
    ignore_merges?: boolean;
  };
  const refuse = (what: string): never => {
    throw badTokenizer(
      `${what}, for which llama.cpp has no kind; it cannot be written as GGUF, only as a directory`,
      {
        file: `${directory}/tokenizer.json`,
      },
    );
  };
  const prefixed = piecesOf(tokenizer);
  const ofBytes = (tokenizer.decoder as Part | null)?.type === 'ByteLevel';
  if (type !== 'BPE' || !Array.isArray(merges) || (!ofBytes && prefixed === undefined))
    return refuse("is neither byte-level BPE nor SentencePiece's");
  const pairs = (merges as (string | [string, string])[]).map((merge) =>
    typeof merge === 'string' ? (merge.split(' ') as [string, string]) : merge,
  );
  const unknown = (tokenizer.model as { unk_token?: string | null }).unk_token;
  const tokens = Array.from({ length: rows }, (_, id) => `[PAD${id}]`);
  const kinds = new Array<number>(rows).fill(UNUSED);
  for (const [token, id] of Object.entries(vocab as Record<string, number>)) {
    if (id >= rows) return refuse(`has the id ${id}, beyond the ${rows} rows of the embedding`);
    tokens[id] = token;
    kinds[id] = ofBytes || !/^<0x[\dA-F]{2}>$/.test(token) ? NORMAL : BYTE;
  }
  for (const { id, content, special, ...match } of tokenizer.added_tokens) {
    const way = ['lstrip', 'rstrip', 'single_word'].find(
      (name) => match[name as keyof typeof match] === true,
    );
    if (way !== undefined) return refuse(`has the token ${JSON.stringify(content)} with ${way}`);
    if (id >= rows) return refuse(`has the id ${id}, beyond the ${rows} rows of the embedding`);
    tokens[id] = content;
    kinds[id] = !special ? USER_DEFINED : !ofBytes && content === unknown ? UNKNOWN : CONTROL;
  }
  const named = (key: string, name: string): [string, Typed][] => {
    const id = tokens.indexOf(tokenText(config[key]) ?? '');
    return id < 0 ? [] : [[`tokenizer.ggml.${name}_token_id`, { u32: id }]];
  };
  const kind = (): [string, Typed][] => {
    if (!ofBytes)
      return [
        ['tokenizer.ggml.model', { text: 'llama' }],
        ['tokenizer.ggml.pre', { text: 'default' }],
        ['tokenizer.ggml.scores', { f32s: scoresOf(tokens, pairs) }],
        ['tokenizer.ggml.add_space_prefix', { flag: prefixed === true }],
      ];
    const pre = preOf(tokenizer.pre_tokenizer, ignores) ?? refuse('cuts text in a way of its own');
    return [
      ['tokenizer.ggml.model', { text: 'gpt2' }],
      ['tokenizer.ggml.pre', { text: pre }],
      ['tokenizer.ggml.merges', { texts: pairs.map((pair) => pair.join(' ')) }],
    ];
  };
  const template = chatTemplates.get('default');
  return new Map<string, Typed>([
    ...kind(),
    ['tokenizer.ggml.tokens', { texts: tokens }],
    ['tokenizer.ggml.token_type', { i32s: kinds }],
    ...named('bos_token', 'bos'),
    ...named('eos_token', 'eos'),
    ...named('unk_token', 'unknown'),
    ...named('pad_token', 'padding'),
    ['tokenizer.ggml.add_bos_token', { flag: beginsWithBos(tokenizer.post_processor) }],
    ...(template === undefined ? [] : [['tokenizer.chat_template', { text: template }] as [string, Typed]]),
  ]);
}

interface Part {
  readonly type?: string;
  readonly content?: unknown;
  readonly prepend?: unknown;
  readonly pattern?: { readonly String?: unknown };
  readonly normalizers?: readonly Part[];
  readonly decoders?: readonly Part[];
}

/** Whether SentencePiece's BPE puts a space before a text; undefined for any other tokenizer. */
function piecesOf({ normalizer, pre_tokenizer, decoder }: TokenizerFiles['tokenizer']): boolean | undefined {
  const steps = (part: unknown, list: 'normalizers' | 'decoders') =>
    (part as Part | null)?.[list] ?? [(part ?? {}) as Part];
  const [first, ...rest] = steps(normalizer, 'normalizers');
  const prefixed = first?.type === 'Prepend' && first.prepend === '▁';
  const spaces = prefixed ? rest : [first, ...rest];
  const replaces = (part: Part | undefined, from: string, to: string) =>
    part?.type === 'Replace' && part.pattern?.String === from && part.content === to;
  // Gemma cuts at spaces that its normalizer has replaced: nowhere.
  const cut = pre_tokenizer as Part | null;
  const isWhole = !cut || (cut.type === 'Split' && cut.pattern?.String === ' ');
  const back = steps(decoder, 'decoders');
  const restores = replaces(back[0], '▁', ' ') && back.some((part) => part.type === 'ByteFallback');
  return spaces.length === 1 && replaces(spaces[0], ' ', '▁') && isWhole && restores ? prefixed : undefined;
}

/**
 * Scores of tokens by the first merge that makes each, since llama.cpp joins the pair with the highest score. Tokens
 * that no merge makes come below.
 */
function scoresOf(tokens: readonly string[], merges: readonly (readonly [string, string])[]): number[] {
  const first = new Map<string, number>();
  for (const [i, pair] of merges.entries()) {
    const made = pair.join('');
    if (!first.has(made)) first.set(made, -i);
  }
  return tokens.map((token) => first.get(token) ?? -merges.length);
}

/** Whether the template of texts begins with a special token. */
function beginsWithBos(processor: unknown): boolean {
  const { type, single, processors } = (processor ?? {}) as Record<string, unknown>;
  if (type === 'Sequence') return (processors as unknown[]).some(beginsWithBos);
  const [first] = (Array.isArray(single) ? single : []) as Record<string, unknown>[];
  return type === 'TemplateProcessing' && first?.SpecialToken !== undefined;
}
