// Rounds of sampling, labelling and training on the shipped model, and the same labels as data of another run.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { formatSolvedReport, readSolvedReport } from '../../../../src/eval/solving/run-report.js';
import { completeRunConfig } from '../../../../src/methods/config.js';
import { resume, train } from '../../../../src/methods/run.js';
import { acceptedChanges } from '../../../../src/run/inputs.js';
import { artefact, runsFolder, smallRounds } from './small-rounds.js';

const at = runsFolder('step-kto');

const tiny = (more: Record<string, object> = {}) =>
  smallRounds('step_kto', {
    sampling: { problems_per_iteration: 6 },
    eval: { max_samples: 3 },
    eval_solving: { num_generations: 3, judge: 'oracle' },
    run: { logging_steps: 1 },
    ...more,
    step_kto: {
      iterations: 2,
      batch_size: 6,
      micro_batch_tokens: 512,
      learning_rate: 1e-3,
      save_steps: 1,
      ...more.step_kto,
    },
  });

it('makes M1 and M2, keeps every artefact, and resumes to the same bits', async () => {
  const whole = await train(tiny(), { output: at('whole') });
  expect(whole.status).toBe('finished');
  const { models, metrics } = JSON.parse(await readFile(join(whole.directory, 'eval.json'), 'utf8'));
  expect(Object.keys(models)).toEqual(['M0', 'M1', 'M2']);
  expect(models.M2.all.right_and_clean.interval).toHaveLength(2);
  expect(metrics['pass@1']).toBe(models.M2.all['pass@1'].value);
  // The groups of the problems have their metrics, as those of every method that solves.
  const [, ...groups] = Object.keys(models.M2);
  expect(groups.length).toBeGreaterThan(0);
  for (const group of groups) expect(metrics[`${group}.pass@1`]).toBe(models.M2[group]['pass@1'].value);
  const table = formatSolvedReport((await readSolvedReport(whole.directory))!, { boxed: false }).split('\n');
  expect(Math.max(...table.map((line) => line.length))).toBeLessThanOrEqual(100);
  const labels = await artefact(whole.directory, 'labels-1');
  expect(labels.length).toBeGreaterThan(3);
  for (const row of labels) for (const { label } of row.steps) expect([0, 1]).toContain(label);

  const stop = new AbortController();
  const write = vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    if (/^labels-2 step/.test(String(text))) stop.abort();
    return true;
  });
  const stopped = await train(tiny(), { output: at('stopped'), signal: stop.signal });
  write.mockRestore();
  expect(stopped.status).toBe('interrupted');
  expect((await resume(stopped.directory)).status).toBe('finished');
  for (const name of ['samples-2', 'labels-2', 'reference-2', 'eval-2'])
    expect(await artefact(stopped.directory, name)).toEqual(await artefact(whole.directory, name));

  // What a round labelled is data: of another run of this method without rounds, or of any baseline.
  const labelled = join(whole.directory, 'artefacts', 'labels-1.jsonl');
  const data = { train: labelled, validation: labelled, test: labelled, split: [1, 0, 0], max_length: 320 };
  const once = await train(tiny({ data, step_kto: { iterations: 0, batch_size: 4, beta_step: 0.3 } }), {
    output: at('once'),
  });
  expect(once.status).toBe('finished');
  const lines = (await readFile(join(once.directory, 'metrics.jsonl'), 'utf8')).trim().split('\n');
  const step = lines.map((line) => JSON.parse(line)).find(({ phase, loss }) => phase === 'step_kto' && loss);
  // Where policy and reference agree every value is one half: (1 + 1) / 2.
  expect(step.loss).toBeCloseTo(1, 5);
  expect(step).toMatchObject({ z0: 0, z0_step: 0, step_to_outcome_gradient: expect.any(Number) });
});

it('compares with M0 where every parameter is trained: a copy of the base', async () => {
  const more = {
    lora: 'none',
    sampling: { num_generations: 2, max_new_tokens: 60, problems_per_iteration: 6 },
    eval: { max_samples: 1 },
    eval_solving: { num_generations: 0 },
  };
  const run = async (reference: string) => {
    const step_kto = { reference, learning_rate: 1e-4, load_best_model_at_end: false };
    const config = tiny({ ...more, step_kto } as never);
    return (await train(config, { output: at(`full-${reference}`) })).directory;
  };
  const [m0, previous] = [await run('m0'), await run('previous')];
  // M1 is the same, and so is what it samples; in the second round the references part.
  for (const name of ['reference-1', 'labels-2'])
    expect(await artefact(m0, name)).toEqual(await artefact(previous, name));
  const second = await artefact(m0, 'reference-2');
  expect(second).not.toEqual(await artefact(previous, 'reference-2'));
  // What M0 says of those answers is what a run says that begins with it.
  const labelled = join(m0, 'artefacts', 'labels-2.jsonl');
  const data = { train: labelled, validation: labelled, test: labelled, split: [1, 0, 0], max_length: 320 };
  const once = await train(
    tiny({
      lora: 'none',
      data,
      step_kto: { iterations: 0, batch_size: 2, z0: 'zero', z0_step: 'zero' },
    } as never),
    {
      output: at('full-once'),
    },
  );
  const answers = (await artefact(m0, 'labels-2')).length;
  const sums = (rows: { sums: number[][] }[]) =>
    rows
      .slice(0, answers)
      .map((row) => JSON.stringify(row.sums))
      .sort();
  expect(sums(second)).toEqual(sums(await artefact(once.directory, 'reference-train')));
});

it.each(['step_kto', 'kto', 'dpo', 'solution_sft', 's3c', 'ppo'])(
  '%s refuses data that takes solutions apart: they would stand in training and test, or end where they were cut',
  (method) => {
    const of = (data: object) => () =>
      completeRunConfig({
        method,
        data: { source: 'word_problems', ...data },
        model: { base: 'word-problems' },
      });
    expect(of({ split_unit: 'sample' })).toThrow(`method ${method} learns whole solutions`);
    expect(of({ max_steps: 2 })).toThrow(/data.max_steps 2 cuts solutions for a judge/);
  },
);

it('a judge may get a larger budget when its run is resumed, and nothing else', () => {
  const inputs = (judge: object) => ({ config: Object.fromEntries(Object.entries(judge)), files: {} });
  const before = inputs({ 'judge.token_budget': 10, 'judge.model': 'a' });
  const larger = inputs({ 'judge.token_budget': 20, 'judge.model': 'a' });
  expect(acceptedChanges('run', before, larger).changed).toEqual(['judge.token_budget is 20 and was 10']);
  expect(() =>
    acceptedChanges('run', before, inputs({ 'judge.token_budget': 20, 'judge.model': 'b' })),
  ).toThrow(/began with another configuration: judge.model/);
});

it.each([
  [
    { judge: { kind: 'run', path: 'a' }, eval_solving: { judge: 'run', judge_run: 'a' } },
    /a labels the training data and would judge its own lessons/,
  ],
  [
    { judge: { kind: 'run', path: 'runs/../a/' }, eval_solving: { judge: 'run', judge_run: './a' } },
    /would judge its own lessons/,
  ],
  [
    { judge: { kind: 'run', path: 'a' }, eval_solving: { judge: 'run', judge_run: 'a/model' } },
    /a\/model labels the training data and would judge its own lessons/,
  ],
  [{ judge: { kind: 'file' } }, /judge.kind "file" needs judge.path/],
  [{ step_kto: { batch_size: 1 } }, /step_kto.batch_size is 1/],
  [{ judge: { kind: 'reference' } }, /generated problems have a plan in its place; use "oracle"/],
  [{ data: { train: 'x.jsonl' } }, /the oracle judges generated problems alone/],
] as const)('refuses %j', (more, message) => {
  expect(() => completeRunConfig(tiny(more as unknown as Record<string, object>))).toThrow(message);
});
