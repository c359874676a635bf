// Data sets of TRL's trainers and of LLaMA-Factory, in their documented layouts.
import { describe, expect, it } from 'vitest';
import type { StepRecord } from '../../../src/records/record.js';
import { fileWith as file, load } from '../data-file.js';

const USER = { role: 'user', content: 'What is 2+2?' };
const REPLY = (content: string) => ({ role: 'assistant', content });

const fileWith = (rows: readonly object[]) =>
  file('rows.jsonl', rows.map((row) => JSON.stringify(row)).join('\n'));

/** What a row says, without the place that it comes from. */
async function read(row: object): Promise<StepRecord> {
  const { records } = await load(fileWith([row]));
  expect(records).toHaveLength(1);
  const { provenance: _, ...record } = records[0] as StepRecord;
  return record;
}

const whole = (text: string) => [{ text, label: null, kind: 'normal' }];

describe('TRL', () => {
  it.each([
    ['unpaired', { prompt: 'The sky is', completion: ' blue.', label: true }, 1],
    ['unpaired, undesirable', { prompt: 'The sky is', completion: ' green.', label: false }, 0],
    ['prompt and completion', { prompt: 'The sky is', completion: ' blue.' }, undefined],
  ])('%s text stays as it is', async (_, row, outcome) => {
    expect(await read(row)).toEqual({
      problem: 'The sky is',
      prompt: 'The sky is',
      steps: whole(row.completion),
      ...(outcome === undefined ? {} : { outcome }),
    });
  });

  it('preferences have an explicit prompt, or share their beginning', async () => {
    const expected = {
      problem: 'The sky is',
      prompt: 'The sky is',
      steps: whole(' blue.'),
      rejected: whole(' green.'),
    };
    expect(await read({ prompt: 'The sky is', chosen: ' blue.', rejected: ' green.' })).toEqual(expected);
    expect(await read({ chosen: 'The sky is blue.', rejected: 'The sky is green.' })).toEqual(expected);
    // Marks of chat templates stay whole, and the line breaks behind them: both are tokens of the prompt.
    for (const opening of [
      '<|user|>Is it?<|end|><|assistant|>',
      '<s>[INST] Is it? [/INST]',
      'Is it?<|eot|>\n\n',
    ]) {
      const { prompt, steps, rejected } = (await read({
        chosen: `${opening}Yes`,
        rejected: `${opening}Yet`,
      })) as never as {
        prompt: string;
        steps: { text: string }[];
        rejected: { text: string }[];
      };
      expect([prompt, steps[0]?.text, rejected[0]?.text]).toEqual([opening, 'Yes', 'Yet']);
    }
  });

  it('refuses a question that would not be read beside two texts, and messages after a text', async () => {
    const texts = { chosen: 'It is 4.', rejected: 'It is 5.' };
    await expect(read({ system: 'Add.', question: 'What is 2+2?', ...texts })).rejects.toThrow(
      "column 'question' stands beside 'chosen' and 'rejected', which do not hold it, and would not be read; --set data.columns.prompt=question",
    );
    const both = { chosen: 'What is 2+2? 4', rejected: 'What is 2+2? 5' };
    expect(await read({ question: 'What is 2+2?', ...both })).toMatchObject({ prompt: 'What is 2+2?' });
    const messages = { chosen: [REPLY('4')], rejected: [REPLY('5')] };
    for (const row of [messages, { completion: [REPLY('4')] }])
      await expect(read({ prompt: 'What is 2+2?', ...row })).rejects.toThrow(
        /column 'prompt' is a text and column '(chosen|completion)' a list of messages/,
      );
  });

  it('conversations keep their turns', async () => {
    const asked = { problem: USER.content, prompt: [USER] };
    expect(await read({ prompt: [USER], completion: [REPLY('4')], label: true })).toEqual({
      ...asked,
      steps: whole('4'),
      outcome: 1,
    });
    const pair = { ...asked, steps: whole('4'), rejected: whole('5') };
    expect(await read({ prompt: [USER], chosen: [REPLY('4')], rejected: [REPLY('5')] })).toEqual(pair);
    expect(await read({ chosen: [USER, REPLY('4')], rejected: [USER, REPLY('5')] })).toEqual(pair);
    expect(await read({ messages: [USER, REPLY('4')] })).toEqual({ ...asked, steps: whole('4') });
  });

  it('prompt and completion come before messages, as in TRL, and what is not read is counted', async () => {
    const row = { prompt: 'The sky is', completion: ' blue.' };
    const messages = [USER, REPLY('4')];
    const unaskedOf = async (own: object) => Object.fromEntries((await load(fileWith([own]))).report.unasked);
    expect(await read({ ...row, messages })).toEqual(await read(row));
    expect(await unaskedOf({ ...row, messages })).toEqual({ messages: 1 });
    expect(await unaskedOf({ ...row, messages: [USER, REPLY('blue.')] })).toEqual({});
    expect(await unaskedOf({ messages, problem: 'What is 3?', question: 'What is 2+2?' })).toEqual({
      problem: 1,
    });
    // The prompt of a pair is read, whatever instruction stands beside it.
    const pair = { prompt: 'The sky is', chosen: ' blue.', rejected: ' green.' };
    expect(await read({ ...pair, instruction: 'Finish.' })).toEqual(await read(pair));
    expect(await unaskedOf({ ...pair, instruction: 'Finish.' })).toEqual({ instruction: 1 });
    // Without one, the instruction is the question, whatever messages stand beside it.
    const asked = { instruction: 'Which?', chosen: 'Blue.', rejected: 'Green.' };
    expect(await read({ ...asked, messages })).toEqual(await read(asked));
    expect(
      await read({ chosen: [USER, REPLY('4')], rejected: [USER, REPLY('5')], instruction: 'x' }),
    ).toEqual(await read({ chosen: [USER, REPLY('4')], rejected: [USER, REPLY('5')] }));
  });

  it('a prompt in text beside conversations that end with it is theirs, as in UltraFeedback', async () => {
    const [chosen, rejected] = [
      [USER, REPLY('4')],
      [USER, REPLY('5')],
    ];
    const prompt = USER.content;
    expect(await read({ prompt, chosen, rejected, messages: chosen })).toEqual(
      await read({ chosen, rejected }),
    );
    await expect(read({ prompt: 'Other?', chosen, rejected })).rejects.toThrow(
      /'prompt' is a text and column 'chosen' a list of messages/,
    );
  });

  it('a text alone has no prompt, unless it was put together from other columns', async () => {
    const text = '### Question: 2+2\n### Answer: 4\n';
    expect(await read({ text })).toEqual({ problem: text, prompt: '', steps: whole(text) });
    expect(await read({ text, instruction: 'Add 2+2', input: '', output: '4' })).toMatchObject({
      problem: 'Add 2+2',
      steps: whole('4'),
    });
    expect(await read({ text, prompt: 'a', completion: 'b' })).toMatchObject({ prompt: 'a' });
    const record = { problem: text, prompt: '', steps: whole(text) };
    expect(await read(record)).toEqual(record);
  });

  it.each([
    [{ text: ' \n' }, /column 'text' is empty/],
    [
      { prompt: 'a', completion: 'b', label: 'yes' },
      /column 'label' is the text "yes"; expected true, false/,
    ],
    [{ prompt: 'a', completion: 'b', label: null }, /column 'label' is null; expected true or false/],
    [{ prompt: 'a', completion: '', label: true }, /column 'completion' is empty/],
    [
      { chosen: [USER, REPLY('4')], rejected: [{ ...USER, content: 'other' }, REPLY('5')] },
      /begin with different messages/,
    ],
    [
      { messages: [USER] },
      /ends with a message of "user"; expected a prompt and then a reply of "assistant"/,
    ],
    [{ prompt: [USER], chosen: [USER], rejected: [REPLY('5')] }, /column 'chosen' holds 1 messages/],
    [{ chosen: 'abc', rejected: 'xyz' }, /the beginning that 'chosen' and 'rejected' share is empty/],
  ])('refuses %j', async (row, message) => {
    await expect(load(fileWith([row]))).rejects.toThrow(message);
  });
});

describe('LLaMA-Factory', () => {
  it('Alpaca: instruction and input make the question; system and history come before it', async () => {
    const row = {
      instruction: 'Add.',
      input: '2+2',
      output: '4',
      system: 'Be short.',
      history: [['Hi', 'Hello']],
    };
    const { records } = await load(fileWith([row]), { turns: 'last' });
    const { provenance: _, ...record } = records[0] as StepRecord;
    expect(record).toEqual({
      problem: 'Add.\n2+2',
      prompt: [
        { role: 'system', content: 'Be short.' },
        { role: 'user', content: 'Hi' },
        REPLY('Hello'),
        { role: 'user', content: 'Add.\n2+2' },
      ],
      steps: whole('4'),
    });
  });

  it.each([
    [
      { instruction: 'Add 2+2', input: '', output: '5', kto_tag: false },
      { steps: whole('5'), outcome: 0 },
    ],
    [
      { instruction: 'Add 2+2', chosen: '4', rejected: '5' },
      { steps: whole('4'), rejected: whole('5') },
    ],
  ])('Alpaca: %j', async (row, expected) => {
    const asked = { problem: 'Add 2+2', prompt: [{ role: 'user', content: 'Add 2+2' }] };
    expect(await read(row)).toEqual({ ...asked, ...expected });
  });

  it.each([
    [
      { kto_tag: true },
      [
        { from: 'human', value: 'Hi' },
        { from: 'gpt', value: '4' },
      ],
      { outcome: 1 },
    ],
    [
      { chosen: { from: 'gpt', value: '4' }, rejected: { from: 'gpt', value: '5' } },
      [{ from: 'human', value: 'Hi' }],
      { rejected: whole('5') },
    ],
  ])('ShareGPT: %j', async (more, conversations, expected) => {
    expect(await read({ conversations, ...more })).toEqual({
      problem: 'Hi',
      prompt: [{ role: 'user', content: 'Hi' }],
      steps: whole('4'),
      ...expected,
    });
  });

  it('ShareGPT: a reply of weight 0 is context, with a system message of its own column too', async () => {
    const turn = (from: string, value: string, more = {}) => ({ from, value, ...more });
    const conversations = [
      ...[turn('human', 'Hi'), turn('gpt', 'Bad.', { weight: 0 })],
      ...[turn('human', 'And?'), turn('gpt', 'Good.', { weight: 1 })],
    ];
    for (const more of [{}, { system: 'Be short.' }]) {
      const { records } = await load(fileWith([{ conversations, ...more }]));
      expect(records.map(({ steps }) => steps[0]?.text)).toEqual(['Good.']);
    }
    const context = conversations.map((each) => ({ ...each, weight: 0 }));
    await expect(load(fileWith([{ conversations: context }]))).rejects.toThrow('has weight 0');
  });

  it.each(['function_call', 'tool_plan', 'tool_responses', 'images'])(
    'refuses a message whose %s would be lost',
    async (key) => {
      await expect(read({ messages: [USER, { ...REPLY('4'), [key]: { name: 'add' } }] })).rejects.toThrow(
        `message 2 of column 'messages' has ${key}, which is not read and would be lost`,
      );
      const absent = { messages: [USER, { ...REPLY('4'), [key]: null }] };
      expect(await read(absent)).toMatchObject({ steps: [{ text: '4' }] });
    },
  );

  it.each([
    ['LangChain', { id: 'c1', name: 'add', args: { a: 1 }, type: 'tool_call' }],
    ['Anthropic', { id: 'c1', name: 'add', input: { a: 1 }, type: 'tool_use' }],
    ['Inspect', { id: 'c1', function: 'add', arguments: { a: 1 }, type: 'function' }],
    ['nobody', { id: 'c1', function: { name: 'add' }, arguments: { a: 1 } }],
    ['a file of JSON texts', '{"name": "add"}'],
  ])('refuses calls in the form of %s, whose arguments a template would leave out', async (_, call) => {
    const row = (calls: unknown) => ({ messages: [USER, { ...REPLY('Adding.'), tool_calls: calls }] });
    for (const source of ['trl', 'turns'] as const) {
      const reading = load(fileWith([{ ...row([call]), turn_rewards: [1] }]), { source });
      // Turns in a file whose columns have one type are read.
      if (source === 'turns' && typeof call === 'string') await reading;
      else
        await expect(reading).rejects.toThrow(
          /call 1 of message 2 of column 'messages' is .*; expected \{"function": \{"name"/,
        );
    }
    await expect(read(row('[]'))).rejects.toThrow(
      "'tool_calls' of message 2 of column 'messages' is the text",
    );
    for (const given of [{}, { arguments: '' }, { arguments: { a: 1 }, view: 'x' }])
      await read(row([{ id: 'c1', function: { name: 'add', ...given } }]));
  });

  it('refuses a call in the text of ShareGPT whose arguments have another name', async () => {
    const conversations = (call: object) => [
      { from: 'human', value: 'Hi' },
      { from: 'function_call', value: JSON.stringify(call) },
    ];
    await expect(
      read({ conversations: conversations({ name: 'add', parameters: { a: 1 } }) }),
    ).rejects.toThrow('is a function_call of the text');
    await read({ conversations: conversations({ name: 'add' }) });
  });

  it('refuses a result without content that says something elsewhere, as those of Inspect that failed', async () => {
    const tool_calls = [{ id: 'c1', function: { name: 'add', arguments: {} } }];
    const row = (result: object) => ({
      messages: [
        ...[USER, { role: 'assistant', content: '', tool_calls }],
        ...[{ role: 'tool', tool_call_id: 'c1', ...result }, REPLY('4')],
      ],
    });
    for (const [key, value] of Object.entries({
      error: { type: 'unknown', message: 'no such number' },
      output: '4',
      result: 0,
    }))
      await expect(load(fileWith([row({ content: '', [key]: value })]))).rejects.toThrow(
        `message 3 of column 'messages' has no content, and its ${key} is not read and would be lost`,
      );
    for (const one of [{ content: '' }, { content: '', error: null }, { content: '4', error: { code: 1 } }])
      await load(fileWith([row(one)]));
    await load(fileWith([row({ content: null, error: true })]));
  });

  it('tools may be a list of JSON texts; what is no object is refused', async () => {
    const tool = { type: 'function', function: { name: 'add' } };
    const row = { messages: [USER, REPLY('4')] };
    expect(await read({ ...row, tools: [JSON.stringify(tool)] })).toMatchObject({ tools: [tool] });
    for (const [tools, sentence] of [
      [[['add']], "tool 1 of column 'tools' is a list of 1; expected an object, or its JSON"],
      [[tool, 'add'], 'tool 2 of column \'tools\' is the text "add"; expected an object'],
      [[{ ...tool, function: '{}' }], "the function of tool 1 of column 'tools' is the text"],
    ] as const)
      await expect(read({ ...row, tools })).rejects.toThrow(sentence);
  });

  it('refuses a reply that would be learned in part', async () => {
    const parts = { train_detail: [{ begin_offset: 0, end_offset: 1, train: false }], loss_scale: 0.5 };
    for (const [name, value] of Object.entries(parts))
      await expect(read({ messages: [USER, { ...REPLY('4'), [name]: value }] })).rejects.toThrow(
        `message 2 has ${name}, by which a part of it would be learned`,
      );
    await expect(read({ messages: [USER, { ...REPLY('4'), loss: 0.5 }] })).rejects.toThrow(
      'loss of message 2 is the number 0.5; expected true, false, 1, 0 or null',
    );
    const whole = { ...REPLY('4'), train: 'true', loss_scale: 1, train_detail: null };
    expect(await read({ messages: [USER, whole] })).toMatchObject({ steps: [{ text: '4' }] });
  });

  it("ShareGPT's function_call is a reply that calls, and observation what a tool returned", async () => {
    const call = { name: 'add', arguments: { a: 2, b: 2 } };
    const calling = (value: string) => [
      { from: 'human', value: 'Add' },
      { from: 'function_call', value },
      { from: 'observation', value: '4' },
      { from: 'gpt', value: 'It is 4.' },
    ];
    const tool_calls = [{ type: 'function', function: call }];
    const { records } = await load(fileWith([{ conversations: calling(JSON.stringify(call)) }]));
    expect(records.map(({ prompt, steps }) => ({ prompt, steps }))).toEqual([
      {
        prompt: [{ role: 'user', content: 'Add' }],
        steps: [{ text: '', label: null, message: { tool_calls }, kind: 'normal' }],
      },
      {
        prompt: [
          { role: 'user', content: 'Add' },
          { role: 'assistant', content: '', tool_calls },
          { role: 'tool', content: '4' },
        ],
        steps: whole('It is 4.'),
      },
    ]);
    const two = await load(fileWith([{ conversations: calling(JSON.stringify([call, call])) }]));
    expect(two.records[0]?.steps[0]?.message?.tool_calls).toEqual([...tool_calls, ...tool_calls]);
    await expect(load(fileWith([{ conversations: calling('add(2, 2)') }]))).rejects.toThrow(
      /message 2 of column 'conversations' is a function_call of the text "add\(2, 2\)"; expected \{"name"/,
    );
  });

  it('functions stand among tools as LLaMA-Factory shows them to templates, in JSON or not', async () => {
    const add = { name: 'add', description: 'adds', parameters: { type: 'object' } };
    const tools = [{ type: 'function', function: add }];
    const conversations = [
      { from: 'human', value: 'Add' },
      { from: 'gpt', value: '4' },
    ];
    for (const given of [[add], JSON.stringify([add]), tools])
      for (const row of [{ conversations }, { instruction: 'Add', output: '4' }])
        expect(await read({ ...row, tools: given })).toMatchObject({ tools, steps: whole('4') });
    // transformers shows templates what a row of TRL has.
    expect(await read({ messages: [USER, REPLY('4')], tools: [add] })).toMatchObject({ tools: [add] });
  });

  it.each([['label'], ['kto_tag']])('messages with %s, as in its example of KTO', async (column) => {
    const expected = { problem: USER.content, prompt: [USER], steps: whole('4') };
    const messages = [USER, REPLY('4')];
    expect(await read({ messages, [column]: true })).toEqual({ ...expected, outcome: 1 });
    expect(await read({ messages, [column]: false })).toEqual({ ...expected, outcome: 0 });
    expect(await read({ messages, [column]: 0 })).toEqual({ ...expected, outcome: 0 });
    expect(await read({ messages, [column]: 'True' })).toEqual({ ...expected, outcome: 1 });
  });

  it('messages may have a label that is no judgement; a kto_tag that is none is refused', async () => {
    const messages = [USER, REPLY('4')];
    expect(await read({ messages, label: 'algebra' })).not.toHaveProperty('outcome');
    await expect(load(fileWith([{ messages, kto_tag: 'algebra' }]))).rejects.toThrow(
      /column 'kto_tag' is the text "algebra"; expected true, false/,
    );
  });

  it('refuses a conversation without a reply and a history that is none', async () => {
    const alone = fileWith([{ conversations: [{ from: 'human', value: 'Hi' }] }]);
    await expect(load(alone)).rejects.toThrow(/column 'conversations' ends with a message of "user"/);
    const odd = fileWith([{ instruction: 'a', output: 'b', history: ['c'] }]);
    await expect(load(odd)).rejects.toThrow(
      /the question of turn 1 of 'history' holds nothing; expected text/,
    );
  });
});
