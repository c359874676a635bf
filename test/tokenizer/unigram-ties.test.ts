// Unigram models with pieces of equal sums, bytes for unknown characters and several words; the ids are those of tokenizers 0.23.3.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

type Piece = [string, number];
const PIECES: Piece[] = [
  ['<unk>', 0],
  ['▁', -2],
  ['a', -3],
  ['o', -4.1],
  ['oo', -8.2],
  ['ooo', -12.3],
  ['ao', -7.1],
];
const BYTES = Array.from(
  { length: 256 },
  (_, byte): Piece => [`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`, -20],
);
const METASPACE = { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true };
const TEXTS = ['oooooooooooooo', 'aoaooaooo', 'a漢字 é', '漢 字', 'o\n'];

it.each([
  [
    'equal sums',
    PIECES,
    false,
    METASPACE,
    [
      [1, 4, 5, 5, 5, 5],
      [1, 6, 2, 4, 2, 5],
      [1, 2, 0, 1, 0],
      [1, 0, 1, 0],
      [1, 3, 0],
    ],
  ],
  [
    'bytes',
    [...PIECES, ...BYTES],
    true,
    METASPACE,
    [
      [1, 4, 5, 5, 5, 5],
      [1, 6, 2, 4, 2, 5],
      [1, 2, 237, 195, 169, 236, 180, 158, 1, 202, 176],
      [1, 237, 195, 169, 1, 236, 180, 158],
      [1, 3, 17],
    ],
  ],
  [
    'half of the bytes',
    [...PIECES, ...BYTES.slice(0, 128)],
    true,
    METASPACE,
    [
      [1, 4, 5, 5, 5, 5],
      [1, 6, 2, 4, 2, 5],
      [1, 2, 0, 1, 0],
      [1, 0, 1, 0],
      [1, 3, 17],
    ],
  ],
  [
    'unknown words',
    PIECES,
    false,
    { type: 'WhitespaceSplit' },
    [[4, 5, 5, 5, 5], [6, 2, 4, 2, 5], [2, 0, 0], [0, 0], [3]],
  ],
])('encodes as the Rust library: %s', async (_, vocab, byte_fallback, pre_tokenizer, expected) => {
  const folder = temporaryDirectory();
  const unknown = {
    id: 0,
    content: '<unk>',
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  };
  const parts = { normalizer: null, pre_tokenizer, post_processor: null, decoder: null };
  const model = { type: 'Unigram', unk_id: 0, vocab, byte_fallback };
  writeFileSync(
    join(folder, 'tokenizer.json'),
    JSON.stringify({ version: '1.0', added_tokens: [unknown], ...parts, model }),
  );
  writeFileSync(join(folder, 'tokenizer_config.json'), '{}');
  const tokenizer = await loadTokenizer(folder);
  expect(TEXTS.map((text) => [...tokenizer.encode(text, { addSpecialTokens: false })])).toEqual(expected);
});
