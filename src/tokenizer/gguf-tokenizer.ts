/** A tokenizer's files (tokenizer.json, tokenizer_config.json) from the metadata of a GGUF file. */

import { show, WeightsError } from '../weights/error.js';
import type { Metadata } from '../weights/gguf/metadata.js';
import type { JsonObject, JsonValue } from '../weights/json.js';
import { BYTE_LEVEL, CUTTINGS, composes, cuttingOf, ignoresMerges } from './gguf-cutting.js';

/** llama.cpp's kinds of tokens. */
export const NORMAL = 1;
export const CONTROL = 3;
export const USER_DEFINED = 4;
export const UNKNOWN = 2;
export const BYTE = 6;

export interface GgufTokenizer {
  readonly tokenizer: JsonObject;
  readonly config: JsonObject;
}

/** @throws WeightsError for a kind of tokenizer that is not read, or metadata that is missing or damaged */
export function ggufTokenizer(of: Metadata): GgufTokenizer {
  const model = of.required('text', 'tokenizer.ggml.model');
  const tokens = of.required('texts', 'tokenizer.ggml.tokens');
  const types = of.numbers('tokenizer.ggml.token_type') ?? tokens.map(() => NORMAL);
  if (types.length !== tokens.length)
    of.fail('tokenizer.ggml.token_type', `a kind for each of the ${tokens.length} tokens`);
  const seen = new Set(tokens);
  if (seen.size !== tokens.length) of.fail('tokenizer.ggml.tokens', 'tokens that differ');
  const parts =
    model === 'gpt2'
      ? ofBytes(of, tokens)
      : model === 'llama'
        ? ofPieces(of, tokens, types)
        : model === 't5'
          ? ofUnigrams(of, tokens, types)
          : of.fail(
              'tokenizer.ggml.model',
              "gpt2 (merged bytes), llama (SentencePiece's merges) or t5 (its unigrams)",
            );
  const named = (name: string) => {
    const id = of.integer(`tokenizer.ggml.${name}_token_id`);
    if (id === undefined) return undefined;
    return tokens[id] ?? of.fail(`tokenizer.ggml.${name}_token_id`, `an id below ${tokens.length}`);
  };
  const [bos, eos] = [named('bos'), named('eos')];
  const addsBos = of.flag('tokenizer.ggml.add_bos_token') ?? parts.addsBos;
  const addsEos = of.flag('tokenizer.ggml.add_eos_token') ?? parts.addsEos === true;
  const added = tokens.flatMap((content, id) => {
    const type = types[id];
    if (type !== UNKNOWN && type !== CONTROL && type !== USER_DEFINED) return [];
    return {
      ...{ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false },
      special: type !== USER_DEFINED,
    };
  });
  const template = of.text('tokenizer.chat_template');
  return {
    tokenizer: {
      ...{ version: '1.0', truncation: null, padding: null, added_tokens: added },
      ...parts.json,
      post_processor: affixes(addsBos ? bos : undefined, addsEos ? eos : undefined, tokens),
    },
    config: {
      ...optional('bos_token', bos),
      ...optional('eos_token', eos),
      ...optional('unk_token', named('unknown')),
      ...optional('pad_token', named('padding')),
      add_bos_token: addsBos,
      add_eos_token: addsEos,
      ...optional('chat_template', template),
    },
  };
}

const optional = (key: string, value: string | undefined) => (value === undefined ? {} : { [key]: value });

interface Parts {
  /** model, normalizer, pre_tokenizer, decoder */
  readonly json: JsonObject;
  /** Whether a text begins with the start token, where metadata does not say. */
  readonly addsBos: boolean;
  /** Whether a text ends with the end token, where metadata does not say. Default false. */
  readonly addsEos?: boolean;
}

const vocabulary = (tokens: readonly string[]): JsonObject =>
  Object.fromEntries(tokens.map((token, id) => [token, id]));

/** Byte-level BPE. */
function ofBytes(of: Metadata, tokens: readonly string[]): Parts {
  const pre = of.text('tokenizer.ggml.pre');
  const merges = of.required('texts', 'tokenizer.ggml.merges');
  const cutting = pre === undefined ? undefined : cuttingOf(pre);
  if (pre === undefined || cutting === undefined)
    throw new WeightsError(
      `${of.path}: tokenizer.ggml.pre: expected how the model's text is cut, one of ${CUTTINGS.join(', ')}; ` +
        `found ${pre === undefined ? 'nothing' : show(pre)}; convert the model again, or give its own tokenizer: --tokenizer DIR`,
    );
  return {
    addsBos: ignoresMerges(pre),
    json: {
      normalizer: composes(pre) ? { type: 'NFC' } : null,
      pre_tokenizer: cutting,
      decoder: BYTE_LEVEL,
      model: {
        ...{ type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null },
        ...{ end_of_word_suffix: null, fuse_unk: false, byte_fallback: false },
        ignore_merges: ignoresMerges(pre),
        vocab: vocabulary(tokens),
        merges,
      },
    },
  };
}

/** SentencePiece's BPE, with bytes for characters that it lacks. */
function ofPieces(of: Metadata, tokens: readonly string[], types: readonly number[]): Parts {
  const scores = scoresOf(of, tokens);
  const { marks, decoder } = spacesOf(of);
  const unknown = tokens[of.integer('tokenizer.ggml.unknown_token_id') ?? 0];
  return {
    addsBos: true,
    json: {
      normalizer: marks.length === 1 ? (marks[0] as JsonObject) : { type: 'Sequence', normalizers: marks },
      pre_tokenizer: null,
      decoder,
      model: {
        ...{ type: 'BPE', dropout: null, unk_token: unknown ?? null, continuing_subword_prefix: null },
        ...{ end_of_word_suffix: null, fuse_unk: true, byte_fallback: types.includes(BYTE) },
        ignore_merges: false,
        vocab: vocabulary(tokens),
        merges: mergesOf(tokens, scores, types),
      },
    },
  };
}

/** SentencePiece's unigram model: a text is cut into the pieces with the largest sum of scores. */
function ofUnigrams(of: Metadata, tokens: readonly string[], types: readonly number[]): Parts {
  const scores = scoresOf(of, tokens);
  const squeezes = of.flag('tokenizer.ggml.remove_extra_whitespaces') ?? false;
  const { marks, decoder } = spacesOf(of);
  const charsmap = of.numbers('tokenizer.ggml.precompiled_charsmap');
  const normalizers: JsonObject[] = [
    {
      type: 'SentencePiece',
      remove_extra_whitespaces: squeezes,
      ...(charsmap && { precompiled_charsmap: Buffer.from(charsmap).toString('base64') }),
    },
    ...marks,
  ];
  return {
    addsBos: false,
    addsEos: true,
    json: {
      normalizer: { type: 'Sequence', normalizers },
      pre_tokenizer: null,
      decoder,
      model: {
        type: 'Unigram',
        unk_id: of.integer('tokenizer.ggml.unknown_token_id') ?? 2,
        vocab: tokens.map((token, id) => [token, scores[id] as number]),
        byte_fallback: types.includes(BYTE),
      },
    },
  };
}

/** SentencePiece's spaces: how texts get its marks, one before them too where it is so, and how they become spaces again. */
function spacesOf(of: Metadata): { readonly marks: readonly JsonObject[]; readonly decoder: JsonObject } {
  const prefixed = of.flag('tokenizer.ggml.add_space_prefix') ?? true;
  const decoders = [
    { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
    { type: 'ByteFallback' },
    { type: 'Fuse' },
    ...(prefixed ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
  ];
  return {
    marks: [
      ...(prefixed ? [{ type: 'Prepend', prepend: '▁' }] : []),
      { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
    ],
    decoder: { type: 'Sequence', decoders },
  };
}

function scoresOf(of: Metadata, tokens: readonly string[]): readonly number[] {
  const scores = of.required('numbers', 'tokenizer.ggml.scores');
  if (scores.length === tokens.length) return scores;
  return of.fail('tokenizer.ggml.scores', `a score for each of the ${tokens.length} tokens`);
}

/** Two pieces become the one that they spell, those of the highest score first, as SentencePiece joins them. */
function mergesOf(
  tokens: readonly string[],
  scores: readonly number[],
  types: readonly number[],
): [string, string][] {
  const ids = new Map(tokens.map((token, id) => [token, id]));
  const merges: { pair: [string, string]; score: number }[] = [];
  for (const [id, token] of tokens.entries()) {
    if (types[id] === CONTROL || types[id] === BYTE || types[id] === UNKNOWN) continue;
    const pieces = [...token];
    const found: { pair: [string, string]; order: [number, number] }[] = [];
    for (let i = 1, left = pieces[0] ?? ''; i < pieces.length; left += pieces[i++]) {
      const right = token.slice(left.length);
      const [a, b] = [ids.get(left), ids.get(right)];
      if (a !== undefined && b !== undefined) found.push({ pair: [left, right], order: [a, b] });
    }
    found.sort((x, y) => x.order[0] - y.order[0] || x.order[1] - y.order[1]);
    for (const { pair } of found) merges.push({ pair, score: scores[id] as number });
  }
  // The sort keeps the order of equals.
  return merges.sort((a, b) => b.score - a.score).map(({ pair }) => pair);
}

/** Tokens around every text. */
function affixes(bos: string | undefined, eos: string | undefined, tokens: readonly string[]): JsonValue {
  const around = [bos, eos].filter((token) => token !== undefined);
  if (around.length === 0) return null;
  const token = (id: string | undefined) => (id === undefined ? [] : [{ SpecialToken: { id, type_id: 0 } }]);
  const text = (id: string) => [{ Sequence: { id, type_id: 0 } }];
  return {
    type: 'TemplateProcessing',
    single: [...token(bos), ...text('A'), ...token(eos)],
    pair: [...token(bos), ...text('A'), ...token(eos), ...token(bos), ...text('B'), ...token(eos)],
    special_tokens: Object.fromEntries(
      around.map((id) => [id, { id, ids: [tokens.indexOf(id)], tokens: [id] }]),
    ),
  };
}
