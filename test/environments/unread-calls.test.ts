// Whether a chat template writes calls in a form that is read from turns.
import { expect, it } from 'vitest';
import { unreadCallsSentence } from '../../src/environments/unread-calls.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { chatModel, END_OF_TURN } from '../generate/chat-model.js';

const tools = [
  { type: 'function', function: { name: 'add', parameters: { type: 'object', properties: {} } } },
];

const template = (call: string, opening = '') =>
  '{% for t in tools or [] %}{{ t.function.name }};{% endfor %}{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}' +
  `{% for c in m.tool_calls or [] %}${call}{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n${opening}{% endif %}`;

const sentence = async (text: string, given: readonly unknown[] = tools) =>
  unreadCallsSentence(await loadTokenizer(await chatModel(text)), given, [END_OF_TURN]);

it.each([
  ['Hermes', '<tool_call>{{ c.function | tojson }}</tool_call>'],
  ['Qwen 3.5', '<tool_call>\n<function={{ c.function.name }}>\n</function>\n</tool_call>'],
  ['Mistral', '[TOOL_CALLS] [{{ c.function | tojson }}]'],
])('the calls of %s are read', async (_, call) => {
  for (const opening of ['', '<think>\n']) expect(await sentence(template(call, opening))).toBeUndefined();
});

it.each([
  ['GLM', '<tool_call>{{ c.function.name }}\n<arg_key>a</arg_key></tool_call>'],
  [
    'DeepSeek',
    '<calls>function<sep>{{ c.function.name }}\n{{ "```json" + c.function.arguments }}```</calls>',
  ],
  ['LFM', '<|tool_call_start|>[{{ c.function.name }}()]<|tool_call_end|>'],
])('the calls of %s are not, and the sentence shows one', async (_, call) => {
  for (const opening of ['', '<think>\n'])
    expect(await sentence(template(call, opening))).toMatch(
      /^the chat template writes a call as ".*add.*", which is not read as one: /,
    );
});

it('a template without calls, or an environment without tools, says nothing', async () => {
  expect(await sentence(template(''))).toBeUndefined();
  expect(await sentence(template('<x>{{ c.function.name }}'), [])).toBeUndefined();
});
