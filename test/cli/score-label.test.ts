// steptrain score and steptrain label, with the models of the package.
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { labelJudge } from '../../src/methods/offline/rounds/judges.js';
import { train } from '../../src/methods/run.js';
import { baseDirectory } from '../../src/models/base.js';
import { openDevice } from '../../src/runtime/device.js';
import { verdictsOf } from '../../src/scoring/scorer.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { cli as run } from './run-cli.js';

let folder: string;
const cli = async (args: readonly string[]) => {
  const { code, stdout: out, stderr: err } = await run(...args);
  return { code, out, err };
};
const at = (name: string) => join(folder, name);
const lines = (path: string) =>
  readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);

/** Turns the sign of some numbers in each file of weights below. */
function changeWeights(directory: string): void {
  for (const name of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.safetensors') || name.includes('checkpoints')) continue;
    const bytes = readFileSync(join(directory, name));
    for (let i = bytes.length - 4000; i < bytes.length; i += 4)
      bytes[i + 3] = (bytes[i + 3] as number) ^ 0x80;
    writeFileSync(join(directory, name), bytes);
  }
}

/** Two right steps, and two of which the first is wrong. */
const PROBLEM = 'Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?';
const SOLUTIONS = [
  { problem: PROBLEM, steps: ['Tom: 12 + 7 = 19', 'Answer: 19'], answer: '19' },
  { problem: PROBLEM, solution: 'Tom: 12 + 7 = 29\nAnswer: 29', answer: '19' },
  { problem: PROBLEM, completions: ['Tom: 12 + 7 = 19'], answer: '19' },
];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-score-'));
  vi.stubEnv('STEPTRAIN_CACHE', at('cache'));
  writeFileSync(at('solutions.jsonl'), SOLUTIONS.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const silent = vi.spyOn(console, 'error').mockImplementation(() => {});
  await train(
    {
      method: 'reward',
      model: { base: 'word-problems' },
      lora: { r: 2 },
      data: { source: 'word_problems', word_problems: { samples: 40, error_rate: 0.4 }, max_length: 384 },
      reward_model: { type: 'joint' },
      run: { device: 'cpu', threads: 1 },
    } as never,
    { output: at('run') },
  );
  silent.mockRestore();
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

describe('score', () => {
  test('keeps every column and adds the scores of the steps and what they come to', async () => {
    const { code } = await cli([
      'score',
      at('solutions.jsonl'),
      '--model',
      at('run'),
      '--aggregate',
      'all',
      '--output',
      at('scored'),
    ]);
    expect(code).toBe(0);
    const rows = lines(at('scored/scores.jsonl'));
    expect(rows.map(({ answer }) => answer)).toEqual(['19', '19', '19']);
    const [first] = rows as [{ scores: number[]; score_min: number; score_product: number }];
    expect(first.scores).toHaveLength(2);
    expect(first.score_min).toBe(Math.min(...first.scores));
    expect(first.score_product).toBeCloseTo(first.scores[0]! * first.scores[1]!, 12);
    // The scores are those of each solution alone.
    const { out } = await cli(['score', at('solutions.jsonl'), '--model', at('run')]);
    expect(
      out
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line).scores),
    ).toEqual(rows.map(({ scores }) => scores));
  });

  test('the outcome has one score, at the end', async () => {
    const { out } = await cli(['score', at('solutions.jsonl'), '--model', at('run'), '--scorer', 'outcome']);
    expect(JSON.parse(out.split('\n')[0]!).scores).toEqual([null, expect.any(Number)]);
  });

  test('goes on after the last whole line', async () => {
    const whole = readFileSync(at('scored/scores.jsonl'), 'utf8');
    truncateSync(at('scored/scores.jsonl'), Math.floor(whole.length / 2));
    await cli([
      'score',
      at('solutions.jsonl'),
      '--model',
      at('run'),
      '--aggregate',
      'all',
      '--output',
      at('scored'),
    ]);
    expect(readFileSync(at('scored/scores.jsonl'), 'utf8')).toBe(whole);
  });

  test('goes on with no other weights, though they lie under the same name', async () => {
    cpSync(at('run'), at('again'), { recursive: true });
    const score = () =>
      cli(['score', at('solutions.jsonl'), '--model', at('again'), '--output', at('weights')]);
    expect((await score()).code).toBe(0);
    changeWeights(at('again'));
    expect(await score()).toMatchObject({
      code: 1,
      err: expect.stringMatching(/weights was "\w+" and is "\w+" now/),
    });
  });

  test('copies numbers with all their digits and their kind', async () => {
    const copied = '"id":12345678901234567890,"weight":2.0';
    writeFileSync(at('numbers.jsonl'), `${JSON.stringify(SOLUTIONS[0]).slice(0, -1)},${copied}}\n`);
    const scored = await cli(['score', at('numbers.jsonl'), '--model', at('run')]);
    expect(scored.out).toContain(copied);
    const kept = await cli(['score', at('numbers.jsonl'), '--model', at('run'), '--output', at('numbers')]);
    expect(kept.code).toBe(0);
    expect(readFileSync(at('numbers/scores.jsonl'), 'utf8')).toContain(copied);
  });

  test('refuses rows whose own columns the scores would replace', async () => {
    writeFileSync(at('scored.jsonl'), `${JSON.stringify({ ...SOLUTIONS[0], score_min: 1 })}\n`);
    const { code, out, err } = await cli(['score', at('scored.jsonl'), '--model', at('run')]);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(/scored\.jsonl, line 1 has a column 'score_min' already, which would be lost/);
  });

  test('refuses other settings, a scorer that is not there, and a row without a solution by its line', async () => {
    const other = await cli(['score', at('solutions.jsonl'), '--model', at('run'), '--output', at('scored')]);
    expect(other).toMatchObject({ code: 1, err: expect.stringMatching(/aggregations was \["min","product/) });
    const none = await cli(['score', at('solutions.jsonl'), '--model', at('run'), '--scorer', 'x']);
    expect(none.err).toMatch(/has no scorer x; its scorers are reward, outcome/);
    writeFileSync(at('bad.jsonl'), `${JSON.stringify(SOLUTIONS[0])}\n{"problem": "p"}\n`);
    const bad = await cli(['score', at('bad.jsonl'), '--model', at('run')]);
    expect(bad.err).toMatch(/bad\.jsonl, line 2: there is no column of a solution/);
    const passed = await cli(['score', at('bad.jsonl'), '--model', at('run'), '--on-bad-row', 'skip']);
    expect(JSON.parse(passed.out.trim().split('\n')[1]!)).toMatchObject({
      scores: null,
      error: expect.any(String),
    });
  });
});

describe('judge.kind run', () => {
  const open = (path: string) => labelJudge({ judge: { kind: 'run', path }, run: {} } as never, device)!;
  const device = openDevice('cpu');
  afterAll(() => device.dispose());

  test('takes a reward model of steps, which calls right what it finds likelier right', async () => {
    const judge = open(at('run'));
    const steps = SOLUTIONS[0]!.steps!;
    const asked = {
      problem: PROBLEM,
      of: { problem: PROBLEM, answer: '19' },
      text: steps.join('\n'),
      steps,
    };
    const [row] = lines(at('scored/scores.jsonl')) as unknown as [{ scores: number[] }];
    expect(await verdictsOf(judge)([asked])).toEqual([row.scores.map((score) => (score >= 0.5 ? 1 : 0))]);
    judge.dispose();
  });

  test('refuses one of outcomes alone', async () => {
    cpSync(at('run'), at('orm'), { recursive: true });
    const card = at('orm/adapter/steptrain.json');
    writeFileSync(card, readFileSync(card, 'utf8').replace('"joint"', '"orm"'));
    await expect(verdictsOf(open(at('orm')))([{ problem: PROBLEM, steps: ['a'] }])).rejects.toThrow(
      'scores whole solutions and judges no steps',
    );
  });
});

describe('label', () => {
  const rollouts = (output: string, mostTokens = 40, ...more: readonly string[]) =>
    cli([
      'label',
      at('solutions.jsonl'),
      '--model',
      'word-problems',
      '--template',
      '{problem}',
      '-k',
      '4',
      '--max-new-tokens',
      `${mostTokens}`,
      '--output',
      at(output),
      ...more,
    ]);

  test('hard and soft labels are those of the completions, and the last step is that of the answer', async () => {
    const { code, err } = await rollouts('labels');
    expect(code).toBe(0);
    expect(err).toMatch(
      /3 solutions, 3 prefixes, 12 completions of up to 40 tokens: at most 480 tokens are drawn/,
    );
    const rows = lines(at('labels/labels.jsonl')) as {
      steps: { label: number; score: number }[];
      outcome?: number;
    }[];
    for (const { steps } of rows)
      for (const { label, score } of steps) {
        expect(label).toBe(score > 0 ? 1 : 0);
        expect((4 * score) % 1).toBe(0);
      }
    expect(rows.map(({ outcome }) => outcome)).toEqual([1, 0, undefined]);
    expect(rows[0]!.steps[1]!.score).toBe(1);
    expect(rows[1]!.steps[1]!.score).toBe(0);
    // The model of the package solves this problem: after a right step it finds the answer, by the same draws or others.
    expect(rows[0]!.steps[0]!.score).toBeGreaterThan(0.5);
  });

  test('a completion that is cut off reaches nothing, and a solution that is has no outcome', async () => {
    const tokenizer = await loadTokenizer(baseDirectory('word-problems'));
    const { length } = tokenizer.encode('Answer: 19\n');
    const scores: number[] = [];
    for (const most of [length, length + 1]) {
      await rollouts(`cut-${most}`, most, '--temperature', '0.1');
      scores.push(
        (lines(at(`cut-${most}/labels.jsonl`))[0] as { steps: [{ score: number }] }).steps[0].score,
      );
    }
    // One token more, and the answer is followed by its end.
    expect(scores).toEqual([0, 1]);
    const solved = {
      problem: PROBLEM,
      answer: '19',
      text: 'Tom: 12 + 7 = 19\nAnswer: 1',
      finish_reason: 'length',
    };
    writeFileSync(at('cut.jsonl'), `${JSON.stringify(solved)}\n`);
    const { err } = await cli([
      'label',
      at('cut.jsonl'),
      '--output',
      at('cut'),
      '-k',
      '1',
      '--max-new-tokens',
      '1',
    ]);
    expect(err).toMatch(/1 solution, 2 prefixes/);
    expect(lines(at('cut/labels.jsonl'))[0]).not.toHaveProperty('outcome');
  });

  test('goes on with no other weights, though they lie under the same name', async () => {
    cpSync(baseDirectory('word-problems'), at('base'), { recursive: true });
    const label = () =>
      cli(
        ['label', at('solutions.jsonl'), '--model', at('base'), '--template', '{problem}', '-k', '1'].concat([
          '--max-new-tokens',
          '4',
          '--output',
          at('other'),
        ]),
      );
    expect((await label()).code).toBe(0);
    changeWeights(at('base'));
    expect(await label()).toMatchObject({
      code: 1,
      err: expect.stringMatching(/weights was "\w+" and is "\w+" now/),
    });
  });

  test('goes on with no other judge and no other worked solutions under the same name', async () => {
    cpSync(at('run'), at('judge'), { recursive: true });
    const label = (...way: readonly string[]) =>
      cli(['label', at('solutions.jsonl'), ...way, '--output', at(`by${way[0]}`)]);
    expect((await label('--judge', at('judge'))).code).toBe(0);
    changeWeights(at('judge'));
    expect(await label('--judge', at('judge'))).toMatchObject({
      code: 1,
      err: expect.stringMatching(/weights was "\w+" and is "\w+" now/),
    });
    const worked = (solution: string) =>
      writeFileSync(at('worked.jsonl'), JSON.stringify({ problem: PROBLEM, answer: '19', solution }));
    worked('12 + 7 = 19');
    expect((await label('--reference', at('worked.jsonl'))).code).toBe(0);
    worked('7 + 12 = 19');
    expect(await label('--reference', at('worked.jsonl'))).toMatchObject({
      code: 1,
      err: expect.stringContaining('problems was'),
    });
  });

  test.each([
    [['--judge', 'word-problems-judge', '--until-wrong'], '--judge draws no completions, and --until-wrong'],
    [['--reference', 'x.jsonl', '-k', '4'], '--reference draws no completions, and --k is about them'],
    [['--results', '--temperature', '0.5'], '--results draws no completions, and --temperature'],
    [
      ['--environment', 'calculator', '--template', '{problem}'],
      '--environment draws no texts, and --template',
    ],
  ])('refuses %j, of which one would change nothing', async (way, sentence) => {
    const { code, err } = await cli(['label', at('solutions.jsonl'), ...way, '--output', at('unused')]);
    expect([code, err]).toEqual([1, expect.stringContaining(sentence)]);
  });

  test('goes on where it was stopped, with the same labels', async () => {
    const whole = readFileSync(at('labels/labels.jsonl'), 'utf8');
    truncateSync(at('labels/labels.jsonl'), whole.indexOf('\n') + 10);
    await rollouts('labels');
    expect(readFileSync(at('labels/labels.jsonl'), 'utf8')).toBe(whole);
  });

  test('the oracle needs no model, and a plan of every problem', async () => {
    expect((await cli(['data', 'problems', at('problems.jsonl'), '--count', '3'])).code).toBe(0);
    const solved = lines(at('problems.jsonl')).map(({ problem, answer }) => ({
      problem,
      samples: [
        { text: `Answer: ${answer}`, finish_reason: 'stop' },
        { text: 'x: 1 + 1 = 3' },
        { text: '' },
        { text: `Answer: ${answer}`, finish_reason: 'length' },
      ],
    }));
    writeFileSync(at('solved.jsonl'), solved.map((row) => `${JSON.stringify(row)}\n`).join(''));
    const { code } = await cli([
      'label',
      at('solved.jsonl'),
      '--oracle',
      at('problems.jsonl'),
      '--output',
      at('exact'),
    ]);
    expect(code).toBe(0);
    const rows = lines(at('exact/labels.jsonl')) as { steps: { label: number }[]; outcome?: number }[];
    expect(rows).toHaveLength(9);
    expect(rows.map(({ outcome }) => outcome)).toEqual([1, 2, 3].flatMap(() => [1, undefined, undefined]));
    expect(rows[1]!.steps.map(({ label }) => label)).toEqual([0]);
    const unknown = await cli([
      'label',
      at('solutions.jsonl'),
      '--oracle',
      at('problems.jsonl'),
      '--output',
      at('unknown'),
    ]);
    expect(unknown.err).toMatch(/line 1: .*has no plan of this problem/);
  });

  test('finishes what is unfinished and grades all; steps keep their labels', async () => {
    const [right, wrong] = ['Tom: 12 + 7 = 19', 'Tom: 12 + 7 = 29'];
    const one = { problem: PROBLEM, gold_answer: '19' };
    const given = [
      { ...one, steps: [{ text: right, label: 1 }] },
      { ...one, steps: [{ text: wrong, label: 0 }] },
      { ...one, steps: [right, '# Answer\n\n19'] },
      { ...one, text: `${right}\nAnswer: 1`, finish_reason: 'length' },
      { ...one, text: 'To', finish_reason: 'length' },
      { ...one, steps: [{ text: wrong, label: 0 }], outcome: 0 },
    ];
    writeFileSync(at('unfinished.jsonl'), given.map((row) => `${JSON.stringify(row)}\n`).join(''));
    const complete = (output: string, ...more: readonly string[]) =>
      cli([
        'label',
        at('unfinished.jsonl'),
        '--complete',
        '--model',
        'word-problems',
        '--template',
        '{problem}',
        '--temperature',
        '0.1',
        '--output',
        at(output),
        ...more,
      ]);
    const { code, err } = await complete('whole', '--max-new-tokens', '40');
    expect(code, err).toBe(0);
    expect(err).toMatch(/6 solutions, 4 of them unfinished, 4 completions of up to 40 tokens/);
    const rows = lines(at('whole/labels.jsonl')) as {
      steps: { text: string; label: number | null }[];
      outcome?: number;
    }[];
    expect(rows.map(({ outcome }) => outcome)).toEqual([1, 0, 1, 1, 1, 0]);
    expect(rows.map(({ steps }) => steps.map(({ label }) => label))).toEqual([
      [1, null],
      [0, null],
      [null, null],
      [null, null],
      [null, null],
      [0],
    ]);
    expect(rows[0]!.steps[1]!.text).toBe('Answer: 19');
    // What follows the error is the model's own way to an answer.
    expect(rows[1]!.steps[1]!.text).toMatch(/^Answer: (?!19)/);
    // Half a step is written anew.
    expect(rows[3]!.steps[1]!.text).toBe('Answer: 19');
    const short = await complete('short', '--max-new-tokens', '1', '-k', '2');
    expect(short.err).toMatch(/4 of them are still unfinished, and have no outcome/);
    expect(lines(at('short/labels.jsonl')).map(({ outcome }) => outcome)).toEqual([
      undefined,
      undefined,
      1,
      undefined,
      undefined,
      0,
    ]);
    const both = await complete('both', '--until-wrong');
    expect(both).toMatchObject({ code: 1, err: expect.stringMatching(/--complete labels no steps/) });
    // A model of outcomes learns them all.
    const silent = vi.spyOn(console, 'error').mockImplementation(() => {});
    await train(
      {
        method: 'reward',
        model: { base: 'word-problems' },
        lora: { r: 2 },
        data: { source: 'record', train: at('whole/labels.jsonl'), split: [1, 0, 0], max_length: 384 },
        reward_model: { type: 'orm', num_train_epochs: 1 },
        run: { device: 'cpu', threads: 1 },
      } as never,
      { output: at('orm-whole') },
    );
    const said = silent.mock.calls.flat().join('\n');
    silent.mockRestore();
    expect(said).not.toMatch(/left out/);
    expect(lines(at('orm-whole/metrics.jsonl'))[0]).toHaveProperty('loss');
  });

  test('refuses a row without an answer before anything is drawn', async () => {
    writeFileSync(at('open.jsonl'), '{"problem": "p", "steps": ["s"]}\n');
    const { code, err } = await cli(['label', at('open.jsonl'), '--output', at('open')]);
    expect(code).toBe(1);
    expect(err).toMatch(/line 1.*no answer to compare with/);
  });
});
