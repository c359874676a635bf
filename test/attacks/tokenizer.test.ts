/** Hostile tokenizers and chat templates: one sentence that names the file, no id that is none, no endless loop. */
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DataError } from '../../src/files/data-error.js';
import { ChatRenderer } from '../../src/tokenizer/chat-template.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const PARTS = {
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: null,
  post_processor: null,
  decoder: null,
};
const bpe = (vocab: unknown, merges: unknown = []) => ({ model: { type: 'BPE', vocab, merges } });
const GOOD = bpe({ a: 0, b: 1, ab: 2, '!': 3 }, ['a b']);

function load(json: string | object): ReturnType<typeof loadTokenizer> {
  const directory = temporaryDirectory();
  const text = typeof json === 'string' ? json : JSON.stringify({ ...PARTS, ...GOOD, ...json });
  writeFileSync(join(directory, 'tokenizer.json'), text);
  return loadTokenizer(directory);
}

const nested = (depth: number) =>
  `{"model":${JSON.stringify(GOOD.model)},"added_tokens":[],"normalizer":null,"post_processor":null,"decoder":null,"pre_tokenizer":` +
  `${'{"type":"Sequence","pretokenizers":['.repeat(depth)}${']}'.repeat(depth)}}`;

describe('a hostile tokenizer.json', () => {
  it.each<[string, string | object, RegExp]>([
    [
      'a negative id',
      bpe({ a: -1 }),
      /'model\.vocab': "a" has the id -1; expected a whole number from 0 to 16777215$/,
    ],
    ['half an id', bpe({ a: 0.5 }), /"a" has the id 0\.5; expected a whole number/],
    ['a text as an id', bpe({ a: '0' }), /"a" has the id "0"; expected a whole number/],
    ['an id beyond any vocabulary', bpe({ a: 2 ** 53 }), /"a" has the id 9007199254740992/],
    ['nothing as an id', bpe({ a: null }), /"a" has the id null/],
    ['no vocabulary', bpe(null), /'model\.vocab': expected tokens with their ids, found null$/],
    [
      'a list as the vocabulary of BPE',
      bpe(['a']),
      /'model\.vocab': expected a piece and its score at place 0, found "a"/,
    ],
    ['a number as the model', { model: 5 }, /'model\.vocab': expected tokens with their ids, found nothing/],
    ['nothing as the model', { model: null }, /expected tokens with their ids, found nothing/],
    [
      'a merge of tokens that it lacks',
      bpe({ a: 0, b: 1 }, ['a b']),
      /place 0 needs the token "ab", which the vocabulary lacks$/,
    ],
    [
      'a merge of three',
      bpe({ a: 0 }, ['a a a']),
      /'model\.merges': expected two tokens at place 0, found "a a a"$/,
    ],
    ['a number as a merge', bpe({ a: 0 }, [5]), /expected two tokens at place 0, found 5$/],
    ['a text as merges', bpe({ a: 0 }, 'a b'), /'model\.merges' is no list/],
    [
      'an added token of 2³¹',
      { added_tokens: [{ id: 2 ** 31, content: 'x' }] },
      /'added_tokens': "x" has the id 2147483648/,
    ],
    [
      'an added token below 0',
      { added_tokens: [{ id: -4, content: 'x' }] },
      /'added_tokens': "x" has the id -4/,
    ],
    [
      'a Unigram score that is text',
      { model: { type: 'Unigram', vocab: [['a', 'NaN']], unk_id: 0 } },
      /at place 0, found \["a","NaN"\]$/,
    ],
    ['a Unigram without pieces', { model: { type: 'Unigram', vocab: {} } }, /is no list of pieces/],
    [
      'a special token that it lacks',
      {
        post_processor: {
          type: 'TemplateProcessing',
          single: [{ SpecialToken: { id: '<s>', type_id: 0 } }],
          pair: [],
          special_tokens: {},
        },
      },
      /'post_processor' adds a token that the vocabulary lacks$/,
    ],
    [
      'an exponential pattern',
      { pre_tokenizer: { type: 'Split', pattern: { Regex: '(a+)+$' }, behavior: 'Isolated', invert: false } },
      /takes more than 2000 ms of a processor for 51 characters; a pattern/,
    ],
    [
      'a normaliser that doubles forty times',
      {
        normalizer: {
          type: 'Sequence',
          normalizers: Array(40).fill({ type: 'Replace', pattern: { String: 'a' }, content: 'aa' }),
        },
      },
      /a normaliser in it grows without end$|cannot encode/,
    ],
    [
      'a normaliser that doubles ten times',
      {
        normalizer: {
          type: 'Sequence',
          normalizers: Array(10).fill({ type: 'Replace', pattern: { String: 'a' }, content: 'aa' }),
        },
      },
      /takes \d+ tokens for 51 characters/,
    ],
    [
      'half a pattern',
      { pre_tokenizer: { type: 'Split', pattern: { Regex: '(' }, behavior: 'Isolated' } },
      /cannot be built \(Invalid regular expression/,
    ],
    [
      'an unknown part',
      { pre_tokenizer: { type: 'Evil' } },
      /cannot be built \(the pre-tokenizer "Evil" is not known\)/,
    ],
    ['a part of the prototype', { pre_tokenizer: { type: 'constructor' } }, /cannot be built|cannot encode/],
    ['parts without end', nested(20_000), /'pre_tokenizer' is nested deeper than 64 levels$/],
    ['brackets without end', '['.repeat(1e6), /is not JSON/],
    [
      'a prototype in place of its parts',
      '{"__proto__": {"model": {}, "added_tokens": []}}',
      /lacks 'model', 'added_tokens'/,
    ],
  ])('is refused with %s', async (_, json, message) => {
    const error = await load(json).then(
      () => new Error('it was accepted'),
      (reason: Error) => reason,
    );
    expect(error).toBeInstanceOf(DataError);
    expect(error.message).toMatch(message);
    expect(error.message).toMatch(/tokenizer\.json: /);
    expect(error.message.length).toBeLessThan(600);
  });

  it('may use names of the prototype as tokens', async () => {
    const tokenizer = await load(
      '{"model":{"type":"BPE","vocab":{"__proto__":0,"constructor":1,"a":2,"b":3},"merges":[]},"added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null}',
    );
    expect([tokenizer.vocabSize, tokenizer.encode('ab')]).toEqual([4, [2, 3]]);
    expect(tokenizer.decode([0, 1])).toContain('constructor');
  });

  it.each([
    [
      'unzips to more than 256 MiB',
      () => gzipSync(Buffer.alloc(300 << 20, ' '), { level: 1 }),
      /has more than 256 MiB/,
    ],
    ['unzips to half of it', () => gzipSync(Buffer.from('{"model"')).subarray(0, 15), /is damaged gzip data/],
  ])('that %s is refused', async (_, bytes, message) => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, 'tokenizer.json.gz'), bytes());
    await expect(loadTokenizer(directory)).rejects.toThrow(message);
  });

  it.each([
    [
      'is a link to itself',
      (path: string) => symlinkSync(path, path),
      /cannot be read|has no tokenizer\.json/,
    ],
    ['is a link to a directory', (path: string) => symlinkSync('/tmp', path), /cannot be read/],
  ])('that %s is refused', async (_, make, message) => {
    const directory = temporaryDirectory();
    make(join(directory, 'tokenizer.json'));
    await expect(loadTokenizer(directory)).rejects.toThrow(message);
  });

  it('of 200,000 equal letters gives as many ids as it must', async () => {
    const tokenizer = await load(bpe({ a: 0, aa: 1, b: 2 }, ['a a']));
    const ids = tokenizer.encode('a'.repeat(200_000));
    expect(ids.length).toBe(100_000);
    expect(tokenizer.encode('')).toEqual([]);
    expect(tokenizer.encode('a')).toEqual([0]);
  });

  it('gives an error of ours or whole ids under any mutation', async () => {
    const directory = temporaryDirectory();
    const value = fc.oneof(
      fc.jsonValue({ maxDepth: 2 }),
      fc.constantFrom<unknown>(-1, 1e308, '', [], {}, null, [[]], 'constructor'),
    );
    const part = fc.constantFrom(
      'added_tokens',
      'normalizer',
      'pre_tokenizer',
      'post_processor',
      'decoder',
      'model.vocab',
      'model.merges',
      'model.type',
      'model.unk_token',
    );
    await fc.assert(
      fc.asyncProperty(part, value, async (name, changed) => {
        const [outer = '', inner] = name.split('.');
        const model = inner === undefined ? GOOD.model : { ...GOOD.model, [inner]: changed };
        const json = { ...PARTS, ...GOOD, model, ...(inner === undefined ? { [outer]: changed } : {}) };
        writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(json));
        try {
          const tokenizer = await loadTokenizer(directory);
          for (const id of tokenizer.encode('ab!')) expect(Number.isInteger(id)).toBe(true);
        } catch (error) {
          expect(error).toBeInstanceOf(DataError);
          expect((error as Error).message).toContain(directory);
        }
      }),
      // No string can be made of this one.
      { numRuns: 300, examples: [['model.type', { toString: false }]] },
    );
  });
});

describe('a hostile chat template', () => {
  const render = (template: string) =>
    new ChatRenderer(new Map([['default', template]]), {}).render([{ role: 'user', content: 'hi' }], {
      mayLeaveOut: true,
    });

  it.each([
    [
      'a list of a billion',
      '{% for i in range(1000000000) %}x{% endfor %}',
      /range gives at most 100000 numbers/,
    ],
    ['steps of nothing', '{{ range(0, 5, 0) }}', /must not be zero/],
    [
      'loops within loops',
      '{% for a in range(3000) %}{% for b in range(3000) %}{% for c in range(3000) %}{% endfor %}{% endfor %}{% endfor %}',
      /stopped after 10010000 steps; does it loop without end\?/,
    ],
    [
      'a text that doubles',
      '{% set ns = namespace(x="aaaaaaaa") %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}',
      /it writes \d+ characters/,
    ],
    [
      'a text of 128 MiB',
      '{% set ns = namespace(x="aaaaaaaa") %}{% for i in range(24) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}',
      /it writes 134217728 characters/,
    ],
    [
      'an indent of a billion',
      '{{ messages | tojson(indent=1000000000) }}',
      /Invalid string length|characters/,
    ],
    ['a macro that calls itself', '{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}', /call stack/],
    ['a way to the process', '{{ messages.constructor.constructor("return process")() }}', /undefined/],
    ['an include', '{% include "/etc/passwd" %}', /./],
    ['brackets without end', `{{ ${'('.repeat(1e5)} }}`, /is not valid Jinja/],
    ['blocks without end', '{% if true %}'.repeat(2e4), /is not valid Jinja/],
    ['openings without end', '{{'.repeat(1e5), /is not valid Jinja/],
    ['an exception of its own', '{{ raise_exception("no system role") }}', /no system role/],
  ])('with %s gets a sentence', (_, template, message) => {
    let said = '';
    try {
      render(template);
    } catch (error) {
      expect(error).toBeInstanceOf(DataError);
      said = (error as Error).message;
    }
    expect(said).toMatch(
      /^the chat template 'default' (cannot render these 1 messages|is not valid Jinja) \(/,
    );
    expect(said).toMatch(message);
  });

  it('sees nothing of the process', () => {
    expect(render('{{ "".constructor }}{{ messages.prototype }}{{ process }}{{ globalThis }}')).toBe('');
  });

  it('still has a range, and its first line break', () => {
    expect(render('\n{% for i in range(2, 9, 3) %}{{ i }} {% endfor %}{{ range(3)|length }}')).toBe(
      '\n2 5 8 3',
    );
  });

  it('of any text renders or gets a sentence', () => {
    const pieces = [
      '{{',
      '}}',
      '{%',
      '%}',
      ' for m in messages ',
      ' endfor ',
      ' if ',
      ' endif ',
      'messages',
      '|length',
      '[0]',
      '.role',
      ' set x = ',
      '"',
      '(',
      ')',
      '~',
      '1',
      ' ',
      '\n',
    ];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...pieces), { maxLength: 20 }), (parts) => {
        try {
          expect(typeof render(parts.join(''))).toBe('string');
        } catch (error) {
          expect(error).toBeInstanceOf(DataError);
        }
      }),
      { numRuns: 500 },
    );
  });
});
