// Numbers in tokens have their last digit first, texts never: in encoding, decoding and as tokens come.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatSequence } from '../../src/cli/data/preview.js';
import { wordProblems } from '../../src/data/problems/generate.js';
import { rightSolution } from '../../src/data/problems/solution.js';
import { Detokenizer, detokenize } from '../../src/generate/rows/detokenize.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { withDigitsReversed } from '../../src/tokenizer/reversed-digits.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const folder = fileURLToPath(new URL('../../assets/word-problems', import.meta.url));
const tokenizer = await loadTokenizer(folder);
const text = fc.stringMatching(/^[ -~×÷\n]{0,40}$/);

describe('the tokenizer of the word problems', () => {
  it('is previewed token by token, each with its own digit', () => {
    const ids = Int32Array.from(tokenizer.encode('17'));
    const lossMask = new Uint8Array(ids.length);
    const spans = [{ role: 'prompt', start: 0, end: ids.length }] as const;
    const [, texts] = formatSequence({ ids, lossMask, spans, steps: [] }, tokenizer, 80);
    expect(texts?.trim().split(/\s+/)).toEqual(['text', '7', '1']);
  });

  it('turns every number around, and back', () => {
    expect(withDigitsReversed('Ann: 120 + 7 = 127, or 1,234.')).toBe('Ann: 021 + 7 = 721, or 1,432.');
    const ids = tokenizer.encode('Ann: 12 + 7 = 19\n');
    expect(ids.map((id) => Buffer.from(tokenizer.tokenBytes(id)).toString())).toEqual([
      'Ann',
      ': ',
      '2',
      '1',
      ' + ',
      '7',
      ' = ',
      '9',
      '1',
      '\n',
    ]);
    expect(tokenizer.decode(ids)).toBe('Ann: 12 + 7 = 19\n');
  });

  it('gives every text back, whole and token by token', () => {
    fc.assert(
      fc.property(text, fc.integer({ min: 0, max: 99999 }), fc.string({ unit: 'binary' }), (a, number, b) => {
        const whole = `${a}${number}${b}`;
        const ids = tokenizer.encode(whole);
        expect(tokenizer.decode(ids)).toBe(whole);
        expect(detokenize(tokenizer, ids)).toBe(Buffer.from(whole).toString());
      }),
    );
  });

  it('has a token for every word, digit and sign of the problems', () => {
    for (const problem of wordProblems({
      seed: 77,
      samples: 300,
      levels: [1, 1, 1, 1],
      part: 'test',
      templates: 'all',
    })) {
      const whole = `${problem.problem}\n${rightSolution(problem).join('\n')}\n`;
      const pieces = whole.match(/ ?[A-Za-z]+| [-+×÷=] |: |[0-9]|[^\sA-Za-z0-9]|\s/gu)!;
      expect(tokenizer.encode(whole)).toHaveLength(pieces.length);
    }
  });

  it('is an ordinary tokenizer.json, for texts whose numbers are turned around already', () => {
    const library = new LibraryTokenizer(
      JSON.parse(readFileSync(join(folder, 'tokenizer.json'), 'utf8')),
      {},
    );
    const line = 'Tom has 345 apples. Who?';
    expect(library.encode(withDigitsReversed(line)).ids).toEqual(tokenizer.encode(line));
  });

  it('asks a question by its text and a line break, and refuses a history, which it would leave out', () => {
    const messages = [
      { role: 'user', content: 'One?' },
      { role: 'assistant', content: '1' },
      { role: 'user', content: 'Two?' },
    ];
    const options = { addGenerationPrompt: true };
    expect(tokenizer.applyChatTemplate(messages.slice(2), options)).toBe('Two?\n');
    expect(() => tokenizer.applyChatTemplate(messages, options)).toThrow(
      /leaves one out of these 3 messages/,
    );
  });

  it('refuses an order of digits that it does not know', async () => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, 'tokenizer.json'), readFileSync(join(folder, 'tokenizer.json')));
    writeFileSync(join(directory, 'tokenizer_config.json'), '{"digit_order": "random"}');
    await expect(loadTokenizer(directory)).rejects.toThrow(
      `'digit_order' is "random"; expected "reversed" or "plain"`,
    );
  });
});

describe('text as tokens come', () => {
  it('shows a number when it is whole', () => {
    const detokenizer = new Detokenizer(tokenizer);
    const pieces = tokenizer.encode('a 123 b 45').map((id) => detokenizer.push(id));
    expect(pieces.join('|')).toBe('a| ||||123 |b| ||');
    expect(detokenizer.end()).toBe('45');
  });

  it('finds stop texts with numbers, also at the end', () => {
    const of = (stop: string, whole: string) =>
      detokenize(tokenizer, tokenizer.encode(whole), { stop: [stop] });
    expect(of('= 12', 'a = 12 b')).toBe('a ');
    expect(of('= 21', 'a = 12 b')).toBe('a = 12 b');
    expect(of('12', 'a = 12')).toBe('a = ');
    expect(of(' b', 'a = 12 b')).toBe('a = 12');
  });
});
