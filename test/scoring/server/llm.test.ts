// The judge behind a server: what it asks, how it reads answers, what it counts, caches and refuses.
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { labelFile } from '../../../src/scoring/files.js';
import { verdictsOf } from '../../../src/scoring/scorer.js';
import { llmJudge } from '../../../src/scoring/server/llm.js';
import { judgePrompt, parseLabels } from '../../../src/scoring/server/prompt.js';
import { loggingTo } from '../../../src/terminal/log.js';
import { cli } from '../../cli/run-cli.js';
import { fileWith } from '../../data/data-file.js';

const solution = {
  problem: 'What is 1+1+1?',
  text: '1+1=2\n2+1=4',
  of: { problem: 'What is 1+1+1?', answer: '3', solution: '1+1=2\n2+1=3' },
  steps: ['1+1=2', '2+1=4'],
};

let folder: string;
let server: Server;
let url: string;
/** What the server says, one after the other; the last stays. */
let says: (string | number)[];
let asked: { messages: { content: string }[]; temperature: number; authorization: string | undefined }[];
let usage: object | undefined;
let open = 0;
let most = 0;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'judge-'));
  asked = [];
  usage = { prompt_tokens: 100, completion_tokens: 10 };
  [open, most] = [0, 0];
  server = createServer(async (request, response) => {
    most = Math.max(most, ++open);
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    asked.push({
      ...JSON.parse(Buffer.concat(parts).toString()),
      authorization: request.headers.authorization,
    });
    await new Promise((resolve) => setTimeout(resolve, 5));
    open--;
    const next = says.length > 1 ? says.shift() : says[0];
    if (typeof next === 'number') {
      response.writeHead(next).end('{"error": {"message": "later"}}');
      return;
    }
    const choices = [{ message: { content: next } }];
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ choices, usage }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
});
afterEach(async () => {
  server.closeAllConnections();
  server.close();
  await rm(folder, { recursive: true, force: true });
});

const GOOD = '{"1": "correct", "2": "incorrect"}';

it('refuses an address that is none', () => {
  for (const url of ['localhost', 'ftp://a'])
    expect(() => llmJudge({ url, model: 'm' })).toThrow(/^llmJudge: url: expected an address/);
});

it('shows problem, reference and numbered steps, and reads one label for each', async () => {
  says = [GOOD];
  const judge = llmJudge({ url, model: 'critic', apiKey: 'secret' });
  expect(await verdictsOf(judge)([solution])).toEqual([[1, 0]]);
  const [request] = asked;
  expect(request!.messages.at(-1)!.content).toBe(
    'Problem:\nWhat is 1+1+1?\n\nReference solution:\n1+1=2\n2+1=3\n\nSteps to judge:\n1. 1+1=2\n2. 2+1=4',
  );
  expect(request!.authorization).toBe('Bearer secret');
  expect(judge.report()).toMatchObject({
    requests: 1,
    inputTokens: 100,
    outputTokens: 10,
    solutions: 1,
    unlabelled: 0,
  });
  const bare = { ...solution, problem: 'p', of: { problem: 'p', answer: '3' } };
  expect(judgePrompt(bare).at(-1)!.content).toContain('The right answer: 3');
});

it.each([
  ['```json\n{"1": "correct", "2": "correct"}\n```', [1, 1]],
  ['{"1": "correct"}', undefined],
  ['{"1": "correct", "2": "maybe"}', undefined],
  ['{"1": "correct", "2": "incorrect", "3": "correct"}', undefined],
  ['Sure! {"1": "correct", "2": "incorrect"}', undefined],
  ['["correct", "incorrect"]', undefined],
  ['{"1": "correct", "2": "inc', undefined],
  ['{"1": "correct", "2": "constructor"}', undefined],
  ['{"1": "correct", "2": ["correct"]}', undefined],
  // JSON.parse would keep the last of them.
  ['{"1": "correct", "2": "correct", "2": "incorrect"}', undefined],
])('reads %j strictly', (text, labels) => expect(parseLabels(text, 2)).toEqual(labels));

it('asks again for what is no JSON, warmer, and then leaves the steps unlabelled', async () => {
  says = ['no', 'no', GOOD];
  const judge = llmJudge({ url, model: 'critic' });
  expect(await verdictsOf(judge)([solution])).toEqual([[1, 0]]);
  expect(asked.map(({ temperature }) => temperature)).toEqual([0, 0.5, 0.5]);
  says = ['no'];
  expect(await verdictsOf(judge)([solution])).toEqual([[null, null]]);
  expect(judge.report()).toMatchObject({ requests: 6, solutions: 2, unlabelled: 1 });
});

it('tries again where a server is busy, and asks several solutions at once but no more than it may', async () => {
  says = [503, 429, GOOD];
  const judge = llmJudge({ url, model: 'critic', concurrency: 3 });
  const several = Array.from({ length: 10 }, (_, i) => ({ ...solution, steps: [`1+1=${i}`, '2+1=4'] }));
  expect(await verdictsOf(judge)(several)).toEqual(Array(10).fill([1, 0]));
  expect(most).toBeLessThanOrEqual(3);
  expect(most).toBeGreaterThan(1);
});

it('lets many requests share one signal without a warning of Node', async () => {
  says = [GOOD];
  const judge = llmJudge({ url, model: 'critic', concurrency: 16 });
  const said: string[] = [];
  const hear = ({ name }: Error) => said.push(name);
  process.on('warning', hear);
  const { signal } = new AbortController();
  const several = Array.from({ length: 16 }, (_, i) => ({ ...solution, steps: [`1+1=${i}`, '2+1=4'] }));
  await judge.score(several, { signal });
  await new Promise(setImmediate);
  process.off('warning', hear);
  expect(most).toBeGreaterThan(10);
  expect(said).toEqual([]);
});

it('warns where the server counts too few tokens for what it was asked', async () => {
  says = [GOOD];
  const long = { ...solution, steps: ['1+1=2', `so ${'it is two, '.repeat(800)}`] };
  const said: string[] = [];
  const judge = llmJudge({ url, model: 'critic' });
  const scored = (one: typeof solution) =>
    loggingTo(
      (line) => said.push(line),
      () => judge.score([one], {}),
    );
  usage = { prompt_tokens: 2300, completion_tokens: 10 };
  await scored(long);
  usage = { prompt_tokens: 10, completion_tokens: 10 };
  await scored(solution);
  expect(said).toEqual([]);
  usage = { prompt_tokens: 512, completion_tokens: 10 };
  await scored({ ...long, problem: 'What is 1+1?' });
  expect(said).toEqual([
    expect.stringMatching(/counts 512 tokens in a question of \d{4,5} characters, so it seems to cut/),
  ]);
});

it('asks nothing twice that its cache has, also after a line was cut short', async () => {
  says = [GOOD];
  const cache = join(folder, 'cache.jsonl');
  await verdictsOf(llmJudge({ url, model: 'critic', cache }))([solution]);
  const again = llmJudge({ url, model: 'critic', cache });
  expect(await verdictsOf(again)([solution])).toEqual([[1, 0]]);
  expect(asked).toHaveLength(1);
  expect(again.report()).toMatchObject({ requests: 0, cached: 1 });
  await verdictsOf(llmJudge({ url, model: 'other', cache }))([solution]);
  expect(asked).toHaveLength(2);
});

it('asks once for solutions that are the same, with a cache or without', async () => {
  says = ['no', GOOD];
  const same = Array.from({ length: 5 }, () => solution);
  for (const cache of [undefined, join(folder, 'cache.jsonl')]) {
    asked = [];
    const judge = llmJudge({ url, model: 'critic', concurrency: 4, cache });
    expect(await verdictsOf(judge)(same)).toEqual(Array(5).fill([1, 0]));
    expect(asked).toHaveLength(cache ? 1 : 2);
    expect(judge.report()).toMatchObject({ requests: asked.length, cached: 4 * asked.length });
  }
});

it('stops where its budget of tokens is spent', async () => {
  says = [GOOD];
  const several = [solution, { ...solution, steps: ['a', 'b'] }, { ...solution, steps: ['c', 'd'] }];
  const poor = { url, model: 'critic', concurrency: 1 };
  await expect(verdictsOf(llmJudge({ ...poor, tokenBudget: 150 }))(several)).rejects.toThrow(
    /the budget of the judge is spent \(220 tokens of 150\) after 2 requests; raise it and resume/,
  );
});

it('keeps a budget over judges that share a file of what was spent', async () => {
  says = [GOOD];
  const spending = join(folder, 'spending.jsonl');
  const poor = { url, model: 'critic', concurrency: 1, spending };
  const other = { ...solution, steps: ['a', 'b'] };
  await verdictsOf(llmJudge(poor))([solution]);
  await verdictsOf(llmJudge({ ...poor, tokenBudget: 150 }))([solution]);
  const third = llmJudge({ ...poor, tokenBudget: 150 });
  await expect(verdictsOf(third)([other])).rejects.toThrow(/spent \(220 tokens of 150\) after 0 requests/);
  expect(third.report()).toMatchObject({ inputTokens: 200, outputTokens: 20 });
  expect(asked).toHaveLength(2);
});

it('a spent budget lets the requests that are under way end, and keeps their answers', async () => {
  says = ['no', GOOD];
  const cache = join(folder, 'cache.jsonl');
  const several = [solution, { ...solution, steps: ['a', 'b'] }];
  const judge = llmJudge({ url, model: 'critic', concurrency: 2, cache, tokenBudget: 100 });
  await expect(verdictsOf(judge)(several)).rejects.toThrow(/the budget of the judge is spent/);
  const { length } = asked;
  expect(length).toBe(2);
  const again = llmJudge({ url, model: 'critic', concurrency: 2, cache });
  await verdictsOf(again)(several);
  expect(again.report()).toMatchObject({ cached: 2, requests: 1 });
});

it('keeps no budget where the server does not count, and says so', async () => {
  says = [GOOD];
  usage = undefined;
  expect(await verdictsOf(llmJudge({ url, model: 'critic' }))([solution])).toEqual([[1, 0]]);
  await expect(verdictsOf(llmJudge({ url, model: 'critic', tokenBudget: 100 }))([solution])).rejects.toThrow(
    /does not say how many tokens a request took/,
  );
});

it('labels from a file are those of the same problem and steps', async () => {
  const row = {
    problem: 'What is  1+1+1?',
    steps: [
      { text: '1+1=2', label: 1 },
      { text: '2+1=4', label: 0 },
    ],
  };
  const judge = await labelFile(fileWith('labels.jsonl', JSON.stringify(row)));
  const other = { ...solution, steps: ['1+1=2', '2+1=5'] };
  expect(await verdictsOf(judge)([solution, other])).toEqual([
    [1, 0],
    [null, null],
  ]);
});

const labelled = (problem: string, ...labels: readonly (0 | 1 | null)[]) =>
  JSON.stringify({ problem, steps: labels.map((label, i) => ({ text: `s${i}`, label })) });

it('labels from a file are not those of a problem with other numbers, and two rows of one solution complete each other', async () => {
  const rows = [labelled('3²?', 1, 0), labelled('32?', 0, 0), labelled('x', 1, null), labelled('x', null, 0)];
  const judge = await labelFile(fileWith('labels.jsonl', rows.join('\n')));
  const asked = ['3²?', '32?', 'x', 'X'].map((problem) => ({ problem, steps: ['s0', 's1'] }));
  expect(await verdictsOf(judge)(asked)).toEqual([
    [1, 0],
    [0, 0],
    [1, 0],
    [null, null],
  ]);
});

it('labels from a file that contradict each other are refused with the line', async () => {
  const path = fileWith('labels.jsonl', [labelled('x', 1, 0), labelled('x', 1, 1)].join('\n'));
  await expect(labelFile(path)).rejects.toThrow(
    `${path}, line 2: step 2 is right here and wrong in an earlier row of the same solution; leave one`,
  );
});

/** A wrong second step of two, none wrong, and one that the judge does not answer for; as ProcessBench has them. */
const ROWS = [
  { id: 'a', problem: 'p', steps: ['1+1=2', '2+1=4'], label: 1 },
  { id: 'b', problem: 'q', steps: ['2+2=4'], label: -1 },
  { id: 'c', problem: 'r', steps: ['3+3=6'], label: -1 },
];

it('is measured by eval correction, which says what it left out and what that cost', async () => {
  const file = await fileWith('bench.jsonl', ROWS.map((row) => JSON.stringify(row)).join('\n'));
  // Two labels are no answer about a solution of one step.
  says = ['{"1": "correct", "2": "incorrect"}'];
  const { code, stdout } = await cli('eval', 'correction', `${url}#critic`, '--data', file, '--json');
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({
    metrics: { n: 2, accuracy: 1 },
    processbench: { subsets: { bench: { n: 3 } } },
    data: { cost: { requests: 7, unlabelled: 2, inputTokens: 700 } },
    warnings: expect.arrayContaining([
      expect.stringContaining('2 labelled steps have no score and were not judged'),
    ]),
  });
  // Nothing is shown as a reference where none is known.
  const texts = asked.map(({ messages }) => messages.at(-1)!.content);
  expect(texts).toContain('Problem:\np\n\nSteps to judge:\n1. 1+1=2\n2. 2+1=4');
});

it('probabilities in a file of labels are its scores, unless a label does not follow from them', async () => {
  const solution = { problem: 'P?', steps: ['a', 'b', 'c'], turns: undefined };
  const scoresOf = async (...rows: object[]) => {
    const judge = await labelFile(
      fileWith('labels.jsonl', rows.map((row) => JSON.stringify(row)).join('\n')),
    );
    const scored = await judge.score([solution as never]);
    return scored?.[0]?.scores;
  };
  const row = (labels: unknown[]) => ({ problem: 'P?', steps: solution.steps, labels });
  expect(await scoresOf(row([0.5, 0.25, 1]))).toEqual([0.5, 0.25, 1]);
  expect(await scoresOf(row([null, 0.75, 0]))).toEqual([null, 0.75, 0]);
  // Other probabilities of the same step: what both agree on is its label.
  expect(await scoresOf(row([0.5, 0.25, 1]), row([0.75, 0.25, 1]))).toEqual([1, 0.25, 1]);
  // One of eight completions is right, and so is the step.
  const counted = solution.steps.map((text, i) => ({
    text,
    label: i === 2 ? 0 : 1,
    score: [0.125, 1, 0][i],
  }));
  expect(await scoresOf({ problem: 'P?', steps: counted })).toEqual([1, 1, 0]);
});
