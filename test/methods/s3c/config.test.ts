// What configurations are refused, and which problems an evaluation asks.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import { type S3cRunConfig, s3cConfig } from '../../../src/methods/s3c/config.js';
import { eachOnce, heldOutSteps } from '../../../src/methods/s3c/evaluate-run.js';
import { SampleCollector } from '../../../src/methods/s3c/samples.js';
import type { Step, StepRecord } from '../../../src/records/record.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

const config = (more: object) =>
  completeRunConfig({ method: 's3c', data: { source: 'word_problems' }, ...more } as never);

it('refuses choices among samples by their wrong step where they have none', () => {
  const corrections = { shape: 'post_hoc' };
  expect(config({ corrections })).toMatchObject({ s3c: { variant: 'step', clean_ratio: 'as_is' } });
  expect(() => config({ corrections, s3c: { variant: 'clean' } })).toThrow(/s3c\.variant tells samples by/);
  expect(() => config({ corrections, s3c: { clean_ratio: 1 } })).toThrow(/s3c\.clean_ratio tells samples by/);
});

it('refuses clean solutions counted by samples with a wrong step that are not trained on', () => {
  expect(() => config({ s3c: { variant: 'clean', clean_ratio: 1 } })).toThrow(
    's3c.clean_ratio 1 counts solutions by the samples with a wrong step, of which s3c.variant "clean" trains none; set it to as_is',
  );
  expect(() => config({ s3c: { variant: 'clean' } })).not.toThrow();
});

it('says where there is no clean solution to take as many of as were asked for', () => {
  const said = vi.spyOn(console, 'error').mockReturnValue();
  const own = config({ corrections: 'none', s3c: { clean_ratio: 2 } }) as S3cRunConfig;
  const collector = new SampleCollector(own, byteTokenizer());
  const step = (text: string, kind: Step['kind']): Step => ({ text, label: null, kind });
  const steps = [step('2 + 2 = 5', 'wrong'), step('No.', 'reflection'), step('2 + 2 = 4', 'improvement')];
  collector.add('train', { problem: 'What is 2 + 2?', steps });
  expect(collector.finish().train.length).toBe(1);
  expect(said.mock.calls).toEqual([
    [
      'Warning: s3c.clean_ratio 2 asks for 2 solutions without a wrong step beside 1 sample with one, and the training data has none',
    ],
  ]);
});

it('refuses exact arithmetic where what follows a wrong step is needed', () => {
  const validate = { by: 'reference' };
  expect(() => config({ corrections: { validate } })).not.toThrow();
  expect(() => config({ corrections: { validate, shape: 'instance' } })).toThrow(
    /corrections\.shape "instance" needs continuations/,
  );
  expect(() => config({ corrections: { validate, sampler: 'mcts' } })).toThrow(
    /corrections\.sampler "mcts" needs continuations/,
  );
});

it('names the keys of corrections that others leave without effect', () => {
  const unread = (corrections: object) =>
    [...s3cConfig.unread!(config({ corrections }) as S3cRunConfig)].map(({ message }) => message);
  expect(unread({})).toEqual([]);
  expect(unread({ sampler: 'mcts', mcts: { width: 4 }, validate: { temperature: 0.5 } })).toEqual([]);
  const drawn = { sample: { n: 8 }, validate: { k: 4 }, positions: 2, max_per_position: 3 };
  expect(unread({ ...drawn, mcts: { width: 4 } })).toEqual([
    'corrections.mcts.width has no effect: corrections.sampler is steps',
  ]);
  expect(unread({ ...drawn, sampler: 'mcts' })).toEqual([
    'corrections.positions has no effect: corrections.sampler is mcts',
    'corrections.max_per_position has no effect: corrections.sampler is mcts',
    'corrections.sample.n has no effect: corrections.sampler is mcts',
    'corrections.validate.k has no effect: corrections.sampler is mcts',
  ]);
  expect(unread({ validate: { by: 'reference', k: 4, top_p: 0.9 } })).toEqual([
    'corrections.validate.k has no effect: corrections.validate.by is reference',
    'corrections.validate.top_p has no effect: corrections.validate.by is reference',
  ]);
  expect(unread({ shape: 'post_hoc', after_improvement: 'repeat_true_step' })).toEqual([
    'corrections.after_improvement has no effect: corrections.shape is post_hoc',
  ]);
  const teacher = { model: 'm', attempts: 5 };
  expect(unread({ annotate: { ...teacher, url: 'http://127.0.0.1:1' } })).toEqual([]);
  expect(unread({ annotate: teacher })).toEqual([
    'corrections.annotate.model has no effect: corrections.annotate.url names no teacher',
    'corrections.annotate.attempts has no effect: corrections.annotate.url names no teacher',
  ]);
  expect(unread({ annotate: { teacher: 'oracle', url: 'http://127.0.0.1:1' } })).toEqual([
    'corrections.annotate.url has no effect: corrections.annotate.teacher is oracle',
  ]);
});

it('refuses a temperature that the server does not take', () => {
  const server = { url: 'http://127.0.0.1:8000', model: 'base' };
  const hot = (kind: string) => ({ server: { ...server, kind }, sample: { temperature: 2.5 } });
  expect(() => config({ corrections: hot('steptrain') })).not.toThrow();
  expect(() => config({ corrections: hot('vllm') })).toThrow(
    /corrections\.server\.kind "vllm" takes temperatures up to 2; lower corrections\.sample\.temperature, found 2\.5/,
  );
  expect(() => config({ corrections: { annotate: { temperature: 2.1 } } })).toThrow(/annotate\.temperature/);
});

it('asks a problem once, however many solutions of it there are', () => {
  const problems = ['What is 2 + 2?', 'What is  2 + 2?', 'What is 3?'].map((problem) => ({
    problem,
    answer: '4',
  }));
  expect(eachOnce(problems)).toHaveLength(2);
  // The first of a problem counts, as everywhere.
  const twice = [...problems, { problem: 'What is 3?', answer: '3' }];
  expect(eachOnce(twice).map(({ answer }) => answer)).toEqual(['4', '4']);
});

it('refuses a file of prefixes without one', async () => {
  const file = join(temporaryDirectory(), 'rows.jsonl');
  writeFileSync(file, JSON.stringify({ problem: '1?', steps: [{ text: '1', label: 1 }] }));
  await expect(heldOutSteps('run', file)).rejects.toThrow(
    'has no held-out wrong step: none of its 1 record is a solution with a correction',
  );
});

it('asks the problems of the test part whose solutions have no correction, too', () => {
  const collector = new SampleCollector(config({ corrections: 'none' }) as S3cRunConfig, byteTokenizer());
  const step = (text: string, kind: Step['kind'] = 'normal'): Step => ({ text, label: null, kind });
  const record = (problem: string, steps: Step[]): StepRecord => ({ problem, gold_answer: '4', steps });
  const corrected = [step('2 + 2 = 5', 'wrong'), step('No.', 'reflection'), step('2 + 2 = 4', 'improvement')];
  collector.add('test', record('What is 2 + 2?', corrected));
  collector.add('test', record('What is 2 + 2?', [step('2 + 2 = 4')]));
  collector.add('test', record('What is 3 + 1?', [step('3 + 1 = 4')]));
  const { test, problems } = collector.finish();
  expect([test.length, problems.map(({ problem }) => problem)]).toEqual([
    1,
    ['What is 2 + 2?', 'What is 3 + 1?'],
  ]);
});
