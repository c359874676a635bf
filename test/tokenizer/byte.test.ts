import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

describe('the byte tokenizer', () => {
  const tokenizer = byteTokenizer();

  it('maps bytes to themselves and special tokens to the ids after them', () => {
    expect(tokenizer.encode('7+5=12\n')).toEqual([55, 43, 53, 61, 49, 50, 10]);
    expect(tokenizer.encode('é')).toEqual([0xc3, 0xa9]);
    expect(tokenizer.encode('a<|eos|><|pad|>')).toEqual([97, 257, 258]);
    expect(tokenizer.encode('<|x|>')).toHaveLength(5);
    expect([tokenizer.bosId, tokenizer.eosId, tokenizer.padId, tokenizer.vocabSize]).toEqual([
      256, 257, 258, 259,
    ]);
    expect(tokenizer.decode([256, 97, 257], { skipSpecialTokens: true })).toBe('a');
    expect(() => tokenizer.decode([259])).toThrow(/the id 259 is not in the vocabulary of 259/);
  });

  it('decodes every text that it encodes', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
      }),
    );
  });

  it('is saved as an ordinary tokenizer.json, which the general reader loads with the same result', async () => {
    const directory = temporaryDirectory();
    await tokenizer.save(directory);
    const loaded = await loadTokenizer(directory);
    expect(loaded).toBeInstanceOf(tokenizer.constructor);
    const json = JSON.parse(readFileSync(join(directory, 'tokenizer.json'), 'utf8')) as object;
    const general = new LibraryTokenizer(json, {});
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom('<|bos|>', '<|eos|>', '12-3=9\n'))),
        (parts) => {
          const text = parts.join('');
          expect(tokenizer.encode(text)).toEqual(general.encode(text).ids);
        },
      ),
    );
  });

  it('of a directory that has more keeps it: a chat template, another padding token', async () => {
    const directory = temporaryDirectory();
    await byteTokenizer().save(directory);
    const withTemplate = temporaryDirectory();
    await byteTokenizer().save(withTemplate);
    writeFileSync(join(withTemplate, 'chat_template.jinja'), '{{ messages[0].content }}?');
    expect((await loadTokenizer(withTemplate)).hasChatTemplate).toBe(true);
    const config = join(directory, 'tokenizer_config.json');
    const settings = JSON.parse(readFileSync(config, 'utf8')) as object;
    writeFileSync(config, JSON.stringify({ ...settings, pad_token: { content: '<|eos|>' } }));
    writeFileSync(join(directory, 'chat_template.jinja'), '{{ messages[0].content }}!');
    const tokenizer = await loadTokenizer(directory);
    expect(tokenizer.padId).toBe(257);
    expect(tokenizer.applyChatTemplate([{ role: 'user', content: 'a' }])).toBe('a!');
    expect(tokenizer.encode('añ')).toEqual([97, 195, 177]);
    const copy = temporaryDirectory();
    await tokenizer.save(copy);
    const saved = await loadTokenizer(copy);
    expect([saved.padId, saved.hasChatTemplate]).toEqual([257, true]);
  });
});
