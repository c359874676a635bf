// Replies of chat endpoints: what a server says of them, and what it leaves out.
import { describe, expect, it } from 'vitest';
import { replyOf } from '../../src/remote/chat.js';

const reply = (choice: object) => replyOf(JSON.stringify({ choices: [choice], usage: { prompt_tokens: 7 } }));

describe('replyOf', () => {
  it.each(['stop', 'length', 'content_filter'])('says that the server ended the text with %s', (reason) => {
    expect(reply({ message: { content: 'half of a' }, finish_reason: reason })).toEqual({
      text: 'half of a',
      finishReason: reason,
      promptTokens: 7,
      completionTokens: 0,
    });
  });

  it.each([undefined, null])('has no reason where the server gives %s', (reason) => {
    expect(reply({ message: { content: null }, finish_reason: reason })).toMatchObject({
      text: '',
      finishReason: undefined,
    });
  });

  it('refuses what is no reply', () => {
    expect(() => replyOf('{"choices":[]}')).toThrow('is it a chat endpoint?');
  });
});
