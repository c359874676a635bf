// Added tokens with `single_word`: the ids are those of the Rust library (PyPI's tokenizers 0.23.3), also where a normaliser comes first.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const cases = JSON.parse(
  readFileSync(new URL('files/single-word.json', import.meta.url), 'utf8'),
) as Readonly<Record<string, { readonly tokenizer: object; readonly texts: readonly [string, number[]][] }>>;

it.each(Object.entries(cases))('%s: match whole words alone', async (_, { tokenizer, texts }) => {
  const directory = temporaryDirectory();
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
  const loaded = await loadTokenizer(directory);
  expect(texts.map(([text]) => [text, loaded.encode(text)])).toEqual(texts);
  // The text stays whole where the vocabulary has all its characters, and the normaliser leaves them.
  for (const [text] of texts.filter(([each]) => !/[<A-Z]/.test(each)))
    expect(Buffer.concat(loaded.encode(text).map((id) => loaded.tokenBytes(id))).toString()).toBe(text);
});
