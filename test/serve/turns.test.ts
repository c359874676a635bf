// /score of conversations: what the scorer gets, and the rewards of turns that come back.
import { describe, expect, it, onTestFinished } from 'vitest';
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

  it.each([
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
      /^messages\[1\]\.tool_calls\[0\]\.function\.arguments: expected JSON/,
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
