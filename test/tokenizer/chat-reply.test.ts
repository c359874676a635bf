// Where the content of a reply stands in what a chat template writes of it.
import { expect, it } from 'vitest';
import { chatReply } from '../../src/tokenizer/chat-reply.js';
import { withTemplate } from './templated.js';

const prompt = [{ role: 'user', content: 'Say it' }];

/** Qwen3's way: a reply without reasoning has its marks. */
const THINKING =
  '{% for m in messages %}<im>{{ m.role }}\n{% if m.role == "assistant" %}<think>\n{{ m.reasoning_content or "" }}\n</think>\n\n{% endif %}' +
  '{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}</call>{% endfor %}</im>\n{% endfor %}' +
  '{% if add_generation_prompt %}<im>assistant\n{% endif %}';
/** GPT-OSS's way. */
const CHANNELS =
  '{% for m in messages %}<im>{{ m.role }}{% if m.role == "assistant" %}<|channel|>final<|message|>{% endif %}{{ m.content }}</im>{% endfor %}' +
  '{% if add_generation_prompt %}<im>assistant{% endif %}';

it.each(['hi', 'k', 'think', '<', 'n', 'Hello'])(
  'the reply %j stands after the marks of reasoning',
  (content) => {
    const reply = chatReply(withTemplate(THINKING), prompt, { role: 'assistant', content });
    expect(reply).toEqual({
      opening: '<im>user\nSay it</im>\n<im>assistant\n',
      head: '<think>\n\n</think>\n\n',
      content,
      tail: '</im>',
    });
  },
);

it.each(['a', 'final', 'message'])('the reply %j stands after the words of its channel', (content) => {
  const { head, tail } = chatReply(withTemplate(CHANNELS), prompt, { role: 'assistant', content });
  expect([head, tail]).toEqual(['<|channel|>final<|message|>', '</im>']);
});

it('a reply stands after a reasoning and before a call that say the same', () => {
  const reply = {
    role: 'assistant',
    content: 'hi',
    reasoning_content: 'hi',
    tool_calls: [{ type: 'function', function: { name: 'hi', arguments: {} } }],
  };
  expect(chatReply(withTemplate(THINKING), prompt, reply)).toMatchObject({
    head: '<think>\nhi\n</think>\n\n',
    content: 'hi',
    tail: '<call>hi</call></im>',
  });
});
