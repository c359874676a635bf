// Conversations whose turns are steps, as OpenAI, ShareGPT, TRL and verifiers write them.
import { describe, expect, it } from 'vitest';
import { solutionsOf } from '../../../src/data/solution-rows.js';
import { parseExact } from '../../../src/files/exact-json.js';
import { readableResults, readableStep } from '../../../src/records/turns.js';
import { fileWith, load } from '../data-file.js';

const tools = [{ type: 'function', function: { name: 'calc', parameters: {} } }];
const call = (given: unknown, name = 'calc') => ({
  id: 'c1',
  type: 'function',
  function: { name, arguments: given },
});
const question = { role: 'user', content: 'Two and three?' };
const messages = [
  { role: 'system', content: 'Compute.' },
  question,
  { role: 'assistant', content: null, tool_calls: [call('{"e": "2+3"}')] },
  { role: 'tool', tool_call_id: 'c1', content: '5' },
  { role: 'assistant', content: 'Five.' },
];
const read = (row: object, options = {}) =>
  load(fileWith('rows.jsonl', `${JSON.stringify(row)}\n`), options).then(({ records }) => records[0]);

const steps = (first: object, second: object) => [
  {
    text: '',
    ...first,
    message: {
      tool_calls: [{ id: 'c1', type: 'function', function: { name: 'calc', arguments: { e: '2+3' } } }],
    },
    results: [{ role: 'tool', content: '5', tool_call_id: 'c1' }],
    kind: 'normal',
  },
  { text: 'Five.', ...second, kind: 'normal' },
];

describe('conversations of which turns are labelled', () => {
  it('OpenAI: each message of the assistant is a step, results are between, arguments are objects', async () => {
    const record = await read({ messages, tools, turn_rewards: [1, 0.25], reward: 0 });
    expect(record).toMatchObject({
      problem: 'Two and three?',
      prompt: messages.slice(0, 2),
      tools,
      turns: true,
      outcome: 0,
      steps: steps({ label: 1, score: 1 }, { label: 0, score: 0.25 }),
    });
  });

  it('labels in the messages, and a threshold for rewards', async () => {
    const own = messages.map((message) =>
      message.role === 'assistant' ? { ...message, label: message.content !== null } : message,
    );
    expect((await read({ messages: own }))?.steps.map(({ label }) => label)).toEqual([0, 1]);
    const rewarded = await read({ messages, turn_rewards: [0.6, null] }, { label_threshold: 0.7 });
    expect(rewarded?.steps.map(({ label }) => label)).toEqual([0, null]);
  });

  it('ShareGPT with function_call and observation', async () => {
    const conversations = [
      { from: 'human', value: 'Two and three?' },
      { from: 'function_call', value: '{"name": "calc", "arguments": {"e": "2+3"}}' },
      { from: 'observation', value: '5' },
      { from: 'gpt', value: 'Five.' },
    ];
    const record = await read({
      conversations,
      system: 'Compute.',
      turn_labels: [true, false],
      tools: JSON.stringify(tools),
    });
    expect(record).toMatchObject({ prompt: messages.slice(0, 2), tools });
    expect(record?.steps.map(({ label, text, results }) => ({ label, text, results }))).toEqual([
      { label: 1, text: '', results: [{ role: 'tool', content: '5' }] },
      { label: 0, text: 'Five.' },
    ]);
  });

  it('rollouts of verifiers: prompt and completion, calls as JSON texts, rewards of the trajectory', async () => {
    const completion = [
      { role: 'assistant', tool_calls: [JSON.stringify(call('{"e": "2+3"}'))] },
      ...messages.slice(3),
    ];
    const rollout = {
      prompt: messages.slice(0, 2),
      completion,
      answer: '5',
      reward: 1,
      info: { oai_tools: tools },
    };
    const record = await read({ ...rollout, trajectory: [{ reward: 0.5 }, { reward: 0 }] });
    expect(record).toMatchObject({
      gold_answer: '5',
      tools,
      outcome: 1,
      steps: steps({ label: 1, score: 0.5 }, { label: 0, score: 0 }),
    });
    expect((await read(rollout))?.steps.map(({ label }) => label)).toEqual([null, null]);
  });

  it('a turn that says and calls nothing has empty text, and its label', async () => {
    for (const silent of [
      { role: 'assistant', content: null },
      { role: 'assistant' },
      { role: 'assistant', content: '', tool_calls: [] },
    ]) {
      const talk = [question, silent, question, { role: 'assistant', content: 'Five.' }];
      const record = await read({ messages: talk, turn_rewards: [0, 1] });
      expect(record?.steps).toMatchObject([
        { text: '', label: 0, results: [question] },
        { text: 'Five.', label: 1 },
      ]);
    }
  });

  it('leaves conversations without labels of turns to the layouts of replies', async () => {
    const record = await read({ messages });
    expect(record?.turns).toBeUndefined();
  });

  it('a conversation with tools, its reward and a user who has the last word, as tau-bench keeps them', async () => {
    const talk = [
      ...messages.slice(0, 2),
      { role: 'assistant', content: 'Which three?' },
      { role: 'user', content: 'Never mind. Bye.' },
    ];
    const turns = [{ text: 'Which three?', results: [{ role: 'user', content: 'Never mind. Bye.' }] }];
    expect(await read({ messages: talk, tools, reward: 0 })).toMatchObject({
      turns: true,
      outcome: 0,
      steps: turns,
    });
    // Whoever labels or scores solutions reads turns where tools are described, whether they are called or not.
    for (const given of [tools, JSON.stringify(tools)])
      expect(solutionsOf({ messages: talk, tools: given }, {})).toMatchObject([{ turns: { steps: turns } }]);
    expect(() => solutionsOf({ messages: talk, tools: [] }, {})).toThrow(/ends with a message of "user"/);
  });

  it('comes back from a file of records as it was', async () => {
    const record = await read({ messages, tools, turn_rewards: [1, 0], reward: 1 });
    const { provenance: _, ...stored } = record ?? {};
    expect(await read(stored)).toMatchObject(stored);
  });
});

describe('one sentence for', () => {
  const cases: [string, object, RegExp][] = [
    [
      'an unknown tool',
      {
        messages: messages.with(2, {
          role: 'assistant',
          content: '',
          tool_calls: [call('{}', 'search')],
        } as never),
        tools,
      },
      /message 3 calls the tool "search", and the row describes calc/,
    ],
    [
      'arguments that are no JSON',
      {
        messages: messages.with(2, { role: 'assistant', content: '', tool_calls: [call('{e: 2')] } as never),
      },
      /the arguments of the call of calc in message 3 of column 'messages' are the text "{e: 2"; expected an object in JSON/,
    ],
    [
      'a result without a call',
      { messages: [question, messages[3], messages[4]] },
      /message 2 is the result of the call "c1", and no turn before it calls it/,
    ],
    [
      'a result of another call',
      { messages: messages.with(3, { role: 'tool', tool_call_id: 'c9', content: '5' } as never) },
      /message 4 is the result of the call "c9", and no turn before it calls it/,
    ],
    [
      'as many labels as there are no turns',
      { messages, turn_rewards: [1] },
      /column 'turn_rewards' has 1 labels, and the conversation has 2 turns of the assistant; expected one for each/,
    ],
    ['no turn', { messages: [question] }, /no message of "assistant"; expected at least one turn/],
    [
      'no message before',
      { messages: messages.slice(4) },
      /begins with a turn of the assistant; expected a message before it/,
    ],
    [
      'no conversation',
      { text: 'x' },
      /there is no conversation; expected column 'messages' or 'conversations'/,
    ],
    [
      'a label that is none',
      { messages, turn_labels: ['good', 1] },
      /the label of turn 1 is the text "good"; expected true, false, 1, 0 or null/,
    ],
  ];
  it.each(cases)('%s', async (_, row, message) => {
    await expect(read(row, { source: 'turns' })).rejects.toThrow(message);
  });
});

describe('turns as solutions to score', () => {
  it('of conversations in which tools answer, with or without labels', () => {
    const [solution] = solutionsOf({ messages, tools });
    expect(solution).toMatchObject({
      problem: 'Two and three?',
      steps: ['→ calc({"e":"2+3"})', 'Five.'],
      turns: { tools, prompt: messages.slice(0, 2) },
    });
  });

  it('of records, with their calls and results', async () => {
    const record = await read({ messages, tools, turn_rewards: [1, 0], reward: 1 });
    const [solution] = solutionsOf({ messages, tools, turn_rewards: [1, 0], reward: 1 });
    expect(solutionsOf({ ...record })).toEqual([{ ...solution, turns: { ...solution?.turns } }]);
    await expect(read({ problem: 'p', steps: record?.steps, turns: true })).rejects.toThrow(
      /line 1: the steps are turns of a conversation .* expected column 'prompt'/,
    );
  });

  it('are shown with their calls, and results in one line', () => {
    const long = {
      text: 'Look.',
      message: { tool_calls: [call({ e: '1' }), { name: 'x', arguments: '{' }] },
    };
    expect(readableStep(long)).toBe('Look.\n→ calc({"e":"1"})\n→ x({)');
    const exact = {
      tool_calls: [{ name: 'x', arguments: parseExact('{"n":12345678901234567890,"m":2.0}') }],
    };
    expect(readableStep({ text: '', message: exact })).toBe('→ x({"n":12345678901234567890,"m":2.0})');
    expect(readableResults({ results: [{ role: 'tool', content: `a\n${'b'.repeat(200)}` }] })).toEqual([
      `← tool: a ⏎ ${'b'.repeat(156)}… (204 characters)`,
    ]);
  });
});
