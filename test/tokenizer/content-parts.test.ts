// Contents of several texts: what the template writes of them, and what becomes of a template that reads one text alone.
import { describe, expect, it } from 'vitest';
import { messagesOf } from '../../src/data/sources/chat.js';
import { ChatRenderer } from '../../src/tokenizer/chat-template.js';
import type { ChatTemplateOptions } from '../../src/tokenizer/tokenizer.js';

/** As ChatML's: the content as one text. */
const TEXT = "{% for m in messages %}{{ '[' + m.role + ']' + m.content }}{% endfor %}";
/** The content printed, whatever it is: of a list, what Python prints. */
const PRINTS = '{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}';
/** As Qwen's and Llama's models that see pictures: each part. */
const PARTS =
  '{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}' +
  "{% for part in m.content %}{% if part.type == 'text' %}<{{ part.text }}>{% endif %}{% endfor %}{% endif %}{% endfor %}";
/** As Gemma 3's: the first part of the system message alone, all of others. */
const FIRST =
  "{% set messages_ = messages %}{% if messages[0].role == 'system' %}{{ messages[0].content if messages[0].content is string else messages[0].content[0].text }}" +
  `{% set messages_ = messages[1:] %}{% endif %}${PARTS.replace('in messages %}', 'in messages_ %}')}`;

const part = (text: string) => ({ type: 'text', text });
const user = { role: 'user', content: [part('Look '), part(''), part('here')] };

function written(template: string, messages: readonly object[], options: ChatTemplateOptions = {}) {
  return new ChatRenderer(new Map([['default', template]]), {}).render(
    messagesOf(messages, 'messages'),
    options,
  );
}

describe('a content of several texts', () => {
  it.each([
    ['one text', TEXT],
    ['whatever it is', PRINTS],
  ])('has lines of its own in a template that writes %s', (_, template) => {
    expect(written(template, [user])).toBe('[user]Look \nhere');
    expect(written(template, [{ role: 'user', content: [part('Look '), part('')] }])).toBe('[user]Look ');
  });

  it('is a list to a template that reads one', () => {
    expect(written(PARTS, [user, { role: 'assistant', content: [part('a'), part('b')] }])).toBe(
      '[user]<Look ><here>[assistant]<a><b>',
    );
    expect(written(PARTS, [{ role: 'user', content: [part('Look')] }])).toBe('[user]Look');
  });

  it('loses no part where the template reads the first alone', () => {
    expect(written(FIRST, [{ role: 'system', content: [part('one'), part('two')] }, user])).toBe(
      'one\ntwo[user]<Look ><here>',
    );
  });

  it('can be continued', () => {
    const reply = { role: 'assistant', content: [part('Well'), part('now ')] };
    const options = { continueFinalMessage: true };
    expect(written(TEXT, [user, reply], options)).toBe('[user]Look \nhere[assistant]Well\nnow ');
    expect(written(PARTS, [user, reply], options)).toBe('[user]<Look ><here>[assistant]<Well><now ');
  });

  it('is kept in the records that are written and read again', () => {
    const [message] = messagesOf([user], 'messages');
    expect(message).toEqual({ role: 'user', content: 'Look \nhere', parts: ['Look ', 'here'] });
    expect(messagesOf([message], 'messages')).toEqual([message]);
    // The parts of others say nothing.
    expect(messagesOf([{ role: 'user', content: 'Hi', parts: [{ text: 'Hi' }] }], 'messages')).toEqual([
      { role: 'user', content: 'Hi' },
    ]);
    const edited = { ...message, content: 'Look' };
    expect(written(PARTS, [edited])).toBe('[user]Look');
  });
});
