// Rounds of a model's own samples with the other objectives, and what makes a candidate right.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { completeRunConfig } from '../../../../src/methods/config.js';
import { train } from '../../../../src/methods/run.js';
import type { RunConfigInput } from '../../../../src/methods/table.js';
import type { StepRecord } from '../../../../src/records/record.js';
import { artefact, rowsOf, runsFolder, smallRounds } from './small-rounds.js';

const at = runsFolder('rounds');
beforeAll(() => {
  vi.spyOn(process.stderr, 'write').mockImplementation(() => true);
});

const tiny = (method: string, { section = {}, judge = {}, evaluation = {} } = {}) =>
  smallRounds(method, {
    sampling: { num_generations: 6, problems_per_iteration: 8, dedupe: false },
    judge,
    eval: { max_samples: 2 },
    eval_solving: { num_generations: 2, judge: 'oracle', ...evaluation },
    [method]: { iterations: 1, batch_size: 4, micro_batch_tokens: 512, ...section },
  });

const made = async (config: RunConfigInput, name: string) => {
  const output = at(name);
  expect((await train(config, { output, shareStages: at('stages') })).status).toBe('finished');
  return {
    labels: await artefact<StepRecord>(output, 'labels-1'),
    samples: await artefact(output, 'samples-1'),
    log: await rowsOf(output, 'metrics.jsonl'),
    report: JSON.parse(await readFile(join(output, 'eval.json'), 'utf8')),
  };
};

describe('rounds of another objective', () => {
  it.each(['rft', 'kto', 'dpo', 'step_dpo', 'full_step_dpo', 'simpo', 'orpo'])(
    '%s learns from the samples of the base and is judged beside it',
    async (method) => {
      const { log, report, samples } = await made(tiny(method), method);
      const losses = log.filter(({ phase, loss }) => phase === `${method}-1` && loss !== undefined);
      expect(losses.length).toBeGreaterThan(0);
      for (const { loss, grad_norm } of losses) {
        expect(Number.isFinite(loss)).toBe(true);
        expect(grad_norm).toBeGreaterThan(0);
      }
      expect(Object.keys(report.models)).toEqual(['M0', 'M1']);
      // What chose the parameters is the share that the report counts again.
      const chosen = log.flatMap(({ pass_at_1 }) => (pass_at_1 === undefined ? [] : [pass_at_1]));
      expect(chosen.length).toBeGreaterThan(0);
      expect(Math.max(...chosen)).toBe(report.metrics_validation['pass@1']);
      expect(samples).toHaveLength(48);
      // Rejection sampling and the odds ratio ask no reference.
      const references = log.some(({ phase }) => phase === 'reference-1');
      expect(references).toBe(!['rft', 'simpo', 'orpo'].includes(method));
    },
  );

  it('has the same candidates whatever the objective', async () => {
    const [dpo, rft] = [await made(tiny('dpo'), 'same-dpo'), await made(tiny('rft'), 'same-rft')];
    expect(dpo.samples).toEqual(rft.samples);
  });

  it('is refused where the samples are nothing to learn from', () => {
    expect(() => completeRunConfig(tiny('solution_sft'))).toThrow(
      /method solution_sft has no rounds: it learns every answer, its own mistakes among them; method rft/,
    );
    expect(() => completeRunConfig(tiny('implicit_prm'))).toThrow(/it trains a reward model/);
  });

  it('refuses what it would leave unread', () => {
    const once = (more: object) => tiny('rft', { section: { iterations: 0 }, ...more });
    expect(() => completeRunConfig(once({ judge: { flip: 0.1 } }))).toThrow(
      /judge\.flip is about candidates of a round, and rft\.iterations is 0/,
    );
    expect(() => completeRunConfig(tiny('rft', { judge: { outcome: 'clean', kind: 'none' } }))).toThrow(
      /judge\.outcome "clean" asks for labels of steps/,
    );
    for (const data of [{ labelled: 3 }, { label_noise: 0.2 }, { balance: 'upsample' }]) {
      const config = {
        ...(once({}) as object),
        data: { source: 'word_problems', ...data },
      } as unknown as RunConfigInput;
      expect(() => completeRunConfig(config)).toThrow(/data\.(labelled|label_noise|balance) .*method rft/);
    }
  });
});

describe('what makes a candidate right', () => {
  it('is its answer, or also that no step is wrong; labels can be turned round', async () => {
    const plain = await made(tiny('rft'), 'plain');
    const clean = await made(tiny('rft', { judge: { outcome: 'clean' } }), 'clean');
    const right = (rows: readonly StepRecord[]) => rows.map(({ outcome }) => outcome);
    const expected = plain.labels.map(({ outcome, steps }) =>
      outcome === 1 && steps.every(({ label }) => label !== 0) ? 1 : 0,
    );
    expect(right(clean.labels)).toEqual(expected);
    expect(expected).not.toEqual(right(plain.labels));

    const turned = await made(tiny('rft', { judge: { flip: 0.3 } }), 'turned');
    const labels = (rows: readonly StepRecord[]) =>
      rows.flatMap(({ steps }) => steps.map(({ label }) => label));
    const [before, after] = [labels(plain.labels), labels(turned.labels)];
    const share = after.filter((label, i) => label !== before[i]).length / before.length;
    expect(share).toBeGreaterThan(0.15);
    expect(share).toBeLessThan(0.45);
    expect(right(turned.labels)).toEqual(right(plain.labels));
  });
});

it('solves problems before and after one training on given answers', async () => {
  const config = tiny('solution_sft', { section: { iterations: 0 }, evaluation: { solve: true } });
  const output = at('sft');
  expect((await train(config, { output })).status).toBe('finished');
  const { models, metrics, metrics_validation } = JSON.parse(
    await readFile(join(output, 'eval.json'), 'utf8'),
  );
  expect(Object.keys(models)).toEqual(['M0', 'M1']);
  expect(metrics['pass@1']).toBe(models.M1.all['pass@1'].value);
  expect(models.M1.all.right_and_clean.interval).toHaveLength(2);
  expect(metrics_validation['pass@1']).toEqual(expect.any(Number));
});
