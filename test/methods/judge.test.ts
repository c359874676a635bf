// What a run saves is enough to judge with: adapter, reward network, reward model and merged model, from another directory.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { evaluate } from '../../src/eval/correction.js';
import { train } from '../../src/methods/run.js';
import { mergeAdapter } from '../../src/models/merge.js';
import type { StepRecord } from '../../src/records/record.js';
import { openDevice } from '../../src/runtime/device.js';
import { judgeSolutions, judgeSteps } from '../../src/scoring/judge.js';
import { openScorer, openScorers } from '../../src/scoring/open.js';
import type { StepEvent } from '../../src/train/step-event.js';
import { cli } from '../cli/run-cli.js';

const device = openDevice('cpu', { threads: 1 });
/** Of commands whose numbers are compared with those of `device`: the default is a GPU where there is one. */
const CPU = ['--device', 'cpu'];
let folder: string;
const events: StepEvent[] = [];
const at = (name: string) => join(folder, name);
const data = { source: 'arithmetic', arithmetic: { samples: 24 }, max_length: 200 };
const run = { device: 'cpu', threads: 1 };
const PROBLEM = '12 + 7 - 3';
const STEPS = ['12+7=19', '19-3=15'];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-judge-'));
  vi.stubEnv('STEPTRAIN_CACHE', at('cache'));
  const silent = vi.spyOn(console, 'error').mockImplementation(() => {});
  const prompt = { template: '{problem}\n{steps}\nso?', pos_word: 'yes', neg_word: 'no' };
  const sft = { max_steps: 2 };
  await train({ method: 'sft', lora: { r: 2 }, data, prompt, sft, run } as never, {
    output: at('sft'),
    onStep: (event) => events.push(event),
  });
  await train(
    { method: 'reward', lora: { r: 2 }, data, reward_model: { type: 'joint', max_steps: 2 }, run } as never,
    { output: at('joint') },
  );
  await train(
    {
      method: 'stepamc',
      lora: { r: 2 },
      data,
      sft,
      reward_network: { max_steps: 1 },
      verdict_ppo: { max_iterations: 1, rollout_batch: 16 },
      run,
    } as never,
    { output: at('stepamc') },
  );
  silent.mockRestore();
});
afterAll(() => {
  vi.unstubAllEnvs();
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});

test('a threshold that is none is refused, since every step would be wrong or every step right', async () => {
  const model = await loadModel(device, at('sft'));
  for (const [threshold, found] of [
    [70, '70'],
    [Number.NaN, 'NaN'],
    [-1, '-1'],
    [null, 'null'],
    ['0.5', '"0.5"'],
    ['x', '"x"'],
  ] as const) {
    const message = `threshold: expected 'greedy' or a number from 0 to 1, found ${found}`;
    const options = { threshold: threshold as never };
    await expect(judgeSteps(model, PROBLEM, STEPS, options)).rejects.toThrow(message);
    await expect(openScorer(device, at('sft'), options)).rejects.toThrow(message);
  }
  model.dispose();
});

test('a run ends with the error of a callback that is not synchronous', async () => {
  const silent = vi.spyOn(console, 'error').mockImplementation(() => {});
  const ended = train({ method: 'sft', lora: { r: 2 }, data, sft: { max_steps: 50 }, run } as never, {
    output: at('rejected'),
    onStep: async ({ step }) => {
      await new Promise((resolve) => setImmediate(resolve));
      if (step === 2) throw new Error('no more');
    },
  });
  await expect(ended).rejects.toThrow('no more');
  const { step } = JSON.parse(
    readFileSync(join(at('rejected'), 'metrics.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .at(-1)!,
  );
  expect(step).toBe(2);
  silent.mockRestore();
});

async function judgedBy(name: string) {
  const model = await loadModel(device, name);
  try {
    return await judgeSteps(model, PROBLEM, STEPS);
  } finally {
    model.dispose();
  }
}

async function scoredBy(name: string, scorer: string) {
  const opened = await openScorers(device, at(name));
  try {
    const found = await opened.scorers[scorer]!.score([{ problem: PROBLEM, steps: STEPS }]);
    return found![0]!.scores;
  } finally {
    opened.dispose();
  }
}

test('train tells of every step and validation', () => {
  expect(events.filter(({ kind }) => kind === 'step')).toEqual(
    [1, 2].map((step) => expect.objectContaining({ stage: 'sft', step, stageStep: step, stageSteps: 2 })),
  );
  for (const { metrics } of events)
    for (const value of Object.values(metrics)) expect(value).toBeTypeOf('number');
  const validations = events.filter(({ kind }) => kind === 'validation');
  expect(validations.map(({ stageStep }) => stageStep)).toEqual([0, 2]);
});

test('an error of onStep ends the run', async () => {
  const silent = vi.spyOn(console, 'error').mockImplementation(() => {});
  const failing = train({ method: 'sft', lora: { r: 2 }, data, sft: { max_steps: 1 }, run } as never, {
    output: at('failing'),
    onStep: () => {
      throw new Error('that will do');
    },
  });
  await expect(failing).rejects.toThrow('that will do');
  silent.mockRestore();
});

describe('evaluate', () => {
  test.each(['sft', 'joint'])('refuses to say of nothing how well %s judges it', async (name) => {
    const model = await loadModel(device, at(name));
    await expect(evaluate(model, [])).rejects.toThrow('there is no solution to judge');
    model.dispose();
  });

  const records: StepRecord[] = [
    { problem: PROBLEM, steps: STEPS.map((text, i) => ({ text, label: i === 0 ? 1 : 0, kind: 'normal' })) },
    { problem: '2 + 2', steps: [{ text: '2+2=4', label: 1, kind: 'normal' }] },
  ];

  test.each(['sft', 'joint'])('counts the verdicts of %s that judgeSteps gives', async (name) => {
    const model = await loadModel(device, at(name));
    const done: number[] = [];
    const report = await evaluate(model, records, { onProgress: (count) => done.push(count) });
    const judged = (
      await judgeSolutions(
        model,
        records.map(({ problem, steps }) => ({ problem, steps: steps.map(({ text }) => text) })),
      )
    ).flat();
    model.dispose();
    const labels = records.flatMap(({ steps }) => steps.map(({ label }) => label));
    const right = judged.filter(({ verdict }, i) => verdict === (labels[i] === 1 ? 'right' : 'wrong')).length;
    expect(report.metrics.n).toBe(3);
    expect(report.metrics.accuracy).toBeCloseTo(right / 3, 12);
    expect(done.at(-1)).toBe(2);
  });

  test('says the threshold of the card, by which judge judges too, and what its run found', async () => {
    cpSync(at('joint'), at('strict'), { recursive: true });
    const card = at('strict/adapter/steptrain.json');
    const settings = JSON.parse(readFileSync(card, 'utf8'));
    const judge = { ...settings.judge, threshold: 0.11, warnings: ['it is chance'] };
    writeFileSync(card, JSON.stringify({ ...settings, judge }));
    const model = await loadModel(device, at('strict'));
    expect((await evaluate(model, records)).threshold).toBeCloseTo(0.11, 6);
    model.dispose();
    writeFileSync(at('p.txt'), `${PROBLEM}\n\n${STEPS.join('\n')}\n`);
    const { stdout, stderr } = await cli('judge', at('strict'), at('p.txt'), '--json', ...CPU);
    expect(JSON.parse(stdout)).toMatchObject({ warnings: ['it is chance'] });
    expect(JSON.parse(stdout).threshold).toBeCloseTo(0.11, 6);
    expect(stderr).toContain('Warning: of this judge, it is chance');
    writeFileSync(at('p.jsonl'), JSON.stringify({ problem: PROBLEM, steps: STEPS }));
    const scored = await cli('score', at('p.jsonl'), '--model', at('strict'), ...CPU);
    expect(scored.stderr).toContain('Warning: of this judge, it is chance');
    expect(JSON.parse(scored.stdout).scores).toHaveLength(STEPS.length);
    const row = { problem: PROBLEM, steps: STEPS.map((text, i) => ({ text, label: i % 2 })) };
    writeFileSync(at('labelled.jsonl'), JSON.stringify(row));
    const asked = ['eval', 'correction', at('strict'), '--data', at('labelled.jsonl'), '--json', ...CPU];
    expect(JSON.parse((await cli(...asked)).stdout).threshold).toBeCloseTo(0.11, 6);
  });

  test('a signal stops it', async () => {
    const model = await loadModel(device, at('sft'));
    await expect(
      evaluate(model, records, { signal: AbortSignal.abort(new Error('enough')) }),
    ).rejects.toThrow('enough');
    model.dispose();
  });

  test('takes a reward network, whose scores are log-odds, and any scorer of steps', async () => {
    const model = await loadModel(device, at('stepamc/reward'));
    const report = await evaluate(model, records);
    model.dispose();
    const scorer = await openScorer(device, at('stepamc'), { part: 'reward' });
    expect((await evaluate(scorer, records)).metrics).toEqual(report.metrics);
    const unbounded = { ...scorer, scale: 'reward' } as const;
    await expect(evaluate(unbounded, records)).rejects.toThrow('gives no probability of a step');
    scorer.dispose();
    const outcomes = await openScorer(device, at('joint'), { part: 'outcome' });
    await expect(evaluate(outcomes, records)).rejects.toThrow('scores whole solutions and judges no steps');
    outcomes.dispose();
  });
});

describe('judgeSteps', () => {
  test('reads prompt, words and tokenizer from the adapter, wherever it lies', async () => {
    const judged = await judgedBy(at('sft'));
    expect(judged.map(({ step }) => step)).toEqual(STEPS);
    expect(judged.map(({ probability }) => probability)).toEqual(await scoredBy('sft', 'verdict'));
    cpSync(at('sft/adapter'), at('moved'), { recursive: true });
    expect(await judgedBy(at('moved'))).toEqual(judged);
    const card = JSON.parse(readFileSync(at('moved/steptrain.json'), 'utf8'));
    expect(card).toMatchObject({ base: 'embedded', judge: { kind: 'verdict', prompt: { pos_word: 'yes' } } });
  });

  test('a threshold divides right from wrong', async () => {
    const model = await loadModel(device, at('sft'));
    const [low, high] = [0, 1].map((threshold) => judgeSteps(model, PROBLEM, STEPS, { threshold }));
    expect((await low!).map(({ verdict }) => verdict)).toEqual(['right', 'right']);
    expect((await high!).map(({ verdict }) => verdict)).toEqual(['wrong', 'wrong']);
    model.dispose();
    await expect(judgeSteps(model, PROBLEM, STEPS)).rejects.toThrow('the model');
  });

  test('a reward model and a reward network judge like the scorers of their runs', async () => {
    const joint = await judgedBy(at('joint/adapter'));
    expect(joint.map(({ score }) => score)).toEqual(await scoredBy('joint', 'reward'));
    for (const { probability, verdict } of joint)
      expect(verdict).toBe(probability! >= 0.5 ? 'right' : 'wrong');
    const network = await judgedBy(at('stepamc/reward'));
    expect(network.map(({ score }) => score)).toEqual(await scoredBy('stepamc', 'reward'));
    for (const { probability, score } of network) expect(probability).toBe(1 / (1 + Math.exp(-score!)));
  });

  test('a merged model needs no adapter', async () => {
    const model = await loadModel(device, at('sft'));
    const { model: base, adapter } = model.files!;
    model.dispose();
    await mergeAdapter(device, base, adapter!, at('merged'));
    const merged = await judgedBy(at('merged'));
    const expected = await judgedBy(at('sft'));
    merged.forEach(({ probability, verdict }, i) => {
      expect(probability).toBeCloseTo(expected[i]!.probability!, 4);
      expect(verdict).toBe(expected[i]!.verdict);
    });
  });

  test('no solution depends on the others; one without steps has no judgement', async () => {
    const model = await loadModel(device, at('sft'));
    const alone = await judgeSteps(model, PROBLEM, STEPS);
    const solutions = [
      { problem: '1 + 1', steps: [] },
      { problem: '5 * 5', steps: ['25'] },
      { problem: PROBLEM, steps: STEPS },
    ];
    expect(await judgeSolutions(model, solutions)).toEqual([[], [expect.anything()], alone]);
    model.dispose();
  });

  test('a signal stops it, with its reason', async () => {
    const model = await loadModel(device, at('sft'));
    const signal = AbortSignal.abort(new Error('enough'));
    await expect(judgeSteps(model, PROBLEM, STEPS, { signal })).rejects.toThrow('enough');
    model.dispose();
  });

  test('refuses a model that was not trained to judge, unless it gets a prompt', async () => {
    const model = await loadModel(device, 'embedded');
    await expect(judgeSteps(model, PROBLEM, STEPS)).rejects.toThrow(
      /judges no steps; expected what a run has trained to judge/,
    );
    expect(await judgeSteps(model, PROBLEM, STEPS, { prompt: { template: 'compact' } })).toHaveLength(2);
    await expect(judgeSteps(model, PROBLEM, 'x' as never)).rejects.toThrow('a list of steps as texts');
    model.dispose();
  });

  test.each([
    ['{"method": "sft", "judge": {"kind": "word"}}', /judge\.kind/],
    [
      '{"method": "sft", "judge": {"kind": "verdict", "max_length": -1, "threshold": 0}}',
      /judge\.max_length/,
    ],
    ['{"method": "sft", "judge": 3}', /judge: expected an object/],
    ['{"judge": {}}', /method: expected the name of a method/],
    ['{"method": "ppo"}', /was trained by method ppo, which does not judge steps/],
    ['{', /line 1/],
  ])('refuses a damaged card %s', async (card, sentence) => {
    cpSync(at('sft/adapter'), at('damaged'), { recursive: true });
    writeFileSync(at('damaged/steptrain.json'), card);
    await expect(judgedBy(at('damaged'))).rejects.toThrow(sentence);
  });

  test('an adapter whose base is gone says so', async () => {
    cpSync(at('sft/adapter'), at('lost'), { recursive: true });
    writeFileSync(at('lost/steptrain.json'), '{"method": "sft", "base": "/nowhere/base"}');
    await expect(judgedBy(at('lost'))).rejects.toThrow(
      'was trained on /nowhere/base, which is not here; name its base',
    );
  });
});

describe('steptrain judge', () => {
  test('reads a text and prints a line for each step', async () => {
    writeFileSync(at('problem.txt'), `${PROBLEM}\n\n${STEPS.join('\n')}\n`);
    const { code, stdout } = await cli('judge', at('sft/adapter'), at('problem.txt'), ...CPU);
    expect(code).toBe(0);
    const [first] = await judgedBy(at('sft'));
    const lines = stdout.split('\n');
    expect(lines[0]).toMatch(/^step {2}p\(right\) {2}verdict {2}text$/);
    expect(lines).toHaveLength(3);
    expect(lines[1]).toContain(first!.probability!.toFixed(3));
    expect(lines[1]).toMatch(/12\+7=19$/);
  });

  test('reads and prints JSON', async () => {
    writeFileSync(
      at('problem.json'),
      JSON.stringify({ problem: PROBLEM, steps: STEPS.map((text) => ({ text })) }),
    );
    const { stdout } = await cli('judge', at('stepamc/reward'), at('problem.json'), '--json', ...CPU);
    expect(JSON.parse(stdout)).toEqual({
      problem: PROBLEM,
      threshold: 0.5,
      steps: await judgedBy(at('stepamc/reward')),
    });
  });

  test('takes the judge by --model too', async () => {
    const named = await cli('judge', at('sft'), at('problem.txt'));
    expect(await cli('judge', at('problem.txt'), '--model', at('sft'))).toEqual(named);
  });

  test.each([
    ['', /holds no solution: expected the problem, a blank line, and the steps/],
    ['one line', /holds no solution/],
    ['{"problem": 3}', /expected \{"problem"/],
    ['{', /is not JSON/],
  ])('refuses %j', async (content, sentence) => {
    writeFileSync(at('bad'), content);
    const { code, stderr } = await cli('judge', at('sft'), at('bad'));
    expect([code, stderr]).toEqual([1, expect.stringMatching(sentence)]);
  });

  test('generate takes an adapter without its base', async () => {
    const { code, stderr } = await cli(
      'generate',
      '1+1',
      '--adapter',
      at('sft/adapter'),
      '--max-new-tokens',
      '2',
    );
    expect([code, stderr]).toEqual([0, '']);
  });
});
