// /score of conversations: what the scorer gets, and the rewards of turns that come back.
import { describe, expect, it, onTestFinished } from 'vitest';
import { badTemplate } from '../../src/files/data-error.js';
import { type Solution, scorer } from '../../src/scoring/scorer.js';
import { serve } from '../../src/serve/server.js';
import { post, testServer } from './test-server.js';

const tools = [{ type: 'function', function: { name: 'calc', parameters: {} } }];
const call = { id: 'c1', type: 'function', function: { name: 'calc', arguments: '{"e": "2+3"}' } };
const messages = [
  { role: 'user', content: 'Two and three?' },
  { role: 'assistant', content: null, tool_calls: [call] },
  { role: 'tool', tool_call_id: 'c1', content: '5' },
  { role: 'assistant', content: 'Five.' },
];

async function judgeServer() {
  const asked: Solution[] = [];
  const judge = scorer({
    name: 'judge',
    readsTurns: true,
    async score(solutions) {
      asked.push(...solutions);
      if (solutions.some(({ steps }) => steps.includes('unclear'))) throw badTemplate('no turn can be told');
      return solutions.map(({ steps }) => ({ scores: steps.map((step) => step.length / 100) }));
    },
  });
  const blind = scorer({
    name: 'steps',
    score: async (all) => all.map(({ steps }) => ({ scores: steps.map(() => 1) })),
  });
  const { served } = await testServer();
  const server = await serve({ ...served, scorers: { judge, blind } }, { port: 0, cacheBytes: 1_000_000 });
  onTestFinished(() => server.close(0));
  return { url: server.url, asked };
}

describe('/score', () => {
  it('gives turn_rewards of messages, of prompt and completion, and of many conversations', async () => {
    const { url, asked } = await judgeServer();
    const rewards = [0.19, 0.05];
    for (const body of [
      { messages, tools },
      { prompt: messages.slice(0, 1), completion: messages.slice(1), tools },
      { solutions: [{ messages, tools }] },
    ]) {
      const { json } = await post(`${url}/score`, body);
      expect(json).toMatchObject({ data: [{ index: 0, scores: rewards, turn_rewards: rewards }] });
    }
    expect(asked).toHaveLength(3);
    expect(asked[0]).toMatchObject({
      problem: 'Two and three?',
      steps: ['→ calc({"e":"2+3"})', 'Five.'],
      turns: {
        tools,
        prompt: [messages[0]],
        steps: [{ text: '', results: [{ role: 'tool', content: '5' }] }, { text: 'Five.' }],
      },
    });
    expect(asked[1]).toEqual(asked[0]);
  });

  const [prompt, completion] = [messages.slice(0, 1), messages.slice(1)];
  const calling = (own: object) => ({
    prompt,
    completion: completion.with(0, {
      ...{ role: 'assistant', content: null },
      tool_calls: [{ ...call, function: { ...call.function, ...own } }],
    }),
    tools,
  });
  it('leaves out nulls that tables write for missing keys, as rows of training data are read', async () => {
    const { url, asked } = await judgeServer();
    const properties = { e: { type: 'string', enum: null }, city: null };
    const described = { ...tools[0], function: { name: 'calc', parameters: { type: 'object', properties } } };
    const { status } = await post(`${url}/score`, {
      ...calling({ arguments: { e: '2+3', city: null } }),
      tools: [described],
    });
    expect(status).toBe(200);
    expect(asked[0]?.steps[0]).toBe('→ calc({"e":"2+3"})');
    expect(asked[0]?.turns?.tools).toMatchObject([
      { function: { parameters: { properties: { e: { type: 'string' } } } } },
    ]);
    expect(JSON.stringify(asked[0]?.turns?.tools)).not.toContain('null');
  });

  it('takes arguments with numbers beyond doubles, and refuses those that are no object', async () => {
    const { url, asked } = await judgeServer();
    const { status } = await post(`${url}/score`, calling({ arguments: '{"e": 12345678901234567890}' }));
    expect(status).toBe(200);
    expect(asked[0]?.steps[0]).toBe('→ calc({"e":12345678901234567890})');
    for (const given of ['5', '[1]', 'null']) {
      const { json } = await post(`${url}/score`, { solutions: [calling({ arguments: given })] });
      expect(json).toMatchObject({
        data: [
          refused(
            0,
            `solutions[0].completion[0].tool_calls[0].function.arguments: expected an object in JSON, found ${JSON.stringify(given)}`,
          ),
        ],
      });
    }
  });

  const scored = (index: number) => ({
    ...{ index, object: 'score', scores: [0.19, 0.05], turn_rewards: [0.19, 0.05] },
  });
  const refused = (index: number, error: string) => ({
    ...{ index, object: 'score', error, scores: null, turn_rewards: null },
  });

  it('answers each of several conversations that cannot be read with its error, and scores the others', async () => {
    const { url } = await judgeServer();
    const { status, json } = await post(`${url}/score`, {
      solutions: [
        calling({ name: 'search' }),
        calling({}),
        { messages: [...prompt, { role: 'assistant', content: 'unclear' }], tools },
        calling({ guguments: '{}' }),
        calling({}),
      ],
    });
    expect([status, json]).toMatchObject([
      200,
      {
        data: [
          refused(
            0,
            'solutions[0].completion: message 2 calls the tool "search", and the row describes calc',
          ),
          scored(1),
          refused(2, 'no turn can be told'),
          refused(
            3,
            'solutions[3].completion[0].tool_calls[0].function.guguments: there is no such field; did you mean arguments?',
          ),
          scored(4),
        ],
      },
    ]);
  });

  it('answers a list of which no conversation can be read', async () => {
    const { url, asked } = await judgeServer();
    const { status, json } = await post(`${url}/score`, { solutions: [calling({ arguments: '{' })] });
    const sentence =
      'solutions[0].completion[0].tool_calls[0].function.arguments: expected an object in JSON, found "{"';
    expect([status, json]).toMatchObject([200, { model: 'judge', data: [refused(0, sentence)] }]);
    expect(asked).toEqual([]);
  });

  it.each([
    [{ solutions: [] }, /^solutions: expected a list of at least one solution/],
    [
      { solutions: [calling({}), { ...calling({}), tool: [] }] },
      /^solutions\[1\]\.tool: there is no such field/,
    ],
    [{ solutions: [calling({}), { ...calling({}), tools: 3 }] }, /^solutions\[1\]\.tools: expected a list/],
    [{ solutions: [calling({}), { prompt }] }, /^solutions\[1\]\.problem: expected a text/],
    [
      { solutions: [calling({}), { prompt, completion: 'x' }] },
      /^solutions\[1\]\.completion: expected a list/,
    ],
    [{ solutions: [{ problem: 'p', steps: ['unclear'] }] }, /^no turn can be told/],
    [{ solutions: [calling({})], model: 'blind' }, /steps reads problems with steps alone/],
    [{ messages: [...prompt, { role: 'assistant', content: 'unclear' }], tools }, /^no turn can be told/],
    [
      { messages: messages.slice(0, 1) },
      /^messages: expected a conversation with at least one message of the assistant/,
    ],
    [{ messages: messages.slice(3) }, /^messages: expected a message before the first one of the assistant/],
    [
      { messages: messages.toSpliced(1, 1) },
      /^messages: message 2 is the result of the call "c1", and no turn before it calls it/,
    ],
    [
      {
        messages: messages.with(1, {
          role: 'assistant',
          content: '',
          tool_calls: [{ ...call, function: { name: 'calc', arguments: '{' } }],
        } as never),
      },
      /^messages\[1\]\.tool_calls\[0\]\.function\.arguments: expected an object in JSON/,
    ],
    [
      { messages, tools: [{ type: 'function', function: { name: 'search' } }] },
      /^messages: message 2 calls the tool "calc", and the row describes search/,
    ],
    [
      { messages, model: 'blind' },
      /steps reads problems with steps alone, and here are turns of a conversation/,
    ],
  ])('refuses %j', async (body, message) => {
    const { url } = await judgeServer();
    const { status, json } = await post(`${url}/score`, body);
    expect({ status, message: json.error.message }).toEqual({
      status: 400,
      message: expect.stringMatching(message),
    });
  });
});
