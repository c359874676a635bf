import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { sharedPath } from '../shared.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const files = fileURLToPath(new URL('files', import.meta.url));
const qwen = sharedPath('data/tokenizers/qwen2_5');
const vectors = sharedPath('data/tokenizers/vectors/qwen2.inp');

interface Expected {
  readonly text: string;
  readonly ids: readonly number[];
  readonly bare: readonly number[];
  readonly decoded: string;
}

describe.skipIf(qwen === undefined || vectors === undefined)(
  'the Qwen2.5 tokenizer (needs the shared data)',
  async () => {
    // The body of a skipped suite runs too.
    const tokenizer = qwen === undefined ? byteTokenizer() : await loadTokenizer(qwen);
    const read = (path: string | undefined) => (path === undefined ? '' : readFileSync(path, 'utf8'));
    const texts = read(vectors).split('\n__ggml_vocab_test__\n');
    const expected = read(vectors?.replace(/inp$/, 'out')).split('\n');

    it('gives the ids of all 47 published vectors, and decodes them', () => {
      expect(texts).toHaveLength(47);
      for (const [i, text] of texts.entries()) {
        const ids = (expected[i] ?? '').split(' ').filter(Boolean).map(Number);
        expect(tokenizer.encode(text), JSON.stringify(text)).toEqual(ids);
        expect(tokenizer.decode(ids)).toBe(text);
      }
    });

    it('has its special tokens and adds none by itself', () => {
      expect([tokenizer.bosId, tokenizer.eosId, tokenizer.padId]).toEqual([undefined, 151645, 151643]);
      expect(tokenizer.vocabSize).toBe(151665);
      expect(tokenizer.prefixIds).toEqual([]);
      expect(tokenizer.suffixIds).toEqual([]);
    });

    it('encodes special tokens of a text, and can leave them out of the decoded text', () => {
      const ids = tokenizer.encode('a<|im_end|>b');
      expect(ids).toEqual([64, 151645, 65]);
      expect(tokenizer.decode(ids)).toBe('a<|im_end|>b');
      expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe('ab');
    });

    it('decodes an empty list, and refuses an unknown id', () => {
      expect(tokenizer.decode([])).toBe('');
      expect(() => tokenizer.decode([64, 151900])).toThrow(
        /the id 151900 is not in the vocabulary of 151665/,
      );
    });

    it('is the same after saving and loading', async () => {
      const directory = temporaryDirectory();
      await tokenizer.save(directory);
      const again = await loadTokenizer(directory);
      expect(again.encode('Führer 3½ months')).toEqual(tokenizer.encode('Führer 3½ months'));
      const messages = [{ role: 'user', content: 'x' }];
      expect(again.applyChatTemplate(messages)).toBe(tokenizer.applyChatTemplate(messages));
    });

    it('renders conversations like transformers', () => {
      const cases = JSON.parse(readFileSync(join(files, 'qwen2_5-chat.json'), 'utf8')) as {
        messages: { role: string; content?: string }[];
        tools?: unknown[];
        add_generation_prompt?: boolean;
        text: string;
      }[];
      expect(cases.length).toBeGreaterThanOrEqual(7);
      for (const { messages, tools, add_generation_prompt: addGenerationPrompt = false, text } of cases) {
        const options = tools === undefined ? { addGenerationPrompt } : { addGenerationPrompt, tools };
        expect(tokenizer.applyChatTemplate(messages, options)).toBe(text);
      }
    });
  },
);

describe('tokenizers that put a space before a text', () => {
  for (const name of ['prepend', 'metaspace']) {
    it(`${name}: ids and text are those of transformers, with the special tokens of the post-processor`, async () => {
      const tokenizer = await loadTokenizer(join(files, name));
      const rows = JSON.parse(readFileSync(join(files, name, 'expected.json'), 'utf8')) as Expected[];
      for (const { text, ids, bare, decoded } of rows) {
        expect(tokenizer.encode(text), text).toEqual(ids);
        expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(bare);
        expect(tokenizer.decode(bare)).toBe(decoded);
      }
      expect(tokenizer.prefixIds).toEqual([1]);
      expect(tokenizer.bosId).toBe(1);
    });

    it(`${name}: adds no space before a continuation`, async () => {
      const tokenizer = await loadTokenizer(join(files, name));
      const start = tokenizer.encode('7+5', { addSpecialTokens: false });
      const rest = tokenizer.encode('=12', { continuation: true });
      expect(tokenizer.decode([...start, ...rest])).toBe('7+5=12');
      expect(tokenizer.decode([...start, ...tokenizer.encode('=12', { addSpecialTokens: false })])).toBe(
        '7+5 =12',
      );
    });
  }
});

describe('Unicode white space', () => {
  const load = async (normalizer: object | null) => {
    const directory = temporaryDirectory();
    const vocab: Record<string, number> = {};
    for (const text of ['ï', '»', '¿', "'", 's', 'Ġ', 'Â', 'ħ', "'s"])
      vocab[text] ??= Object.keys(vocab).length;
    const json = {
      model: { type: 'BPE', vocab, merges: [["'", 's']] },
      added_tokens: [],
      normalizer,
      pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, use_regex: true },
      post_processor: null,
      decoder: { type: 'ByteLevel' },
    };
    writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(json));
    return loadTokenizer(directory);
  };

  it('does not include a byte order mark inside a text, so the apostrophe after it stays with it', async () => {
    const tokenizer = await load(null);
    expect(tokenizer.encode("\u{FEFF}'s")).toEqual([0, 1, 2, 3, 4]);
    expect(tokenizer.encode("'s")).toEqual([8]);
  });

  it('does not include a byte order mark at the ends, which is not stripped', async () => {
    const tokenizer = await load({ type: 'Strip', strip_left: true, strip_right: true });
    expect(tokenizer.encode('  \u{FEFF} ')).toEqual([0, 1, 2]);
  });
});

describe('chat templates', () => {
  it('a list of named templates gives the default one, the one for tools, or one by name', async () => {
    const tokenizer = await loadTokenizer(join(files, 'prepend'));
    const messages = [{ role: 'user', content: ' hi ' }];
    expect(tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true })).toBe(
      '<s>[user] hi\n[assistant]',
    );
    expect(tokenizer.applyChatTemplate(messages, { tools: [{}, {}] })).toBe('TOOLS 2  hi ');
    expect(tokenizer.applyChatTemplate(messages, { template: 'tool_use', tools: [] })).toMatch(/^TOOLS 0/);
    expect(() => tokenizer.applyChatTemplate(messages, { template: 'rag' })).toThrow(
      "no chat template named 'rag'; it has default, tool_use",
    );
  });

  it('chat_template.jinja takes precedence over tokenizer_config.json', async () => {
    const directory = await copyOf('prepend');
    writeFileSync(
      join(directory, 'chat_template.jinja'),
      '{% for m in messages %}\n{{ m.content }}!\n{% endfor %}',
    );
    const tokenizer = await loadTokenizer(directory);
    expect(tokenizer.applyChatTemplate([{ role: 'user', content: 'a' }])).toBe('a!\n');
  });

  it('a refusal by the template and invalid Jinja give one sentence', async () => {
    const directory = await copyOf('prepend');
    writeFileSync(
      join(directory, 'chat_template.jinja'),
      "{{ raise_exception('System role not supported') }}",
    );
    const refusing = await loadTokenizer(directory);
    expect(() => refusing.applyChatTemplate([])).toThrow(
      /cannot render these 0 messages \(System role not supported\)/,
    );
    writeFileSync(join(directory, 'chat_template.jinja'), '{% for %}');
    const broken = await loadTokenizer(directory);
    expect(() => broken.applyChatTemplate([])).toThrow(/the chat template 'default' is not valid Jinja/);
  });

  it('a tokenizer without a template is refused', async () => {
    const tokenizer = await loadTokenizer(join(files, 'metaspace'));
    expect(tokenizer.hasChatTemplate).toBe(false);
    expect(() => tokenizer.applyChatTemplate([])).toThrow(/the tokenizer has no chat template/);
  });
});

describe('unusable files give one sentence with the path', () => {
  const cases: [string, Record<string, string | Buffer>, RegExp][] = [
    ['nothing', {}, /: the directory has no tokenizer\.json; save the tokenizer/],
    [
      'only SentencePiece',
      { 'tokenizer.model': 'x' },
      /tokenizer\.model \(SentencePiece\) is there, but is not read/,
    ],
    ['cut short', { 'tokenizer.json': '{"model": {' }, /tokenizer\.json: is not JSON \(/],
    ['not gzip', { 'tokenizer.json.gz': 'plain' }, /tokenizer\.json\.gz: is damaged gzip data/],
    [
      'another JSON',
      { 'tokenizer.json': '{"model": {}}' },
      /tokenizer\.json: lacks 'added_tokens', 'normalizer'/,
    ],
    ['a list', { 'tokenizer.json': '[]' }, /holds no JSON object/],
    [
      'a BPE without merges',
      { 'tokenizer.json': tokenizerJson({ type: 'BPE', vocab: {} }) },
      /'model.merges' is no list, found nothing/,
    ],
    [
      'an unknown model',
      { 'tokenizer.json': tokenizerJson({ type: 'Magic', vocab: {} }) },
      /of type "Magic"; expected BPE/,
    ],
  ];
  for (const [name, contents, message] of cases) {
    it(name, async () => {
      const directory = temporaryDirectory();
      for (const [file, content] of Object.entries(contents)) writeFileSync(join(directory, file), content);
      await expect(loadTokenizer(directory)).rejects.toThrow(message);
      await expect(loadTokenizer(directory)).rejects.toThrow(directory);
    });
  }

  it('a directory that does not exist', async () => {
    await expect(loadTokenizer('/nowhere/at/all')).rejects.toThrow(
      '/nowhere/at/all: there is no such directory; save the tokenizer',
    );
  });

  it('an end token outside the vocabulary', async () => {
    const directory = await copyOf('metaspace');
    writeFileSync(join(directory, 'tokenizer_config.json'), '{"eos_token": "<eot>"}');
    await expect(loadTokenizer(directory)).rejects.toThrow(
      /tokenizer_config\.json: 'eos_token' is "<eot>", which is not in the vocabulary/,
    );
  });
});

async function copyOf(name: string): Promise<string> {
  const directory = temporaryDirectory();
  await (await loadTokenizer(join(files, name))).save(directory);
  return directory;
}

function tokenizerJson(model: object): string {
  const empty = {
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: null,
    post_processor: null,
    decoder: null,
  };
  return JSON.stringify({ model, ...empty });
}
