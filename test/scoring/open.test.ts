// Whatever scores, opened by its name: models of the package, functions, servers, what is a scorer already.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { openDevice } from '../../src/runtime/device.js';
import { functionScorer } from '../../src/scoring/functions.js';
import { judgeSteps } from '../../src/scoring/judge.js';
import { openScorer, openScorers } from '../../src/scoring/open.js';
import type { Scorer, Solution } from '../../src/scoring/scorer.js';
import { fileWith } from '../data/data-file.js';

const device = openDevice('cpu', { threads: 1 });
const problem = 'At first Bob has 19 apples. Mia gives 17 to Bob. How many apples does Bob have at the end?';
const solutions = [
  { problem, steps: ['Bob: 19 + 17 = 36'] },
  { problem, steps: ['Bob: 19 + 17 = 35', '#### 35'] },
];

describe('the judge of the package', () => {
  it.each(['word-problems-judge', resolve('assets/word-problems-judge')])('is opened as %s', async (name) => {
    const judge = await openScorer(device, name);
    const found = await judge.score(solutions);
    judge.dispose();
    const [right, wrong] = found!.map(({ scores }) => scores[0]!);
    expect(right).toBeGreaterThan(0.9);
    expect(wrong).toBeLessThan(0.1);
    expect(judge).toMatchObject({ unit: 'step', scale: 'probability', threshold: 0.5 });
  });
});

describe('a function', () => {
  it('gives a number for a whole solution, a reward without bounds', async () => {
    const scorer = await openScorer(device, (given: readonly Solution[]) =>
      given.map(({ steps }) => -steps.length),
    );
    expect(scorer).toMatchObject({ unit: 'outcome', scale: 'reward' });
    expect(await scorer.score(solutions)).toEqual([
      { scores: [-1], outcome: -1 },
      { scores: [null, -2], outcome: -2 },
    ]);
  });

  it('gives one for each step where it scores steps, and judges by them', async () => {
    const short = functionScorer((given) => given.map(({ steps }) => steps.map(({ length }) => 9 / length)), {
      name: 'short',
      unit: 'step',
      scale: 'probability',
    });
    const judged = await judgeSteps(short, problem, ['Bob: 19 + 17 = 35', '#### 35']);
    expect(judged.map(({ verdict }) => verdict)).toEqual(['right', 'right']);
    expect(judged[0]).toMatchObject({ step: 'Bob: 19 + 17 = 35', score: 9 / 17, probability: 9 / 17 });
  });

  it.each([
    [() => [1], {}, 'gave 1 scores for 2 solutions'],
    [() => [[1], [1]], {}, 'gave 1 scores for the 2 steps of solution 2; expected one for each'],
    [() => [[1], 1], { unit: 'step' }, 'gave one number for solution 2; a scorer of steps gives a list'],
  ] as const)('is refused where it returns as %s', async (given, how, sentence) => {
    await expect(functionScorer(given, { name: 'f', ...how }).score(solutions)).rejects.toThrow(
      `f ${sentence}`,
    );
  });
});

describe('the address of a server', () => {
  afterEach(() => vi.unstubAllEnvs());

  it.each([
    ['', 'default'],
    ['#qwen', 'qwen'],
  ])('with %j asks the model %s, with the key of the environment', async (fragment, model) => {
    vi.stubEnv('OPENAI_API_KEY', 'secret');
    const asked: object[] = [];
    const server = createServer(async (request, response) => {
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part as Buffer);
      const { authorization } = request.headers;
      asked.push({
        path: request.url,
        authorization,
        model: JSON.parse(Buffer.concat(parts).toString()).model,
      });
      response.end(JSON.stringify({ choices: [{ message: { content: '{"1": "correct"}' } }] }));
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    try {
      const { port } = server.address() as AddressInfo;
      const judge = await openScorer(device, `http://127.0.0.1:${port}/v1${fragment}`);
      expect(await judge.score(solutions.slice(0, 1))).toEqual([{ scores: [1] }]);
      expect(asked).toEqual([{ path: '/v1/chat/completions', authorization: 'Bearer secret', model }]);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
});

it('a scorer stays what it is, methods of its class too', async () => {
  class Own implements Scorer {
    readonly name = 'own';
    readonly unit = 'step';
    readonly scale = 'probability';
    readonly threshold = 0.5;
    isFree = false;
    score = async () => [{ scores: [1] }];
    dispose() {
      this.isFree = true;
    }
  }
  const own = new Own();
  expect(await openScorer(device, own)).toBe(own);
  const opened = await openScorers(device, own);
  expect(opened.scorers).toEqual({ score: own });
  opened.dispose();
  expect(own.isFree).toBe(true);
});

it('names what there is where a scorer is asked for that there is not', async () => {
  await expect(openScorer(device, 'word-problems-judge', { part: 'outcome' })).rejects.toThrow(
    'word-problems-judge has no scorer outcome; its scorers are verdict',
  );
  await expect(openScorer(device, () => [], { part: 'outcome', unit: 'step' })).rejects.toThrow(
    'has no scorer outcome; its scorers are score',
  );
  const scores = fileWith('scores.jsonl', '{"problem": 0, "sample": 0, "rm": 2}');
  expect(await openScorer(device, scores, { column: 'rm' })).toMatchObject({
    name: `${scores} (rm)`,
    scale: 'reward',
  });
});
