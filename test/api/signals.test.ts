// Every asynchronous call of the API ends within seconds of its signal, with the signal's reason, and holds nothing afterwards.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  evaluate,
  evaluateSolving,
  judgeSolutions,
  judgeSteps,
  loadModel,
  type Model,
  mergeAdapter,
  type Problem,
  type StepRecord,
  serve,
  train,
} from '../../src/entries/index.js';
import { loadDecoder, saveDecoder } from '../../src/entries/ops.js';
import { wordProblems } from '../../src/entries/train.js';
import { baseDirectory } from '../../src/models/base.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';
import { goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';

const device = openTest(undefined, { threads: 1 });
let model: Model;
let judge: Model;
let classifier: Model;
let tokenizer: Tokenizer;
let folder: string;
let problems: Problem[];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-signals-'));
  vi.spyOn(console, 'error').mockImplementation(() => {});
  model = await loadModel(device, 'word-problems');
  tokenizer = await loadTokenizer(baseDirectory('word-problems'));
  const { directory } = await train(
    {
      method: 'sft',
      model: { base: 'word-problems' },
      lora: { r: 2 },
      data: { source: 'word_problems', word_problems: { samples: 40 }, max_length: 384 },
      sft: { max_steps: 1 },
      run: { device: 'cpu', threads: 1 },
    } as never,
    { output: join(folder, 'judge') },
  );
  judge = await loadModel(device, directory);
  classifier = await loadModel(device, goldenDirectory('reward/outcome'));
  // The first forward of a model makes constants that stay.
  for (const each of [model, judge]) await each.score([[1, 2]]);
  await classifier.classify([[1, 2]]);
  problems = [...wordProblems({ samples: 64, seed: 3 })].map((generated) => ({
    problem: generated.problem,
    answer: generated.answer,
    generated,
  }));
});
afterAll(() => {
  vi.restoreAllMocks();
  for (const each of [model, judge, classifier]) each.dispose();
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const sequence = Array.from({ length: 300 }, (_, i) => 3 + (i % 40));
const many = Array.from({ length: 4_000 }, () => sequence);
const steps = Array.from({ length: 12 }, (_, i) => `Tom: ${i} + 1 = ${i + 1}`);
const solutions = Array.from({ length: 2_000 }, (_, i) => ({ problem: `Tom has ${i} apples.`, steps }));
const records = solutions.map(
  ({ problem }): StepRecord => ({
    problem,
    steps: steps.map((text) => ({ text, label: 1, kind: 'normal' })),
  }),
);
const pupil = goldenDirectory('qwen2');

/** Calls that would take far longer than the test may. */
const CALLS: Readonly<Record<string, (signal: AbortSignal, output: string) => Promise<unknown>>> = {
  loadModel: (signal) => loadModel(device, 'word-problems', { signal }),
  loadDecoder: (signal) => loadDecoder(device, baseDirectory('word-problems'), { signal }),
  saveDecoder: (signal, output) => saveDecoder(model.decoder, output, { signal }),
  mergeAdapter: (signal, output) =>
    mergeAdapter(device, pupil, join(pupil, 'adapter'), output, { check: [[1, 2, 3]], signal }),
  'model.score': (signal) => model.score(many, { signal }),
  'model.classify': (signal) =>
    classifier.classify(
      many.map((ids) => ids.slice(0, 60)),
      { signal },
    ),
  judgeSteps: (signal) => judgeSteps(judge, 'Tom has 1 apple.', steps, { signal }),
  judgeSolutions: (signal) => judgeSolutions(judge, solutions, { signal }),
  evaluate: (signal) => evaluate(judge, records, { signal }),
  evaluateSolving: (signal) =>
    evaluateSolving(model, tokenizer, problems, { n: 64, maxNewTokens: 200, signal }),
};

describe.each(Object.entries(CALLS))('%s', (_, call) => {
  it.each(['before', 'while it works'])('ends by a signal that fires %s', async (when) => {
    const held = device.stats().liveBytes;
    const output = mkdtempSync(join(folder, 'output-'));
    const reason = new Error('enough');
    const stop = new AbortController();
    if (when === 'before') stop.abort(reason);
    const ended = call(stop.signal, output).then(
      () => 'done',
      (error: unknown) => error,
    );
    await new Promise((resolve) => setImmediate(resolve));
    stop.abort(reason);
    expect(await ended).toBe(reason);
    await device.synchronize();
    expect(device.stats().liveBytes).toBe(held);
    expect(readdirSync(output)).toEqual([]);
  });
});

describe.each([
  ['whose batches are left', 8, 500],
  ['whose only batch runs', 1, 1000],
])('model.score of sequences %s', (_, count, length) => {
  it('rejects with its reason after the batch under way', async () => {
    const reason = new Error('enough');
    const stop = new AbortController();
    const forward = vi.spyOn(model.decoder, 'forward');
    const ids = Array.from(
      { length: Math.min(length, model.decoder.config.maxPositions) },
      (_, i) => 3 + (i % 40),
    );
    const ended = model.score(
      Array.from({ length: count }, () => ids),
      { signal: stop.signal },
    );
    setImmediate(() => stop.abort(reason));
    await expect(ended).rejects.toBe(reason);
    expect(forward).toHaveBeenCalledTimes(1);
    forward.mockRestore();
  });
});

describe('serve', () => {
  const served = () => ({ model, tokenizer, name: 'pupil' }) as Parameters<typeof serve>[0];

  it('is not begun by a signal that has fired', async () => {
    const reason = new Error('enough');
    await expect(serve(served(), { port: 0, signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  });

  it('closes with its signal, in the middle of an answer', async () => {
    const held = device.stats().liveBytes;
    const stop = new AbortController();
    const server = await serve(served(), { port: 0, signal: stop.signal, cacheBytes: 64 << 20 });
    const body = { model: 'pupil', prompt: 'Tom has', max_tokens: 400, stream: true, ignore_eos: true };
    const response = await fetch(`${server.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const reader = response.body!.getReader();
    await reader.read();
    stop.abort();
    while (!(await reader.read().catch(() => ({ done: true }))).done);
    await server.close(0);
    await expect(fetch(`${server.url}/v1/models`)).rejects.toThrow();
    expect(device.stats().liveBytes).toBe(held);
  });
});
