// Stages that make rows, and stages that are prepared from those rows: order, resume, seals, refusals.
import { appendFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest';
import { TrainableParameters } from '../../src/autograd/parameters.js';
import { createRunDirectory, openRunDirectory, type RunDirectory } from '../../src/run/directory.js';
import { readLog } from '../../src/run/log-file.js';
import { AdamW } from '../../src/train/adamw.js';
import { runStages } from '../../src/train/engine.js';
import type { LaterStage, MakingStage, StageEntry, TrainingStage } from '../../src/train/stage.js';
import { applyGradients } from '../../src/train/update.js';
import { openTest } from '../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

let folder: string;
let run: RunDirectory;
let parameters: TrainableParameters;
const openParameters = () =>
  new TrainableParameters(device, [{ name: 'x', shape: [1], init: new Float32Array(1) }]);
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-making-'));
  run = await createRunDirectory(join(folder, 'run'), { onExisting: 'refuse' });
  await run.writeConfig('method: sft\n');
  parameters = openParameters();
});
afterEach(async () => {
  await run.close();
  parameters.dispose();
  await rm(folder, { recursive: true, force: true });
});

/** Two rows a step, from a running sum that a resumed stage must restore. */
function making(name: string, steps: number, onStep: (step: number) => void = () => {}): MakingStage {
  return {
    name,
    steps,
    artefact: name,
    settings: { save_steps: 2, save_total_limit: 3 },
    batching: { [`${name}.rows`]: 2 },
    open() {
      let sum = 0;
      return {
        async begin() {},
        async step(index) {
          onStep(index);
          const [x] = await parameters.values.readFloats();
          sum += index + 1;
          return { rows: [{ sum, x }, { index }], metrics: { sum }, shown: {}, tokens: 3 };
        },
        state: () => sum,
        restore: (state) => {
          sum = state as number;
        },
        dispose() {},
      };
    },
  };
}

/** Moves x once for each row of an artefact. */
function learning(name: string, artefact: string, onStep: (step: number) => void = () => {}): LaterStage {
  return {
    name,
    async prepare(): Promise<TrainingStage> {
      const rows = readLog(run.artefact(artefact).path);
      return {
        name,
        steps: rows.length,
        settings: { eval_steps: 0, save_steps: 2, save_total_limit: 3 },
        batching: { [`${name}.rows`]: rows.length },
        open() {
          const settings = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 0 };
          const optimizer = new AdamW(parameters, settings);
          return {
            optimizers: { [name]: optimizer },
            trains: parameters,
            async begin() {},
            async step(index) {
              onStep(index);
              parameters.grads.write(new Float32Array([Number(rows[index]?.sum ?? 1)]));
              await applyGradients(optimizer, 0.1, {});
              return { metrics: {}, shown: {}, tokens: 1 };
            },
            dispose: () => optimizer.dispose(),
          };
        },
      };
    },
  };
}

/** Two rounds of making and learning. */
const rounds = (onStep: () => void): StageEntry[] => [
  making('made-1', 3, onStep),
  learning('learned-1', 'made-1', onStep),
  making('made-2', 3, onStep),
  learning('learned-2', 'made-2', onStep),
];

const go = (stages: readonly StageEntry[], more: { resume?: boolean; signal?: AbortSignal } = {}) =>
  runStages(
    stages,
    { policy: parameters },
    {
      device,
      run,
      signal: more.signal ?? new AbortController().signal,
      resume: more.resume ?? false,
      loggingSteps: 1,
      maxSkipped: 3,
    },
  );

async function reopen(): Promise<void> {
  await run.close();
  parameters.dispose();
  parameters = openParameters();
  run = await openRunDirectory(join(folder, 'run'));
}

async function outcome() {
  const text = (name: string) => readFile(run.artefact(name).path, 'utf8');
  const [x] = await parameters.values.readFloats();
  return { x, first: await text('made-1'), second: await text('made-2') };
}

test('rows are kept in order, and later stages are prepared from them', async () => {
  expect(await go(rounds(() => {}))).toMatchObject({ status: 'finished', step: 18, tokens: 12 });
  expect(readLog(run.artefact('made-1').path)).toEqual([
    { sum: 1, x: 0 },
    { index: 0 },
    { sum: 3, x: 0 },
    { index: 1 },
    { sum: 6, x: 0 },
    { index: 2 },
  ]);
  const [second] = readLog(run.artefact('made-2').path);
  expect(second?.x).not.toBe(0);
  const phases = readLog(run.metrics.path);
  expect(phases.filter(({ rows }) => rows !== undefined)).toEqual([
    { step: 3, phase: 'made-1', phase_step: 3, rows: 6 },
    { step: 12, phase: 'made-2', phase_step: 3, rows: 6 },
  ]);
});

test('what is to be known of rows is said once, when the last of them are made', async () => {
  const said: string[] = [];
  const write = vi.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(String(text)) > 0);
  try {
    await go([{ ...making('made', 3), note: '2 of 8 were left out' }]);
  } finally {
    write.mockRestore();
  }
  const lines = said.join('').split('\n');
  expect(lines.filter((line) => line === 'made: 2 of 8 were left out')).toHaveLength(1);
  expect(lines.indexOf('made: 2 of 8 were left out')).toBeGreaterThan(
    lines.findIndex((line) => line.startsWith('made step 3/3')),
  );
});

test('a run that is stopped or killed before any step ends with the same rows and numbers', async () => {
  await go(rounds(() => {}));
  const whole = await outcome();
  for (let at = 0; at < 18; at++) {
    await run.close();
    await rm(join(folder, 'run'), { recursive: true });
    run = await createRunDirectory(join(folder, 'run'), { onExisting: 'refuse' });
    await run.writeConfig('method: sft\n');
    await reopen();
    let steps = 0;
    if (at % 2 === 0) {
      const stop = new AbortController();
      const count = () => (steps++ === at ? stop.abort() : undefined);
      expect(await go(rounds(count), { signal: stop.signal })).toMatchObject({ status: 'interrupted' });
    } else {
      const fail = () => {
        if (steps++ === at) throw new Error('killed');
      };
      await expect(go(rounds(fail))).rejects.toThrow('killed');
    }
    await reopen();
    expect(
      await go(
        rounds(() => {}),
        { resume: true },
      ),
    ).toMatchObject({ status: 'finished', step: 18 });
    expect(await outcome(), `stopped at step ${at}`).toEqual(whole);
  }
});

test('an artefact that has been changed is refused', async () => {
  await go([making('made-1', 3), learning('learned-1', 'made-1')]);
  const { path } = run.artefact('made-1');
  await reopen();
  const text = await readFile(path, 'utf8');
  await rm(path);
  await appendFile(path, text.replace('"sum":3', '"sum":4'));
  await expect(go([making('made-1', 3), learning('learned-1', 'made-1')], { resume: true })).rejects.toThrow(
    /made-1\.jsonl was changed after the run wrote it/,
  );
});

test('another batching of a stage that was prepared late is refused on resume', async () => {
  await go([making('made-1', 3), learning('learned-1', 'made-1')]);
  await reopen();
  const other: LaterStage = {
    name: 'learned-1',
    async prepare() {
      const stage = await learning('learned-1', 'made-1').prepare(new AbortController().signal);
      return { ...stage, batching: { 'learned-1.rows': 5 } };
    },
  };
  run.rewind(undefined);
  const stop = new AbortController();
  let steps = 0;
  const stopping = learning('learned-1', 'made-1', () => (steps++ === 2 ? stop.abort() : undefined));
  await go([making('made-1', 3), stopping], { signal: stop.signal });
  await expect(go([making('made-1', 3), other], { resume: true })).rejects.toThrow(
    /was written with learned-1\.rows 6, and configuration and data now give 5/,
  );
});

test('another list of stages is refused on resume', async () => {
  const stop = new AbortController();
  let steps = 0;
  const first = making('made-1', 3, () => (steps++ === 1 ? stop.abort() : undefined));
  await go([first, learning('learned-1', 'made-1')], { signal: stop.signal });
  await reopen();
  await expect(go([making('made-1', 3), making('made-2', 3)], { resume: true })).rejects.toThrow(
    /written by a run of the stages made-1, learned-1, and the configuration now gives made-1, made-2/,
  );
});

test('lost rows are reported, and other files in the folder are not touched', async () => {
  const stop = new AbortController();
  let steps = 0;
  const first = making('made-1', 3, () => (steps++ === 2 ? stop.abort() : undefined));
  await go([first], { signal: stop.signal });
  const { path } = run.artefact('made-1');
  const notes = join(run.path, 'artefacts', 'notes.txt');
  await writeFile(notes, 'mine');
  await mkdir(join(run.path, 'artefacts', 'more'));
  await writeFile(path, '');
  await reopen();
  await expect(go([making('made-1', 3)], { resume: true })).rejects.toThrow(
    /made-1\.jsonl has 0 bytes, and the run had written \d+: rows were lost since/,
  );
  expect(await readFile(notes, 'utf8')).toBe('mine');
});

test('a missing artefact is reported as missing', async () => {
  await go([making('made-1', 3)]);
  const { path } = run.artefact('made-1');
  await reopen();
  await rm(path);
  await expect(go([making('made-1', 3)], { resume: true })).rejects.toThrow(/made-1\.jsonl/);
});

test('two stages with the same name or artefact are refused, and so is a name that is a path', async () => {
  await expect(go([making('made', 1), making('made', 1)])).rejects.toThrow(
    'two stages of a run share the stage name made; number them',
  );
  await expect(go([making('made', 1), { ...making('again', 1), artefact: 'made' }])).rejects.toThrow(
    'two stages of a run share the artefact name made',
  );
  await expect(go([{ ...making('made', 1), artefact: '../metrics' }])).rejects.toThrow(
    'an artefact is named by letters, digits, dots and dashes, found "../metrics"',
  );
});
