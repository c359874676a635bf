// vLLM's forms of scores, beside /score of the same solution, and what was asked together.
import { describe, expect, it, onTestFinished } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { openDevice } from '../../src/runtime/device.js';
import { type Scorer, scorer } from '../../src/scoring/scorer.js';
import { verdictScorer } from '../../src/scoring/verdict/scorer.js';
import { RequestError } from '../../src/serve/errors.js';
import { serve } from '../../src/serve/server.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { post } from './test-server.js';

const tokenizer = byteTokenizer();
const problem = '12;-6;+7';
const steps = ['12-6=6', '6+7=13'];
const messages = [
  { role: 'system', content: 'Think.' },
  { role: 'user', content: problem },
  { role: 'assistant', content: steps.join('\n') },
];

async function serving(more: Readonly<Record<string, Scorer>> = {}): Promise<string> {
  const device = openDevice('cpu');
  const model = await loadModel(device, 'embedded');
  const scorers = { verdict: verdictScorer(model.decoder, { tokenizer }), ...more };
  const server = await serve({ name: 'm', model, tokenizer, scorers }, { port: 0, cacheBytes: 1_000_000 });
  onTestFinished(async () => {
    await server.close(0);
    model.dispose();
    device.dispose();
  });
  return server.url;
}

const scores = (json: unknown) => (json as { data: { scores: number[] }[] }).data[0]?.scores as number[];

it('answers /pooling, /classify and pairs of /score with the numbers of /score', async () => {
  const url = await serving();
  const [first, second] = scores((await post(`${url}/score`, { problem, steps })).json) as [number, number];
  const pooled = await post(`${url}/pooling`, { model: 'verdict', messages });
  expect([pooled.status, pooled.json]).toMatchObject([
    200,
    {
      object: 'list',
      model: 'verdict',
      data: [
        {
          index: 0,
          object: 'pooling',
          data: [
            [1 - first, first],
            [1 - second, second],
          ],
        },
      ],
      usage: { prompt_tokens: expect.any(Number) },
    },
  ]);
  // The name that /v1/models lists is that of the first scorer too.
  const { data } = (await (await fetch(`${url}/v1/models`)).json()) as { data: { id: string }[] };
  const named = await post(`${url}/pooling`, { model: data[0]?.id, messages });
  expect(named.json).toMatchObject({
    model: 'verdict',
    data: (pooled.json as object as { data: object[] }).data,
  });
  const least = Math.min(first, second);
  const classified = await post(`${url}/classify`, { messages });
  expect(classified.json).toMatchObject({
    data: [{ label: least >= 0.5 ? 'right' : 'wrong', probs: [1 - least, least], num_classes: 2 }],
  });
  for (const [one, other] of [
    ['text_1', 'text_2'],
    ['queries', 'documents'],
    ['queries', 'items'],
    ['data_1', 'data_2'],
  ] as const) {
    // Steps may end with the separator of Qwen's models.
    const texts = [steps.join('\n'), steps[0], `${steps.join('<extra_0>')}<extra_0>`];
    const { status, json } = await post(`${url}/score`, { [one]: problem, [other]: texts });
    expect([status, json]).toMatchObject([
      200,
      { data: [least, first, least].map((score, index) => ({ index, object: 'score', score })) },
    ]);
  }
});

it('gives the outcome of a scorer of outcomes, and one number a step of rewards', async () => {
  const url = await serving({
    whole: scorer({
      name: 'whole',
      unit: 'outcome',
      score: async (given) =>
        given.map(({ steps: own }) => ({ scores: own.map((_, i) => (i === 1 ? 0.75 : null)) })),
    }),
    reward: scorer({
      name: 'reward',
      scale: 'reward',
      score: async (given) => given.map(({ steps: own }) => ({ scores: own.map((_, i) => 3 - i) })),
    }),
  });
  const ask = async (path: string, model: string) => (await post(`${url}${path}`, { model, messages })).json;
  expect(await ask('/pooling', 'whole')).toMatchObject({ data: [{ data: [[0.25, 0.75]] }] });
  expect(await ask('/classify', 'whole')).toMatchObject({ data: [{ label: 'right', probs: [0.25, 0.75] }] });
  expect(await ask('/pooling', 'reward')).toMatchObject({ data: [{ data: [[3], [2]] }] });
  const pair = { model: 'reward', text_1: problem, text_2: steps.join('\n') };
  expect((await post(`${url}/score`, pair)).json).toMatchObject({ data: [{ score: 2 }] });
  const refused = await post(`${url}/classify`, { model: 'reward', messages });
  expect([refused.status, refused.json]).toMatchObject([
    400,
    { error: { message: expect.stringMatching(/rewards without bounds, which are no probabilities/) } },
  ]);
});

describe('refuses in a sentence', () => {
  it.each([
    ['/pooling', { input: 'a text' }, /^input: .*rendered text.* send messages/],
    ['/pooling', {}, /^messages: expected a user's problem and an assistant's solution at the end/],
    ['/classify', { messages: messages.slice(0, 2) }, /^messages: expected a user's problem/],
    ['/pooling', { messages, dimensions: 5 }, /^dimensions: /],
    [
      '/classify',
      { messages: [...messages, ...messages.slice(-2)] },
      /^messages\[\d\]: expected one problem and one solution.*earlier turns are not read/,
    ],
    ['/pooling', { messages: [messages[1], { role: 'assistant', content: ' ' }] }, /at least one step/],
    ['/score', { text_1: ['a', 'b'], text_2: ['1', '2', '3'] }, /one for each of the 3 of text_2, found 2/],
    ['/score', { text_1: 'a', text_2: [5] }, /^text_2: expected a list of texts/],
    ['/score', { text_1: 'a', text_2: [] }, /^text_2: expected a text or a list of texts/],
    ['/score', { text_1: 'a', text_2: 'b', problem: 'c' }, /problem/],
  ])('%s %j', async (path, body, sentence) => {
    const url = await serving();
    const { status, json } = await post(`${url}${path}`, body);
    expect([status, json]).toMatchObject([400, { error: { message: expect.stringMatching(sentence) } }]);
  });

  it('a step without a score, which only problem and steps can show', async () => {
    const silent = scorer({ name: 's', score: async (given) => given.map(() => ({ scores: [0.5, null] })) });
    const url = await serving({ silent });
    const { status, json } = await post(`${url}/pooling`, { model: 'silent', messages });
    expect([status, json]).toMatchObject([
      400,
      { error: { message: expect.stringMatching(/^step 2 of solution 0 has no score/) } },
    ]);
  });
});

it('scores what waits for the same scorer in one call, and a bad request alone', async () => {
  const calls: number[] = [];
  let open = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const slow = scorer({
    name: 'slow',
    async score(given) {
      calls.push(given.length);
      if (calls.length === 1) await gate;
      if (given.some(({ problem: text }) => text === 'bad'))
        throw new RequestError(400, 'bad: cannot be read');
      return given.map(({ steps: own }) => ({ scores: own.map((text) => Number(text)) }));
    },
  });
  const url = await serving({ slow });
  const ask = (text: string, own: string) =>
    post(`${url}/score`, { model: 'slow', problem: text, steps: [own] });
  const first = ask('p', '0');
  await expect.poll(() => calls).toEqual([1]);
  const others = [ask('p', '0.25'), ask('bad', '1'), ask('p', '0.5')];
  // All of them wait before the first is answered.
  await new Promise((resolve) => setTimeout(resolve, 300));
  open();
  const answers = await Promise.all([first, ...others]);
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 400, 200]);
  expect([0, 1, 3].map((i) => scores(answers[i]?.json)[0])).toEqual([0, 0.25, 0.5]);
  expect(calls).toEqual([1, 3, 1, 1, 1]);
});

it('takes a text into the steps of the rule that a scorer was trained by', async () => {
  const seen: (readonly string[])[] = [];
  const thoughts = scorer({
    name: 'thoughts',
    segmentation: 'thoughts/1',
    async score(solutions) {
      seen.push(...solutions.map((solution) => solution.steps));
      return solutions.map((solution) => ({ scores: solution.steps.map(() => 0.75) }));
    },
  });
  const url = await serving({ thoughts });
  const text = '<think>One\nline.\n\nTwo.</think>Answer: 13';
  const chat = [messages[1], { role: 'assistant', content: text }];
  const { json } = await post(`${url}/pooling`, { model: 'thoughts', messages: chat });
  expect(json).toMatchObject({
    data: [
      {
        data: [
          [0.25, 0.75],
          [0.25, 0.75],
          [0.25, 0.75],
        ],
      },
    ],
  });
  await post(`${url}/score`, { model: 'thoughts', text_1: problem, text_2: text });
  expect(seen).toEqual([
    ['One\nline.', 'Two.', 'Answer: 13'],
    ['One\nline.', 'Two.', 'Answer: 13'],
  ]);
});
