// Writes the tokenizer of the word-problem models into a directory: a byte-level tokenizer.json in which every word of the
// problems, every digit and every sign is one token.
//   node scripts/word-tokenizer.mjs assets/word-problems
//   node scripts/word-tokenizer.mjs assets/word-problems-turns turns    with calls of the calculator as tokens, and a chat template for them
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { wordProblems } from '../dist/data/problems/generate.js';
import { answerLine } from '../dist/data/problems/line.js';
import { rightSolution } from '../dist/data/problems/solution.js';
import { byteCharacters } from '../dist/tokenizer/token-bytes.js';

/** A word with the space before it, a sign with the spaces around it; all else character by character. */
const PIECES = ' ?[A-Za-z]+| [-+×÷=] |: |[0-9]|[^\\sA-Za-z0-9]|\\s';

const SPECIAL = ['<|pad|>', '<|eos|>'];

function wordsOf(texts) {
  const words = new Set(['+', '-', '×', '÷', '='].map((sign) => ` ${sign} `));
  for (const text of texts) for (const piece of text.match(new RegExp(PIECES, 'gu'))) words.add(piece);
  return [...words].filter((word) => word.length > 1).sort();
}

function* texts() {
  for (const part of ['train', 'test']) {
    for (const problem of wordProblems({
      seed: 0,
      samples: 30_000,
      levels: [1, 1, 1, 1],
      part,
      templates: 'all',
    })) {
      yield problem.problem;
      yield rightSolution(problem).join('\n');
    }
  }
  for (const answer of ['even', 'odd', 'yes', 'no']) yield answerLine(answer);
}

/** Texts around the expression of a call, as chat templates write calls: a token each, or a call would have fifty. */
const CALL = ['<tool_call>{"name": "calculator", "arguments": {"expression": "', '"}}</tool_call>'];

/** The problem and each result on a line of their own; a turn is what it says and its calls, up to the end token. */
const TURNS = `{%- for tool in tools or [] %}{# The model knows its one tool. #}{% endfor -%}
{%- for message in messages -%}
{{ message['content'] }}
{%- for call in message['tool_calls'] or [] %}<tool_call>{{ call['function'] | tojson }}</tool_call>{% endfor -%}
{{ '<|eos|>' if message['role'] == 'assistant' else '\n' }}
{%- endfor -%}
`;

export function wordTokenizerFiles({ turns = false } = {}) {
  const characters = byteCharacters();
  const spelled = (text) => [...Buffer.from(text, 'utf8')].map((byte) => characters[byte]).join('');
  const words = [...SPECIAL, ...characters, ...wordsOf(texts()).map(spelled)];
  const tokens = turns ? [...words, ...CALL] : words;
  const added = [...SPECIAL, ...(turns ? CALL : [])];
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false };
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added.map((content) => ({
      id: tokens.indexOf(content),
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: SPECIAL.includes(content),
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
      // A word of the vocabulary is taken whole; any other is spelled in bytes, as there are no merges.
      ignore_merges: true,
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: [],
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
    // Every question stands alone: the last message is the problem, and its solution begins on the next line.
    'chat_template.jinja': turns ? TURNS : "{{ messages[-1]['content'] }}{{ '\\n' }}",
  };
}

const [directory, kind] = process.argv.slice(2);
if (directory !== undefined) {
  mkdirSync(directory, { recursive: true });
  for (const [name, content] of Object.entries(wordTokenizerFiles({ turns: kind === 'turns' })))
    writeFileSync(join(directory, name), content);
}
