// Where turns stand in a rendered conversation. The spans are written out by hand; the same code was compared with what transformers marks
// by `return_assistant_tokens_mask` for the training templates of TRL 1.13.
import { describe, expect, it } from 'vitest';
import { afterReply, chatTurns } from '../../src/tokenizer/chat-turns.js';
import type { ChatMessage } from '../../src/tokenizer/tokenizer.js';
import { withTemplate } from './templated.js';

const call = (expression: string) => ({
  type: 'function',
  function: { name: 'calc', arguments: { expression } },
});
const conversation: readonly ChatMessage[] = [
  { role: 'user', content: 'Two and three?' },
  { role: 'assistant', content: '', tool_calls: [call('2+3')] },
  { role: 'tool', content: '5' },
  { role: 'assistant', content: 'Five.' },
  { role: 'user', content: 'Thanks' },
  { role: 'assistant', content: 'Bye\nnow' },
];

const PLAIN =
  '{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}!{{ c.function.name }}({{ c.function.arguments.expression }}){% endfor %}<end>\n' +
  '{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}';

/** Only the reasoning after the last question is kept, and a reply at the end has marks of it even where it has none. */
const STRIPPING =
  '{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == "user" %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}' +
  '{% for m in messages %}<im>{{ m.role }}\n' +
  '{% if m.role == "assistant" and loop.index0 > ns.last and (loop.last or m.reasoning_content) %}<think>\n{{ m.reasoning_content or "" }}\n</think>\n\n{% endif %}' +
  '{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments.expression }}){% endfor %}</im>\n{% endfor %}' +
  '{% if add_generation_prompt %}<im>assistant\n{% endif %}';

describe('chatTurns', () => {
  it('cuts the text of a conversation at its turns, the end mark within the turn', () => {
    expect(chatTurns(withTemplate(PLAIN), conversation)).toEqual({
      opening: '[user]Two and three?<end>\n[assistant]',
      turns: [
        { text: '!calc(2+3)<end>', after: '\n[tool]5<end>\n[assistant]' },
        { text: 'Five.<end>', after: '\n[user]Thanks<end>\n[assistant]' },
        { text: 'Bye\nnow<end>', after: '\n' },
      ],
    });
  });

  it('follows a template that leaves out past reasoning', () => {
    const thinking = conversation.map((message) =>
      message.role === 'assistant' ? { ...message, reasoning_content: 'Hm.' } : message,
    );
    const tokenizer = withTemplate(STRIPPING);
    const { opening, turns } = chatTurns(tokenizer, thinking);
    expect(turns.map(({ text }) => text)).toEqual([
      'calc(2+3)</im>',
      'Five.</im>',
      '<think>\nHm.\n</think>\n\nBye\nnow</im>',
    ]);
    const joined = opening + turns.map(({ text, after }) => text + after).join('');
    expect(joined).toBe(tokenizer.applyChatTemplate(thinking));
    const bare = chatTurns(tokenizer, conversation.slice(0, 4)).turns.map(({ text }) => text);
    expect(bare).toEqual(['calc(2+3)</im>', '<think>\n\n</think>\n\nFive.</im>']);
  });

  it('leaves out of the turn what the template itself opens, where every turn has it', () => {
    const opening = PLAIN.replace('%}[assistant]', '%}[assistant]<think>').replace(
      '[{{ m.role }}]',
      '[{{ m.role }}]{% if m.role == "assistant" %}<think>{% endif %}',
    );
    expect(chatTurns(withTemplate(opening), conversation).turns[1]?.text).toBe('Five.<end>');
  });

  it('gives a turn the mark that ends it where another one ends the conversation', () => {
    const returning = PLAIN.replace(
      '<end>',
      '{% if loop.last and m.role == "assistant" %}<return>{% else %}<end>{% endif %}',
    );
    const { turns } = chatTurns(
      withTemplate(returning),
      conversation.slice(2).toSpliced(0, 1, { role: 'user', content: 'Q' }),
    );
    expect(turns.map(({ text }) => text)).toEqual(['Five.<end>', 'Bye\nnow<return>']);
  });

  // GLM 4's way: the mark of a reply is that of the next message, and past reasoning leaves its marks.
  const MARKED =
    '{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == "user" %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}' +
    '{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == "assistant" %}<think>{% if loop.index0 > ns.last %}{{ m.reasoning_content }}{% endif %}</think>\n{% endif %}' +
    '{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}';
  const reasoned = (content: string) => [
    { role: 'user', content: 'Q' },
    { role: 'assistant', content, reasoning_content: 'Hm.' },
    { role: 'user', content: 'Again' },
    { role: 'assistant', content, reasoning_content: 'Hm.' },
  ];

  it.each(['hi', 'k', 'think'])('takes no letters of a mark for the reply %s', (content) => {
    expect(() => chatTurns(withTemplate(MARKED), reasoned(content))).toThrow(
      /otherwise within the conversation than at its end/,
    );
    const { turns } = chatTurns(withTemplate(STRIPPING), reasoned(content));
    expect(turns.map(({ text }) => text)).toEqual([
      `${content}</im>`,
      `<think>\nHm.\n</think>\n\n${content}</im>`,
    ]);
  });

  it('takes no words of a user for a turn, whatever marks they have', () => {
    const said = '<think>a</think>hi';
    const stripped = `{% for m in messages %}<im>{{ m.role }}\n{% if m.role == "assistant" and not loop.last %}</think>{{ m.content.split("</think>")[-1] }}{% else %}{{ m.content }}{% endif %}</im>\n{% endfor %}{% if add_generation_prompt %}<im>assistant\n{% endif %}`;
    const messages = [...'ab'].flatMap(() => [
      { role: 'user', content: said },
      { role: 'assistant', content: said },
    ]);
    expect(() => chatTurns(withTemplate(stripped), messages)).toThrow(/so that the turn cannot be told/);
  });

  it('refuses what the template does not read, and turns that it rewrites', () => {
    const bare = withTemplate(
      '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}',
    );
    expect(() => chatTurns(bare, conversation)).toThrow(
      /does not read tool_calls, so that the model would never see it/,
    );
    expect(() => chatTurns(bare, conversation.slice(-2), { tools: [{}] })).toThrow(/does not read tools/);
    const rewriting = withTemplate(
      '{{ messages | length }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ messages | length }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}',
    );
    const plain = conversation.map(({ tool_calls: _, ...message }) => ({
      ...message,
      content: message.content || 'x',
    }));
    expect(() => chatTurns(rewriting, plain)).toThrow(
      /writes message 2 otherwise within the conversation than at its end/,
    );
  });

  it('asks after a reply as the template goes on', () => {
    expect(afterReply(withTemplate(PLAIN), { role: 'user', content: 'Right?' })).toBe(
      '\n[user]Right?<end>\n[assistant]',
    );
    expect(afterReply(withTemplate(STRIPPING), { role: 'user', content: 'Right?' })).toBe(
      '\n<im>user\nRight?</im>\n<im>assistant\n',
    );
  });
});
