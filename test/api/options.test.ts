// A misspelt option is refused by every call that takes options, before anything else happens.
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  answersEqual,
  byteTokenizer,
  evaluate,
  evaluateSolving,
  extractAnswer,
  formatEvalTable,
  grade,
  judgeSolutions,
  judgeSteps,
  loadModel,
  loadProblems,
  loadRecords,
  type Model,
  resume,
  serve,
  train,
} from '../../src/index.js';
import { functionScorer } from '../../src/train.js';
import { openTest } from '../ops/devices.js';

const device = openTest();
const folder = mkdtempSync(join(tmpdir(), 'steptrain-options-'));
const data = join(folder, 'rows.jsonl');
let judge: Model;
beforeAll(async () => {
  judge = await loadModel(device, 'word-problems-judge');
  writeFileSync(data, '{"question": "1 + 1", "steps": ["2"], "labels": [1]}\n');
});
afterAll(() => device.dispose());

const record = { problem: '1 + 1', steps: [{ text: '2', label: 1, kind: 'normal' }] } as const;

/** Each calls with what TypeScript refuses. */
const CALLS: readonly (readonly [what: string, call: (options: object) => unknown, wrong: string])[] = [
  ['train', (options) => train({ method: 'sft', run: { output_dir: folder } } as never, options), 'onstep'],
  ['resume', (options) => resume(folder, options), 'onstep'],
  ['judgeSteps', (options) => judgeSteps(judge, '1 + 1', ['2'], options), 'treshold'],
  ['judgeSolutions', (options) => judgeSolutions(judge, [], options), 'treshold'],
  ['evaluate', (options) => evaluate(judge, [record], options), 'onprogress'],
  [
    'evaluateSolving',
    async (options) => evaluateSolving(judge, await judge.tokenizer(), [], options),
    'temprature',
  ],
  ['serve', (options) => serve({ name: 'judge', model: judge }, options), 'prot'],
  ['serve: limits', (limits) => serve({ name: 'judge', model: judge }, { limits }), 'bodyByte'],
  ['loadRecords', async (options) => loadRecords(data, options), 'colums'],
  ['loadProblems', (options) => loadProblems(data, options), 'colums'],
  ['loadModel', (options) => loadModel(device, 'word-problems-judge', options), 'dytpe'],
  ['score', (options) => judge.score([[1]], options), 'singal'],
  ['classify', (options) => judge.classify([[1]], options), 'singal'],
  ['generate', (options) => judge.generate([[1]], options), 'temprature'],
];

test.each(CALLS)(
  '%s refuses a misspelt option, and says the name that was meant',
  async (what, call, wrong) => {
    await expect(call({ [wrong]: 1 })).rejects.toMatchObject({
      code: 'E_RANGE',
      message: expect.stringMatching(
        new RegExp(`^${what}: there is no option "${wrong}"; did you mean \\w+\\? Known are \\w+`),
      ),
    });
    expect(existsSync(join(folder, 'config.yaml'))).toBe(false);
  },
);

test.each(CALLS)('%s refuses null in the place of options', async (what, call) => {
  await expect(call(null as never)).rejects.toThrow(`${what}: expected an object of options, found null`);
});

test('a promise that was not awaited, and a controller in the place of its signal', async () => {
  await expect(judge.generate([[1]], { tokenizer: judge.tokenizer() as never })).rejects.toThrow(
    'generate: tokenizer is a promise; await it',
  );
  await expect(judgeSteps(judge, '', [], { signal: new AbortController() as never })).rejects.toThrow(
    'judgeSteps: signal: expected an AbortSignal, such as the `signal` of an AbortController, found an AbortController',
  );
});

test.each<[string, () => unknown, string]>([
  [
    'a name in the place of a judge',
    () => judgeSteps('word-problems-judge' as never, '1 + 1', ['2']),
    'judgeSteps: expected a model or a scorer, such as loadModel and openScorer give, found "word-problems-judge"',
  ],
  [
    'a judge that was not awaited',
    () => evaluate(Promise.resolve(judge) as never, [record]),
    'evaluate: expected a model or a scorer, such as loadModel and openScorer give, found a Promise',
  ],
  [
    'one solution in the place of a list',
    () => judgeSolutions(judge, { problem: '1 + 1', steps: ['2'] } as never),
    'judgeSolutions: expected a list of solutions such as [{ problem: \'…\', steps: [\'…\'] }], found {"problem":"1 + 1","steps":["2"]}',
  ],
  [
    'a solution without steps',
    () => judgeSolutions(judge, [{ problem: '', steps: [] }, { problem: '1 + 1' } as never]),
    'judgeSolutions: expected a problem as text and a list of steps as texts as solution 1, found {"problem":"1 + 1","steps":nothing}',
  ],
  [
    'a text in the place of steps',
    () => judgeSteps(judge, '1 + 1', '2' as never),
    'judgeSteps: expected a problem as text and a list of steps as texts, found {"problem":"1 + 1","steps":"2"}',
  ],
  [
    'a text for a scorer',
    () => functionScorer(() => [1]).score('abc' as never),
    "score: expected a list of solutions such as [{ problem: '…', steps: ['…'] }], found \"abc\"",
  ],
  [
    'changes of a run as an object',
    () => resume(folder, { set: { 'run.max_minutes': 1 } as never }),
    'resume: set: expected a list of texts such as [\'run.max_minutes=60\'], found {"run.max_minutes":1}',
  ],
  [
    'a number as a prediction',
    () => grade(5 as never, '18'),
    'grade: the prediction: expected a text, found 5',
  ],
  ['a number as an answer', () => grade('5', 18 as never), 'grade: the reference: expected a text, found 18'],
  ['no text', () => extractAnswer(undefined as never), 'extractAnswer: expected a text, found nothing'],
  [
    'numbers as answers',
    () => answersEqual('1', 1 as never),
    'answersEqual: the second answer: expected a text, found 1',
  ],
  [
    'no text for bytes',
    () => byteTokenizer().encode(undefined as never),
    'encode: expected a text, found nothing',
  ],
  [
    'no text for a tokenizer',
    async () => (await judge.tokenizer()).encode(undefined as never),
    'encode: expected a text, found nothing',
  ],
  [
    'a text in the place of messages',
    () => byteTokenizer().applyChatTemplate('hi' as never),
    "applyChatTemplate: expected a list of messages such as [{ role: 'user', content: '…' }], found \"hi\"",
  ],
  [
    'no device',
    () => loadModel(null as never, 'word-problems'),
    "loadModel: expected a device, such as openDevice('cpu') gives, found null",
  ],
])('refuses %s in one sentence', async (_, call, message) => {
  await expect((async () => call())()).rejects.toMatchObject({ code: 'E_RANGE', message });
});

test('the table of an evaluation is plain unless it shall be boxed', async () => {
  const report = await evaluate(judge, [record]);
  expect(formatEvalTable(report)).toBe(formatEvalTable(report, { boxed: false }));
});

test('serve wants a name, and takes the tokenizer of its model', async () => {
  await expect(serve({ model: judge } as never, { port: 0 })).rejects.toThrow(
    "serve: name: expected the model's name in requests, found nothing",
  );
  await expect(serve({ name: 'judge', model: 'judge' as never }, { port: 0 })).rejects.toThrow(
    'serve: model: expected what loadModel gives, found "judge"',
  );
  const server = await serve(
    { name: 'judge', model: judge },
    { port: 0, limits: { queue: undefined as never } },
  );
  const response = await fetch(`${server.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'judge', prompt: 'Tom has', max_tokens: 2 }),
  });
  expect(response.status).toBe(200);
  await server.close(0);
});
