/** A tokenizer as the metadata of a GGUF file. */
import { badTokenizer } from '../files/data-error.js';
import type { Typed } from '../weights/gguf/writer.js';
import { preOf } from './gguf-cutting.js';
import { CONTROL, NORMAL, USER_DEFINED } from './gguf-tokenizer.js';
import { type TokenizerFiles, tokenText } from './tokenizer-files.js';

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
  const decoder = tokenizer.decoder as { type?: string } | null;
  if (type !== 'BPE' || decoder?.type !== 'ByteLevel' || !Array.isArray(merges))
    return refuse('is not byte-level BPE');
  const pre = preOf(tokenizer.pre_tokenizer, ignores) ?? refuse('cuts text in a way of its own');
  const tokens = Array.from({ length: rows }, (_, id) => `[PAD${id}]`);
  const kinds = new Array<number>(rows).fill(UNUSED);
  for (const [token, id] of Object.entries(vocab as Record<string, number>)) {
    if (id >= rows) return refuse(`has the id ${id}, beyond the ${rows} rows of the embedding`);
    tokens[id] = token;
    kinds[id] = NORMAL;
  }
  for (const { id, content, special } of tokenizer.added_tokens) {
    if (id >= rows) return refuse(`has the id ${id}, beyond the ${rows} rows of the embedding`);
    tokens[id] = content;
    kinds[id] = special ? CONTROL : USER_DEFINED;
  }
  const named = (key: string, name: string): [string, Typed][] => {
    const id = tokens.indexOf(tokenText(config[key]) ?? '');
    return id < 0 ? [] : [[`tokenizer.ggml.${name}_token_id`, { u32: id }]];
  };
  const template = chatTemplates.get('default');
  return new Map<string, Typed>([
    ['tokenizer.ggml.model', { text: 'gpt2' }],
    ['tokenizer.ggml.pre', { text: pre }],
    ['tokenizer.ggml.tokens', { texts: tokens }],
    ['tokenizer.ggml.token_type', { i32s: kinds }],
    ['tokenizer.ggml.merges', { texts: merges.map((each) => (Array.isArray(each) ? each.join(' ') : each)) }],
    ...named('bos_token', 'bos'),
    ...named('eos_token', 'eos'),
    ...named('unk_token', 'unknown'),
    ...named('pad_token', 'padding'),
    ['tokenizer.ggml.add_bos_token', { flag: beginsWithBos(tokenizer.post_processor) }],
    ...(template === undefined ? [] : [['tokenizer.chat_template', { text: template }] as [string, Typed]]),
  ]);
}

/** Whether the template of texts begins with a special token. */
function beginsWithBos(processor: unknown): boolean {
  const { type, single, processors } = (processor ?? {}) as Record<string, unknown>;
  if (type === 'Sequence') return (processors as unknown[]).some(beginsWithBos);
  const [first] = (Array.isArray(single) ? single : []) as Record<string, unknown>[];
  return type === 'TemplateProcessing' && first?.SpecialToken !== undefined;
}
