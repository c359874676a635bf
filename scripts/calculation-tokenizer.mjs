// Writes the tokenizer of the calculations model into a directory: a byte-level BPE in which every digit is one token and
// signs are one with the spaces around them. Its merges are those of a text, at best one that many people wrote.
//   node scripts/calculation-tokenizer.mjs assets/calculations gsm8k/train.jsonl
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { calculationRecords } from '../dist/data/calculations/records.js';
import { byteCharacters } from '../dist/tokenizer/token-bytes.js';

/** A word with the space before it, a sign with the spaces around it, a digit; all else character by character. */
const PIECES = ' ?\\p{L}+| ?[-−+×÷=*/·] ?|\\p{N}|: | ?[^\\s\\p{L}\\p{N}]|\\s';
const SIGNS = ['-', '−', '+', '×', '÷', '=', '*', '/', '·'];
const SPECIAL = ['<|pad|>', '<|eos|>'];
/** Tokens in all. */
const SIZE = 2048;

const characters = byteCharacters();
const spelled = (text) => [...Buffer.from(text, 'utf8')].map((byte) => characters[byte]).join('');

function* texts(files) {
  for (const { problem, steps } of calculationRecords({ seed: 0, samples: 5000 }))
    yield [problem, ...steps.map(({ text }) => text)].join('\n');
  for (const file of files)
    for (const line of readFileSync(file, 'utf8').trim().split('\n')) {
      const { question, answer } = JSON.parse(line);
      yield `${question}\n${answer.replace(/<<.*?>>/g, '')}`;
    }
}

/** The most frequent pair of neighbours becomes a token, again and again; among equals the first in order. */
function mergesOf(counts, wanted) {
  const words = [...counts].map(([word, count]) => ({ parts: [...word], count }));
  const merges = [];
  while (merges.length < wanted) {
    const pairs = new Map();
    for (const { parts, count } of words)
      for (let i = 1; i < parts.length; i++) {
        const pair = `${parts[i - 1]} ${parts[i]}`;
        pairs.set(pair, (pairs.get(pair) ?? 0) + count);
      }
    const [best] = [...pairs].reduce(
      (a, b) => (b[1] > a[1] || (b[1] === a[1] && b[0] < a[0]) ? b : a),
      ['', 0],
    );
    if (best === '') break;
    merges.push(best);
    const [left, right] = best.split(' ');
    for (const word of words) {
      const { parts } = word;
      for (let i = 1; i < parts.length; i++)
        if (parts[i - 1] === left && parts[i] === right) parts.splice(i - 1, 2, left + right);
    }
  }
  return merges;
}

export function calculationTokenizerFiles(files) {
  const counts = new Map();
  for (const text of texts(files))
    for (const piece of text.match(new RegExp(PIECES, 'gu')))
      if (/\p{L}/u.test(piece)) counts.set(spelled(piece), (counts.get(spelled(piece)) ?? 0) + 1);
  const signs = SIGNS.flatMap((sign) => [
    ` ${sign}`,
    `${sign} `,
    ` ${sign} `,
    ...(sign.length > 0 && Buffer.byteLength(sign) > 1 ? [sign] : []),
  ]);
  const whole = [...signs, ': '].map(spelled);
  const merges = mergesOf(counts, SIZE - SPECIAL.length - 256 - whole.length);
  const tokens = [...SPECIAL, ...characters, ...whole, ...merges.map((pair) => pair.replace(' ', ''))];
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false };
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: SPECIAL.map((content, id) => ({
      ...{ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true },
    })),
    normalizer: null,
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: PIECES }, behavior: 'Isolated', invert: false },
        byteLevel,
      ],
    },
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
      // Signs with their spaces are taken whole; words are merged.
      ignore_merges: true,
      vocab: Object.fromEntries([...new Set(tokens)].map((token, id) => [token, id])),
      merges,
    },
  };
  const config = {
    eos_token: '<|eos|>',
    pad_token: '<|pad|>',
    // Read by steptrain: texts have numbers as people write them, tokens have their last digit first.
    digit_order: 'reversed',
    clean_up_tokenization_spaces: false,
    tokenizer_class: 'PreTrainedTokenizerFast',
  };
  return {
    'tokenizer.json': `${JSON.stringify(tokenizer)}\n`,
    'tokenizer_config.json': `${JSON.stringify(config, null, 2)}\n`,
  };
}

const [directory, ...files] = process.argv.slice(2);
if (directory !== undefined) {
  mkdirSync(directory, { recursive: true });
  for (const [name, content] of Object.entries(calculationTokenizerFiles(files)))
    writeFileSync(join(directory, name), content);
}
