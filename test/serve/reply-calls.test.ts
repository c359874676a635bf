// Calls of functions in replies, whole and streamed.
import { describe, expect, it, onTestFinished } from 'vitest';
import { loadModel, loadTokenizer } from '../../src/api/model.js';
import { openDevice } from '../../src/runtime/device.js';
import { ReplyReader, replyWithCalls, withMarks } from '../../src/serve/reply-calls.js';
import { serve } from '../../src/serve/server.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';

const properties = { a: { type: 'number' }, b: { type: 'string' } };
const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties } } }];
const call = (given: string, name = 'f') => [name, given] as const;
const hermes = '<tool_call>\n{"name": "f", "arguments": {"a": 1.0}}\n</tool_call>';

describe('a reply', () => {
  it.each([
    ['no call', 'Hello [or {not}] <b>.', 'stop', 'Hello [or {not}] <b>.', []],
    ['a call alone', hermes, 'stop', '', [call('{"a":1.0}')]],
    ['words before it', `Let me see.\n${hermes}`, 'stop', 'Let me see.', [call('{"a":1.0}')]],
    ['words around it', `One.\n${hermes}\nTwo.`, 'stop', 'One.\nTwo.', [call('{"a":1.0}')]],
    ['two', `${hermes}\n${hermes.replace('1.0', '2')}`, 'stop', '', [call('{"a":1.0}'), call('{"a":2}')]],
    ['one whose mark of the end is missing', hermes.slice(0, -13), 'stop', '', [call('{"a":1.0}')]],
    ['one in its reasoning', `<think>${hermes}</think>No.`, 'stop', `<think>${hermes}</think>No.`, []],
    [
      'one after it',
      `<think>\nHm <tool\n</think>\n\n${hermes}`,
      'stop',
      '<think>\nHm <tool\n</think>',
      [call('{"a":1.0}')],
    ],
    [
      'one by the rules of Qwen3.5',
      '<tool_call>\n<function=f>\n<parameter=a>\n12\n</parameter>\n<parameter=b>\n7\n</parameter>\n</function>\n</tool_call>',
      'stop',
      '',
      [call('{"a":12,"b":"7"}')],
    ],
    [
      'one of Mistral',
      'Yes. [TOOL_CALLS][{"name": "g", "arguments": {}}]',
      'stop',
      'Yes.',
      [call('{}', 'g')],
    ],
    [
      'one of Llama',
      '<|python_tag|>{"name": "f", "parameters": {"b": "}"}}',
      'stop',
      '',
      [call('{"b":"}"}')],
    ],
    ['JSON alone', ' {"x": 1}', 'stop', ' {"x": 1}', []],
    [
      'a call that cannot be read',
      `${hermes}<tool_call>{"name": }</tool_call>`,
      'stop',
      `${hermes}<tool_call>{"name": }</tool_call>`,
      [],
    ],
    ['one that was cut off', `Yes ${hermes.slice(0, -20)}`, 'length', `Yes ${hermes.slice(0, -20)}`, []],
    ['a whole one before it was cut off', `${hermes} And`, 'length', `${hermes} And`, []],
    [
      'a mark in the arguments',
      '<tool_call>{"name": "f", "arguments": {"b": "</tool_call> \\u00e9"}}</tool_call>',
      'stop',
      '',
      [call('{"b":"</tool_call> é"}')],
    ],
  ] as const)('with %s', (_, text, reason, content, calls) => {
    const shown = (found: ReturnType<typeof replyWithCalls>['calls']) =>
      found.map(({ id, type, function: { name, arguments: given } }) => {
        expect([type, id]).toEqual(['function', expect.stringMatching(/^[0-9a-z]{9}$/)]);
        return [name, given];
      });
    const whole = replyWithCalls(text, tools, reason);
    expect([whole.content, shown(whole.calls)]).toEqual([content, calls]);
    for (const size of [1, 2, 3, 7, text.length]) {
      const reader = new ReplyReader(tools);
      const pieces = Array.from({ length: Math.ceil(text.length / size) }, (_unused, i) =>
        reader.push(text.slice(i * size, (i + 1) * size), null),
      );
      expect(pieces.flatMap((piece) => piece.calls)).toEqual([]);
      const last = reader.push('', reason);
      expect([...pieces, last].map((piece) => piece.content).join('')).toBe(content);
      expect(shown(last.calls)).toEqual(calls);
    }
  });

  it('sends at once what can be no call', () => {
    const reader = new ReplyReader(tools);
    const pieces = ['A <', 'b> is', ' <tool', '_calls', '. ', '{'];
    expect(pieces.map((piece) => reader.push(piece, null).content)).toEqual([
      ...['A', ' <b> is', '', ' <tool_calls', '.', ' {'],
    ]);
  });
});

it('the marks of calls are text where they are special tokens', () => {
  const texts = ['<s>', '[TOOL_CALLS]', 'a'];
  const tokenizer = {
    tokenBytes: (id: number) => Buffer.from(texts[id] as string),
    isSpecial: (id: number) => id < 2,
  } as unknown as Tokenizer;
  expect([0, 1, 2].map((id) => withMarks(tokenizer).isSpecial(id))).toEqual([true, false, false]);
});

describe('a server', () => {
  const calculator = { type: 'function', function: { name: 'calculator', parameters: { type: 'object' } } };
  const question = {
    role: 'user',
    content:
      'There are 2 bags for Sue with 18 apples in each. Sue gives 15 to Kim. How many apples does Sue have at the end?',
  };

  async function ask(url: string, body: object) {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ temperature: 0, max_tokens: 60, ...body }),
    });
    return await response.text();
  }

  it('lets an agent call its tools, whole and streamed', async () => {
    const device = openDevice('cpu');
    const model = await loadModel(device, 'word-problems-turns');
    const tokenizer = await loadTokenizer('word-problems-turns');
    const server = await serve({ name: 'agent', model, tokenizer }, { port: 0, cacheBytes: 8_000_000 });
    onTestFinished(async () => {
      await server.close(0);
      model.dispose();
      device.dispose();
    });
    const messages: object[] = [question];
    const asked = { messages, tools: [calculator] };
    const results = ['36', '21'];
    const expressions: string[] = [];
    for (;;) {
      const { choices } = JSON.parse(await ask(server.url, asked));
      const [{ message, finish_reason: reason }] = choices;
      const events = (await ask(server.url, { ...asked, stream: true }))
        .split('\n\n')
        .filter((event) => event.startsWith('data: {'))
        .map((event) => JSON.parse(event.slice(6)).choices[0]);
      expect(events.map(({ delta }) => delta.content).join('')).toBe(message.content ?? '');
      expect(events.at(-1).finish_reason).toBe(reason);
      const streamed = events.flatMap(({ delta }) => delta.tool_calls ?? []);
      const calls = message.tool_calls ?? [];
      const parts = (list: readonly { function: object }[]) => list.map((one) => one.function);
      expect(parts(streamed)).toEqual(parts(calls));
      expect(streamed.map(({ index }) => index)).toEqual(calls.map((_: unknown, i: number) => i));
      if (calls.length === 0) {
        expect([reason, message.content]).toEqual(['stop', expect.stringContaining('21')]);
        break;
      }
      expect(reason).toBe('tool_calls');
      const [
        {
          id,
          function: { name, arguments: given },
        },
      ] = calls;
      expect(name).toBe('calculator');
      expressions.push(JSON.parse(given).expression);
      messages.push(message, { role: 'tool', tool_call_id: id, content: results[expressions.length - 1] });
    }
    expect(expressions).toHaveLength(2);
    // As text where the request forbids calls or names no tools.
    for (const own of [{ tools: [calculator], tool_choice: 'none' }, {}]) {
      const { choices } = JSON.parse(await ask(server.url, { messages: [question], ...own }));
      expect([choices[0].finish_reason, choices[0].message.content]).toEqual([
        'stop',
        expect.stringContaining('<tool_call>'),
      ]);
      expect(choices[0].message).not.toHaveProperty('tool_calls');
    }
  });
});
