// Prompts and conversations as tokens: the reply of the model is never tokenised again.
import { beforeEach, describe, expect, it } from 'vitest';
import { Conversation } from '../../src/generate/conversation.js';
import { promptTokens } from '../../src/generate/prompts.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';
import { chatModel, END_OF_TURN, TEMPLATE } from './chat-model.js';

let tokenizer: Tokenizer;
beforeEach(async () => {
  tokenizer = await loadTokenizer(await chatModel());
});

const bytes = (text: string) => [...Buffer.from(text)];
const user = (text: string) => [259, ...bytes(`user\n${text}`), END_OF_TURN, ...bytes('\n')];
const opening = [259, ...bytes('assistant\n')];

describe('promptTokens', () => {
  it('adds the start tokens of the tokenizer before a text, and nothing after it', () => {
    expect(promptTokens(byteTokenizer(), 'ab')).toEqual([97, 98]);
    const affixed = { ...tokenizer, prefixIds: [7], suffixIds: [8], encode: () => [1, 2] } as never;
    expect(promptTokens(affixed, 'ab')).toEqual([7, 1, 2]);
  });

  it('adds none before a text that has them, as one that a chat template wrote', () => {
    const affixed = { ...tokenizer, prefixIds: [7], encode: () => [7, 1, 2] } as never;
    expect(promptTokens(affixed, '<s>ab')).toEqual([7, 1, 2]);
  });

  it('refuses half of a character, which would become another one', () => {
    const sentence =
      'character 3 of the text is half of a surrogate pair (at the end of "ab\\ud83d"), and no character';
    for (const each of [byteTokenizer(), tokenizer])
      expect(() => promptTokens(each, 'ab\ud83dc')).toThrow(sentence);
    expect(promptTokens(byteTokenizer(), 'ab\u{1f600}')).toHaveLength(6);
  });

  it('turns an empty text into the start token, or refuses it if there is none', () => {
    expect(promptTokens(byteTokenizer(), '')).toEqual([256]);
    const none = { prefixIds: [], bosId: undefined, encode: () => [] } as never;
    expect(() => promptTokens(none, '')).toThrow(
      'the prompt is empty, and the tokenizer has no token that begins a text; write at least one character',
    );
  });

  it('renders messages by the chat template, up to the opening of the reply', () => {
    expect(promptTokens(tokenizer, [{ role: 'user', content: 'Hi' }])).toEqual([...user('Hi'), ...opening]);
    expect(() => promptTokens(byteTokenizer(), [{ role: 'user', content: 'Hi' }])).toThrow(
      'the tokenizer has no chat template',
    );
  });
});

describe('Conversation', () => {
  it('keeps the tokens of a reply even if its text would be tokenised differently', () => {
    const conversation = new Conversation(tokenizer, 'Be brief.');
    const system = [259, ...bytes('system\nBe brief.'), END_OF_TURN, ...bytes('\n')];
    const first = [...system, ...user('Hi'), ...opening];
    expect(conversation.ask('Hi')).toEqual(first);
    // A token that no tokenizer would choose for the text "yo".
    const reply = [310, END_OF_TURN];
    conversation.answer(reply, 'yo');
    expect(conversation.ask('Why?')).toEqual([
      ...first,
      ...reply,
      ...bytes('\n'),
      ...user('Why?'),
      ...opening,
    ]);
    conversation.answer([311], 'so');
    const third = conversation.ask('And?');
    // The reply was cut off, so the template closes it.
    expect(third.slice(-(user('And?').length + opening.length + 4))).toEqual([
      ...opening.slice(-1),
      311,
      END_OF_TURN,
      ...bytes('\n'),
      ...user('And?'),
      ...opening,
    ]);
  });

  it('shows the reasoning that the template opens, and keeps it in the history', async () => {
    const opens = TEMPLATE.replace("<|turn|>assistant\\n'", "<|turn|>assistant\\n<think>\\n'");
    const kept = new Conversation(await loadTokenizer(await chatModel(opens)));
    const first = kept.ask('Hi');
    expect([first.slice(-8), kept.opened]).toEqual([bytes('<think>\n'), '<think>\n']);
    const reply = [310, ...bytes('</think>yo'), END_OF_TURN];
    kept.answer(reply, ' a</think>yo');
    // The template writes the history as it was, so that the tokens of the reply stay.
    expect(kept.ask('Why?').slice(0, first.length + reply.length)).toEqual([...first, ...reply]);

    // DeepSeek-R1's leaves out what is past, up to its end, and Qwen3's takes apart what stands between both marks.
    for (const [expression, written] of [
      ["message.content.split('</think>')[-1]", 'yo'],
      [
        "(message.content.split('<think>')[1] if '</think>' in message.content else message.content)",
        '\na</think>yo',
      ],
    ] as const) {
      const template = opens.replace('message.content', expression);
      const other = new Conversation(await loadTokenizer(await chatModel(template)));
      other.ask('Hi');
      other.answer([...bytes('a</think>yo'), END_OF_TURN], 'a</think>yo');
      const asked = tokenizer.decode(other.ask('Why?'));
      expect(asked).toContain(`assistant\n${written}<|end|>`);
    }
    kept.reset();
    expect(kept.opened).toBe('');
    expect(new Conversation(tokenizer).opened).toBe('');
  });

  it('starts again after a reset', () => {
    const conversation = new Conversation(tokenizer);
    conversation.ask('Hi');
    conversation.answer([END_OF_TURN], '');
    conversation.reset();
    expect(conversation.ask('Ho')).toEqual([...user('Ho'), ...opening]);
  });

  it('asks each message by itself where the template leaves earlier ones out', async () => {
    const last = await loadTokenizer(await chatModel("{{ messages[-1].content + '\\n' }}"));
    const conversation = new Conversation(last);
    expect(conversation.forgets).toBe(true);
    conversation.ask('Hi');
    conversation.answer([310, END_OF_TURN], 'yo');
    expect(conversation.ask('Why?')).toEqual(bytes('Why?\n'));
    expect(new Conversation(tokenizer).forgets).toBe(false);
  });

  it('follows a template that rewrites earlier replies', async () => {
    const shouting = TEMPLATE.replace(
      'message.content',
      "(message.content if message.role == 'user' else message.content | upper)",
    );
    const other = await loadTokenizer(await chatModel(shouting));
    const conversation = new Conversation(other);
    conversation.ask('Hi');
    conversation.answer([...bytes('yo'), END_OF_TURN], 'yo');
    expect(conversation.ask('Why?')).toEqual([
      ...user('Hi'),
      ...opening,
      ...bytes('YO'),
      END_OF_TURN,
      ...bytes('\n'),
      ...user('Why?'),
      ...opening,
    ]);
  });
});
