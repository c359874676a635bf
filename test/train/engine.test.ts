// The engine alone, with stages that train one number: logs, skipped steps, best parameters, checkpoints, resume.
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { TrainableParameters } from '../../src/autograd/parameters.js';
import { createRunDirectory, openRunDirectory, type RunDirectory } from '../../src/run/directory.js';
import { AdamW } from '../../src/train/adamw.js';
import { runStages } from '../../src/train/engine.js';
import { learningRateAt } from '../../src/train/schedule.js';
import type { TrainingStage } from '../../src/train/stage.js';
import { applyGradients } from '../../src/train/update.js';
import { openTest } from '../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

const ADAM = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 0 };

let folder: string;
let run: RunDirectory;
let parameters: TrainableParameters;
const open = () => new TrainableParameters(device, [{ name: 'x', shape: [1], init: new Float32Array(1) }]);
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-engine-'));
  run = await createRunDirectory(join(folder, 'run'), { onExisting: 'refuse' });
  await run.writeConfig('method: sft\n');
  parameters = open();
});
afterEach(async () => {
  await run.close();
  parameters.dispose();
  await rm(folder, { recursive: true, force: true });
});

interface Behaviour {
  readonly name?: string;
  readonly steps?: number;
  /** Gradient of step i. */
  readonly gradient?: (step: number) => number;
  readonly loss?: (step: number) => number;
  readonly eval_steps?: number;
  readonly patience?: number;
  readonly load_best_model_at_end?: boolean;
  /** Kept in the checkpoint. */
  readonly state?: () => unknown;
  readonly restore?: (state: unknown) => void;
  /** The metric that decides which parameters are best, from x. */
  readonly score?: (x: number) => number;
  /** Further metrics of an evaluation, from x. */
  readonly beside?: (x: number) => Record<string, number>;
  /** Whether an evaluation at x has the score. Default: always. */
  readonly measures?: (x: number) => boolean;
  readonly save_steps?: number;
  readonly warmup_ratio?: number;
  readonly onStep?: (step: number) => void;
  readonly begin?: () => void;
}

/** A stage that moves x by AdamW against a given gradient. */
function stage(behaviour: Behaviour = {}): TrainingStage {
  const { name = 'sft', steps = 6, gradient = () => 1, loss = () => 0, score } = behaviour;
  return {
    name,
    steps,
    settings: {
      eval_steps: behaviour.eval_steps ?? 0,
      save_steps: behaviour.save_steps ?? 0,
      save_total_limit: 10,
      warmup_ratio: behaviour.warmup_ratio ?? 0,
      best: score ? 'score' : undefined,
      patience: behaviour.patience ?? 0,
      load_best_model_at_end: behaviour.load_best_model_at_end ?? true,
    },
    batching: { [`${name}.tokens`]: 1 },
    open() {
      const optimizer = new AdamW(parameters, ADAM);
      return {
        optimizers: { [name]: optimizer },
        trains: parameters,
        begin: async () => behaviour.begin?.(),
        async step(index) {
          behaviour.onStep?.(index);
          parameters.grads.write(new Float32Array([gradient(index)]));
          const update = await applyGradients(optimizer, 0.1, { loss: loss(index) });
          if (update.nonFinite !== undefined)
            return { metrics: {}, shown: {}, tokens: 1, nonFinite: update.nonFinite };
          return { metrics: { loss: loss(index) }, shown: {}, tokens: 1 };
        },
        ...(score ? { validate: async (signal: AbortSignal) => evaluated(score, signal, behaviour) } : {}),
        ...(behaviour.state ? { state: behaviour.state } : {}),
        ...(behaviour.restore ? { restore: behaviour.restore } : {}),
        dispose: () => optimizer.dispose(),
      };
    },
  };
}

async function evaluated(
  score: (x: number) => number,
  signal: AbortSignal,
  { beside, measures = () => true }: Behaviour,
) {
  const [x] = (await parameters.values.readFloats()) as unknown as [number];
  return signal.aborted ? undefined : { ...(measures(x) ? { score: score(x) } : {}), ...beside?.(x) };
}

const go = (
  stages: readonly TrainingStage[],
  more: {
    resume?: boolean;
    signal?: AbortSignal;
    validates?: boolean;
    loggingSteps?: number;
    maxTokens?: number;
  } = {},
) =>
  runStages(
    stages,
    { policy: parameters },
    {
      device,
      run,
      signal: more.signal ?? new AbortController().signal,
      resume: more.resume ?? false,
      loggingSteps: more.loggingSteps ?? 1,
      maxSkipped: 3,
      ...(more.validates === undefined ? {} : { validates: more.validates }),
      ...(more.maxTokens === undefined ? {} : { maxTokens: more.maxTokens }),
    },
  );
const x = async () => (await parameters.values.readFloats())[0] as number;
const lines = async () =>
  (await readFile(run.metrics.path, 'utf8'))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, number | string>);

describe('evaluations', () => {
  test('come after a share of the steps, so that a short stage has some too', async () => {
    const evaluatedAt = async (steps: number, eval_steps: number) => {
      const asked: number[] = [];
      let done = 0;
      const score = (x: number) => asked.push(done) * 0 + x;
      await go([stage({ name: `s${steps}`, steps, eval_steps, score, onStep: () => done++ })]);
      return asked;
    };
    expect(await evaluatedAt(6, 0.5)).toEqual([0, 3, 6]);
    // Rounded up, as transformers does; never less than a step.
    expect(await evaluatedAt(7, 0.3)).toEqual([0, 3, 6, 7]);
    expect(await evaluatedAt(3, 0.1)).toEqual([0, 1, 2, 3]);
    expect(await evaluatedAt(4, 2)).toEqual([0, 2, 4]);
  });

  test('tell of stages that no step made better, also after a stop', async () => {
    const score = (x: number) => x;
    const stop = new AbortController();
    const stages = (onStep?: (i: number) => void) => [
      stage({ name: 'worse', eval_steps: 2, score, steps: 4 }),
      stage({
        name: 'better',
        eval_steps: 2,
        score,
        steps: 4,
        gradient: () => -1,
        ...(onStep ? { onStep } : {}),
      }),
    ];
    const stopped = await go(
      stages((i) => i === 1 && stop.abort()),
      { signal: stop.signal },
    );
    expect(stopped.status).toBe('interrupted');
    const result = await go(stages(), { resume: true });
    expect(result).toMatchObject({ status: 'finished', unchanged: ['worse'] });
  });
});

describe('a budget of tokens', () => {
  test('ends a stage with an evaluation, takes no step of a later one, and holds after a stop', async () => {
    // Better with every step: what the stage began with is worse.
    const stages = (onStep?: (i: number) => void) => [
      stage({ name: 'first', steps: 4, score: (x) => -x, ...(onStep ? { onStep } : {}) }),
      stage({ name: 'second', steps: 4, score: (x) => -x }),
      stage({ name: 'third', steps: 4 }),
    ];
    const whole = await go(stages(), { maxTokens: 6, loggingSteps: 100 });
    expect(whole).toMatchObject({ status: 'finished', step: 6, tokens: 6, stage: 3 });
    const logged = await lines();
    expect(logged.filter(({ loss, phase }) => loss !== undefined && phase === 'second').at(-1)).toMatchObject(
      {
        phase_step: 2,
        tokens: 6,
      },
    );
    expect(logged.filter(({ score, phase }) => score !== undefined && phase === 'second')).toHaveLength(2);
    expect(logged.at(-1)).toMatchObject({ phase: 'second', best_step: 2 });
    const ended = await x();
    await run.close();
    parameters.dispose();
    parameters = open();
    run = await createRunDirectory(join(folder, 'stopped'), { onExisting: 'refuse' });
    const stop = new AbortController();
    await go(
      stages((i) => i === 1 && stop.abort()),
      { maxTokens: 6, loggingSteps: 100, signal: stop.signal },
    );
    expect(await go(stages(), { maxTokens: 6, loggingSteps: 100, resume: true })).toEqual(whole);
    expect(await x()).toBe(ended);
    const inOrder = (all: Awaited<ReturnType<typeof lines>>) =>
      all.map(({ phase, phase_step }) => [phase, phase_step]);
    expect(inOrder(await lines())).toEqual(inOrder(logged));
  });

  test('keeps the start of a stage that none of its steps improved', async () => {
    const result = await go([stage({ steps: 9, score: (x) => x })], { maxTokens: 3 });
    expect(result).toMatchObject({ tokens: 3, unchanged: ['sft'] });
    expect(await x()).toBe(0);
  });
});

describe('steps that are not finite', () => {
  test('change nothing and are counted, and training continues', async () => {
    const result = await go([stage({ gradient: (i) => (i === 2 ? Number.NaN : 1) })]);
    expect(result).toMatchObject({ status: 'finished', step: 6 });
    expect(await x()).toBeCloseTo(-0.5, 5); // five steps of 0.1
    const logged = await lines();
    expect(logged.map(({ step }) => step)).toEqual([1, 2, 4, 5, 6]);
    expect(logged.at(-1)?.skipped).toBe(1);
  });

  test('are recognised by the loss alone', async () => {
    await go([stage({ loss: (i) => (i < 2 ? Number.POSITIVE_INFINITY : 0) })]);
    expect(await x()).toBeCloseTo(-0.4, 5);
  });

  test('stop the run if consecutive, with the name of the tensor and the last good checkpoint', async () => {
    const broken = stage({ gradient: (i) => (i >= 3 ? Number.NaN : 1), save_steps: 2, steps: 9 });
    await expect(go([broken])).rejects.toThrow(
      /3 steps in a row were not finite, last in the gradient of x; the checkpoint of step 4 is good/,
    );
    expect(await x()).toBeCloseTo(-0.3, 5);
  });
});

test.each([
  [6, [1, 2, 3, 4, 5, 6]],
  [25, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 25]],
  [110, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110]],
])('a stage of %d steps logs about ten lines at least', async (steps, logged) => {
  await go([stage({ steps })], { loggingSteps: 10 });
  expect((await lines()).filter((line) => 'loss' in line).map(({ step }) => step)).toEqual(logged);
});

describe('the best evaluation', () => {
  test('gives the parameters at the end of the stage and the start of the next', async () => {
    let start = Number.NaN;
    const score = (at: number) => -Math.abs(at + 0.2); // best after two steps
    const second = stage({ name: 'ppo', steps: 1, begin: () => void x().then((value) => (start = value)) });
    await go([stage({ eval_steps: 1, score }), second]);
    expect(start).toBeCloseTo(-0.2, 5);
  });

  test('does not depend on where the run was stopped', async () => {
    const score = (at: number) => -Math.abs(at + 0.2);
    const plan = (stopAt?: AbortController) => [
      stage({ eval_steps: 1, score, onStep: (i) => i === 4 && stopAt?.abort() }),
    ];
    const stop = new AbortController();
    const first = await go(plan(stop), { signal: stop.signal });
    expect(first).toMatchObject({ status: 'interrupted', step: 5 });
    await run.close();
    parameters.dispose();
    parameters = open();
    run = await openRunDirectory(join(folder, 'run'));
    const second = await go(plan(), { resume: true });
    expect(second).toMatchObject({ status: 'finished', step: 6 });
    expect(await x()).toBeCloseTo(-0.2, 5);
    const scores = (await lines()).filter((line) => 'score' in line);
    // The evaluation that the stop prevented was made after the resume, once.
    expect(scores.map(({ step }) => step)).toEqual([0, 1, 2, 3, 4, 5, 6]);
  });
});

describe('a stage that selects', () => {
  const evaluations = async () =>
    (await lines()).filter((line) => 'score' in line).map(({ phase, phase_step }) => [phase, phase_step]);

  test('ends with the parameters it began with where no step made them better', async () => {
    // AdamW moves x from 0 downwards; 0 is best.
    await go([stage({ score: (at) => at })]);
    expect(await x()).toBe(0);
    expect(await evaluations()).toEqual([
      ['sft', 0],
      ['sft', 6],
    ]);
    expect((await lines()).at(-1)).toMatchObject({ phase: 'sft', best_step: 0, best_score: 0 });
  });

  test.each([
    ['AUC, whatever the loss', (at: number) => ({ auc: -Math.abs(at + 0.2), loss: -at }), -0.2],
    ['the loss where there is no AUC', (at: number) => ({ loss: Math.abs(at + 0.4) }), -0.4],
    ['nothing else, and stays where it began', () => ({}), 0],
  ])('decides between evaluations of the same value by %s', async (_, beside, end) => {
    await go([stage({ eval_steps: 1, score: () => 0.5, beside })]);
    expect(await x()).toBeCloseTo(end, 5);
  });

  test('takes the value before what decides between equals', async () => {
    await go([stage({ eval_steps: 1, score: (at) => at, beside: (at) => ({ auc: -at }) })]);
    expect(await x()).toBe(0);
  });

  test('ends with its last parameters where there is nothing to validate on', async () => {
    await go([stage({ score: () => 0, eval_steps: 2, patience: 1 })], { validates: false });
    expect(await x()).toBeLessThan(0);
    expect(await evaluations()).toEqual([]);
  });

  test('goes on to its last parameters, and says so, where its metric cannot be told', async () => {
    const said = vi.spyOn(console, 'error').mockReturnValue();
    await go([stage({ eval_steps: 1, score: (at) => at, measures: () => false })]);
    expect(await x()).toBeCloseTo(-0.6, 5);
    expect(said.mock.calls.join('')).toContain(
      'sft: kept the parameters of step 6, the last one: score cannot be told on validation, so that nothing was selected by it',
    );
  });

  test('evaluates its start once, also where it was stopped before its first step', async () => {
    const stop = new AbortController();
    const plan = () => [
      stage({ score: (at) => at }),
      stage({ name: 'ppo', score: (at) => at, begin: () => stop.abort() }),
    ];
    expect(await go(plan(), { signal: stop.signal })).toMatchObject({ status: 'interrupted', stage: 1 });
    await run.close();
    run = await openRunDirectory(join(folder, 'run'));
    expect(await go(plan(), { resume: true })).toMatchObject({ status: 'finished' });
    expect((await evaluations()).slice(2)).toEqual([
      ['ppo', 0],
      ['ppo', 6],
    ]);
    expect(await x()).toBe(0);
  });

  test('ends early where evaluations bring nothing better, wherever it was stopped before', async () => {
    const score = (at: number) => -Math.abs(at + 0.2); // best after two steps
    const plan = (stopAt?: AbortController) => [
      stage({ eval_steps: 1, score, patience: 3, steps: 50, onStep: (i) => i === 3 && stopAt?.abort() }),
      stage({ name: 'ppo', steps: 1 }),
    ];
    const stop = new AbortController();
    expect(await go(plan(stop), { signal: stop.signal })).toMatchObject({ status: 'interrupted', step: 4 });
    await run.close();
    run = await openRunDirectory(join(folder, 'run'));
    expect(await go(plan(), { resume: true })).toMatchObject({ status: 'finished', step: 6 });
    expect(await evaluations()).toEqual([0, 1, 2, 3, 4, 5].map((step) => ['sft', step]));
  });

  test('waits for a better evaluation also where the last parameters are kept, wherever it was stopped', async () => {
    const score = (at: number) => -Math.abs(at + 0.4); // best after four steps
    const plan = (stopAt?: AbortController) => [
      stage({
        ...{ eval_steps: 1, score, patience: 2, steps: 50, load_best_model_at_end: false },
        onStep: (i) => i === 4 && stopAt?.abort(),
      }),
    ];
    const stop = new AbortController();
    expect(await go(plan(stop), { signal: stop.signal })).toMatchObject({ status: 'interrupted', step: 5 });
    await run.close();
    run = await openRunDirectory(join(folder, 'run'));
    expect(await go(plan(), { resume: true })).toMatchObject({ status: 'finished', step: 6 });
    expect(await x()).toBeCloseTo(-0.6, 5);
    expect(await evaluations()).toEqual([1, 2, 3, 4, 5, 6].map((step) => ['sft', step]));
  });

  test('does not take an evaluation that could not measure for one that is no better', async () => {
    const measures = (at: number) => at < -0.25; // from the third step on
    await go([stage({ eval_steps: 1, score: (at) => at, patience: 2, steps: 50, measures })]);
    expect(await evaluations()).toEqual([3, 4, 5].map((step) => ['sft', step]));
  });
});

test('arrays in the state of a stage lie in a file of their own and come back', async () => {
  const stop = new AbortController();
  const rows = Float64Array.from({ length: 1e5 }, (_, i) => Math.sin(i) * 1e-7);
  const state = {
    seen: 3,
    rollout: { lists: [rows, Float64Array.of(Number.NaN, -0)], empty: new Float64Array() },
  };
  let restored: unknown;
  const plan = () => [
    stage({
      onStep: (i) => i === 2 && stop.abort(),
      state: () => state,
      restore: (found) => {
        restored = found;
      },
    }),
  ];
  await go(plan(), { signal: stop.signal });
  const checkpoint = join(run.path, 'checkpoints', 'step-3');
  expect((await readFile(join(checkpoint, 'state.json'))).length).toBeLessThan(2000);
  expect((await readFile(join(checkpoint, 'state.safetensors'))).length).toBeGreaterThan(8e5);
  await go(plan(), { resume: true });
  expect(restored).toEqual(state);
});

test('a checkpoint is written at the end of each stage, and old ones beyond the limit are removed', async () => {
  await go([stage({ steps: 2 }), stage({ name: 'ppo', steps: 3, save_steps: 1 })]);
  expect((await readdir(join(run.path, 'checkpoints'))).sort()).toEqual([
    'step-2',
    'step-3',
    'step-4',
    'step-5',
  ]);
});

test('another batching or another instruction set is refused on resume', async () => {
  await go([stage({ steps: 2 })]);
  const other = { ...stage({ steps: 2 }), batching: { 'sft.tokens': 2 } };
  await expect(go([other], { resume: true })).rejects.toThrow(
    /was written with sft.tokens 1, and configuration and data now give 2; restore them or start a new run/,
  );
});

test('a stage of few steps says which keys give it more', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  await go([{ ...stage({ steps: 2 }), batching: { 'sft.tokens_per_step': 8 } }]);
  expect(said.mock.calls.flat().join('\n')).toMatch(
    /^sft takes 2 optimizer steps, which teach little: .*sft\.num_train_epochs.*sft\.tokens_per_step, now 8/m,
  );
  said.mockRestore();
});

test('a stage whose only step is that of its warm-up says that nothing is learned', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  await go([stage({ steps: 1, warmup_ratio: 0.1 })]);
  expect(said.mock.calls.flat().join('\n')).toContain(
    "Warning: sft has a single step, and it is the warm-up's first",
  );
  said.mockClear();
  expect(
    learningRateAt(0, { learning_rate: 1, lr_scheduler_type: 'linear', warmup_ratio: 0.1, totalSteps: 1 }),
  ).toBe(0);
  said.mockRestore();
});
