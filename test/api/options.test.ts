// A misspelt option is refused by every call that takes options, before anything else happens.
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import {
  answersEqual,
  byteTokenizer,
  type DeviceOptions,
  evaluate,
  evaluateSolving,
  extractAnswer,
  formatEvalTable,
  type GradeOptions,
  grade,
  judgeSolutions,
  judgeSteps,
  loadModel,
  loadProblems,
  loadRecords,
  type MergeOptions,
  type Model,
  type ModelGenerateOptions,
  type RecordOptions,
  resume,
  type ServeOptions,
  type SolvingOptions,
  type StepRecord,
  serve,
  train,
} from '../../src/entries/index.js';
import { functionScorer } from '../../src/entries/train.js';
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

/** Each key may be undefined. */
type Loose<T> = { readonly [Key in keyof T]?: T[Key] | undefined };
/** Fails to compile where a type of options has a key that may be left out but not be undefined. */
const undefinedKeys = <T extends object>(keys: readonly (keyof T)[], accept: (options: Loose<T>) => T) =>
  accept(Object.fromEntries(keys.map((key) => [key, undefined])) as Loose<T>);

test('an option that is undefined has its default', async () => {
  const tokenizer = await judge.tokenizer();
  const ids = tokenizer.encode('Tom has 12 apples.');
  const sampling = undefinedKeys<ModelGenerateOptions>(
    ['n', 'temperature', 'topK', 'stop', 'eosTokenIds', 'role', 'tokenizer', 'seed', 'skip', 'promptIds'],
    (options) => options,
  );
  const texts = async (options: ModelGenerateOptions) =>
    (await judge.generate([ids], { ...options, maxNewTokens: 4 })).map((samples) =>
      samples.map(({ tokens }) => [...tokens]),
    );
  expect(await texts(sampling)).toEqual(await texts({}));
  const reading = undefinedKeys<RecordOptions>(
    ['source', 'turns', 'neutral', 'phase', 'label_threshold', 'on_bad_row', 'columns', 'problems'],
    (options) => options,
  );
  const read = async (options: RecordOptions) => {
    const all: StepRecord[] = [];
    for await (const each of loadRecords(data, options).records) all.push(each);
    return all;
  };
  expect(await read(reading)).toEqual(await read({}));
  undefinedKeys<ServeOptions>(['host', 'limits', 'adapters', 'onError'], (options) => options);
  undefinedKeys<SolvingOptions>(['n', 'about', 'bootstrap', 'onProgress', 'digits'], (options) => options);
  undefinedKeys<GradeOptions>(['ended', 'expect', 'units', 'steps'], (options) => options);
  undefinedKeys<MergeOptions>(['dtype', 'check', 'maxShardBytes'], (options) => options);
  undefinedKeys<DeviceOptions>(['threads', 'isa', 'memoryLimit', 'memoryFraction'], (options) => options);
});

const ROW = { question: '12 + 7 - 3', steps: ['12 + 7 = 19', '19 - 3 = 15'], labels: [1, 0] };

test('evaluate takes rows of any layout, in memory or as they come', async () => {
  const converted: StepRecord = {
    problem: ROW.question,
    steps: ROW.steps.map((text, i) => ({ text, label: ROW.labels[i] as 0 | 1, kind: 'normal' })),
  };
  const expected = await evaluate(judge, [converted, record]);
  expect(expected.metrics.n).toBe(3);
  expect(await evaluate(judge, [ROW, record])).toEqual(expected);
  async function* coming() {
    yield ROW;
    yield record;
  }
  expect(await evaluate(judge, coming())).toEqual(expected);
  const { records } = loadRecords(data);
  // Their file is a group of its own.
  expect((await evaluate(judge, records)).metrics).toEqual((await evaluate(judge, [record])).metrics);
  const validated = await evaluate(judge, [record], { validation: [ROW] });
  expect(validated).toEqual(await evaluate(judge, [record], { validation: [converted] }));
});

test.each<[string, unknown, string | RegExp]>([
  [
    'what loadRecords gives beside the records',
    { records: [] },
    'evaluate: expected a list of records or the `records` of loadRecords, found {"records":[]}',
  ],
  ['the name of a file', 'rows.jsonl', /found "rows\.jsonl"$/],
  [
    'a row of no layout',
    [ROW, { question: 'q' }],
    /^evaluate, row 2: the columns question are of no known layout/,
  ],
  ['another number of labels', [{ ...ROW, labels: [1] }], /^evaluate, row 1: /],
  ['no row', [3], /^evaluate, row 1: the row is /],
])('evaluate refuses %s', async (_, rows, message) => {
  await expect(evaluate(judge, rows as never)).rejects.toThrow(message);
});

test('a run from a recipe tells how far it came', async () => {
  vi.spyOn(console, 'error').mockImplementation(() => {});
  const result = await train({
    extends: 'quickstart_sft',
    data: { arithmetic: { samples: 60 } },
    sft: { max_steps: 1, tokens_per_step: 256 },
    eval: { max_samples: 10 },
    run: { output_dir: join(folder, 'run'), threads: 1 },
  });
  expect(result).toMatchObject({ status: 'finished', step: 1, stage: 1 });
  expect(result.unchanged.every((stage) => stage === 'sft')).toBe(true);
  expect(result.tokens).toBeGreaterThan(0);
});

test('an error keeps its message as JSON', async () => {
  const error: unknown = await judge.score([[]]).catch((reason: unknown) => reason);
  expect(JSON.parse(JSON.stringify(error))).toEqual({
    name: 'StepTrainError',
    code: 'E_RANGE',
    message: 'score: sequence 0 is empty; give at least one token',
  });
});
