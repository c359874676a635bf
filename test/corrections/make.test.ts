import { describe, expect, it } from 'vitest';
import { likelihoodWarning, type SampledModel } from '../../src/corrections/likelihood.js';
import { makeSamples, reaches } from '../../src/corrections/make.js';
import { makeTreeSamples } from '../../src/corrections/mcts.js';
import type { SourceSolution } from '../../src/corrections/solution.js';
import { Tally } from '../../src/corrections/tally.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { tools } from './fake-source.js';

const solution = (number = 0): SourceSolution => ({
  number,
  problem: '2+3+4?',
  steps: ['2+3=5', '5+4=9', 'The answer is: 9'],
  answer: '9',
  record: { problem: '2+3+4?', steps: [] },
});

/** Adds wrongly at the first step in one of four ways, goes on from what it has written, and knows nothing else. */
const pupil = (prompt: string, sample: number): string => {
  const lines = prompt.trimEnd().split('\n').slice(1);
  const last = lines.at(-1);
  if (last === undefined) return `${['2+3=6', '2+3=5', '2+3= 6 ', '2 + 3 = 5'][sample % 4]}\n`;
  const result = /=\s*(\d+)/.exec(last)?.[1];
  if (lines.length === 1) return `${result}+4=${Number(result) + 4}\nThe answer is: ${Number(result) + 4}`;
  return lines.length === 2 ? `The answer is: ${result}` : '';
};

const ONE = { positions: 1, sample: { n: 4 }, validate: { k: 2 } };
const at0 = { ...ONE, positions: 'all' };

it('a continuation that was cut off reaches nothing', () => {
  const rest = { text: '5+4=9\nThe answer is: 9', ended: true };
  expect(reaches(solution(), '2+3=5', rest)).toBe(true);
  expect(reaches(solution(), '2+3=5', { ...rest, ended: false })).toBe(false);
});

describe('making samples', () => {
  it('keeps a step from which no continuation reaches the answer, once, and corrects it', async () => {
    const tally = new Tally();
    const records = await makeSamples([solution()], tools(pupil, at0), tally);
    expect(records?.map(({ steps }) => steps.map(({ text, kind, label }) => [text, kind, label]))).toEqual([
      [
        ['2+3=5', 'normal', 1],
        ['5+4=9', 'normal', 1],
        ['The answer is: 9', 'normal', 1],
      ],
      [
        ['2+3=6', 'wrong', 0],
        ['this does not follow.', 'reflection', null],
        ['2+3=5', 'improvement', 1],
        ['5+4=9', 'normal', 1],
        ['The answer is: 9', 'normal', 1],
      ],
    ]);
    expect(tally.state.counts).toEqual({
      solutions: 1,
      positions: 3,
      candidates: 12,
      'candidates: the right step': 10,
      'candidates: repeated': 1,
      'positions tested': 1,
      'positions that the right step does not solve': 0,
      'candidates tested': 1,
      'wrong steps': 1,
      samples: 1,
      'solutions with samples': 1,
    });
  });

  it('counts wrong steps that the model finds less likely than the right one, and warns where they are most', async () => {
    const scored: number[][] = [];
    /** log p of `2+3=6` against that of `2+3=5`; what stands before a step does not count. */
    const scorerOf = (wrong: number, right: number) => ({
      decoder: { config: { maxPositions: 100 } },
      score: async (sequences: readonly number[][]) =>
        sequences.map((ids) => {
          scored.push(ids);
          const last = byteTokenizer().decode(ids).endsWith('=6\n') ? wrong : right;
          return { logprobs: Float32Array.from(ids.slice(1), (_, t) => (t === 0 ? -50 : t > 5 ? last : 0)) };
        }),
    });
    const counted = async (wrong: number, right: number) => {
      const tally = new Tally();
      const scorer = scorerOf(wrong, right) as unknown as SampledModel;
      await makeSamples([solution()], { ...tools(pupil, at0), scorer }, tally);
      expect(tally.get('wrong steps compared')).toBe(1);
      return likelihoodWarning(tally);
    };
    expect(await counted(-1, -2)).toBeUndefined();
    expect(scored.map((ids) => byteTokenizer().decode(ids))).toEqual(['2+3+4?\n2+3=6\n', '2+3+4?\n2+3=5\n']);
    expect(await counted(-2, -1)).toMatch(
      /finds 1 of 1 wrong steps \(100 %\) less likely than the right step .* lower corrections\.sample\.temperature/,
    );
  });

  it('discards a step from which the answer is reached all the same', async () => {
    const recovers = (prompt: string, sample: number) =>
      prompt.endsWith('\n') && prompt.split('\n').length === 3 && sample === 1
        ? '5+4=9\nThe answer is: 9'
        : pupil(prompt, sample);
    const tally = new Tally();
    const records = await makeSamples([solution()], tools(recovers, at0), tally);
    expect(records).toHaveLength(1);
    expect(tally.get('candidates tested')).toBe(1);
    expect(tally.get('wrong steps')).toBe(0);
  });

  it('knows wrong steps by exact arithmetic, where it shall, and draws nothing for that', async () => {
    const hopeless = (prompt: string, sample: number) =>
      prompt.split('\n').length === 2 ? ['2+3=6', '2+3=5', '2+2=4', 'So.'][sample % 4] : 'The answer is: 9';
    const tally = new Tally();
    const by = { ...at0, max_per_position: 4, validate: { by: 'reference' } };
    const records = await makeSamples([solution()], tools(hopeless as typeof pupil, by), tally);
    // 4 is a number of the problem, and of words nothing is known.
    expect(records?.slice(1).map(({ steps }) => steps[0]?.text)).toEqual(['2+3=6']);
    expect(tally.state.counts).toMatchObject({ 'candidates tested': 3, 'wrong steps': 1, samples: 1 });
    expect(tally.get('positions tested')).toBe(0);
  });

  it('passes over positions that the model cannot solve with the right step, unless told not to', async () => {
    const weak = (prompt: string, sample: number) =>
      prompt.split('\n').length === 2 ? pupil(prompt, sample) : 'The answer is: 0';
    const tally = new Tally();
    expect(await makeSamples([solution()], tools(weak, at0), tally)).toHaveLength(1);
    expect(tally.get('positions that the right step does not solve')).toBe(3);
    const without = { ...at0, validate: { k: 2, require_true_step_pass: false } };
    expect((await makeSamples([solution()], tools(weak, without), new Tally()))!.length).toBeGreaterThan(1);
  });

  it('keeps no candidate that comes to what the right step does, however it is written', async () => {
    const written = (prompt: string, sample: number) =>
      prompt.split('\n').length === 2
        ? ['x = 0.5', 'x = \\frac{2}{4}', 'x = \\frac{3}{2}'][sample % 3]!
        : pupil(prompt, sample);
    const steps = ['x = \\frac{1}{2}', '5+4=9', 'The answer is: 9'];
    const tally = new Tally();
    const settings = { ...at0, sample: { ...at0.sample, n: 3 } };
    await makeSamples([{ ...solution(), steps }], tools(written, settings), tally);
    expect(tally.get('candidates')).toBeGreaterThan(0);
    expect(tally.get('candidates: the right result')).toBe(2);
    expect(tally.get('candidates tested')).toBe(1);
  });

  it('keeps no candidate that was cut inside a formula', async () => {
    const written = (prompt: string, sample: number) =>
      prompt.split('\n').length === 2
        ? ['\\[\n2 + 3 = 6\n\\]\n', 'It costs $6\n', '$2 + 3\n= 6$\n', 'so {2\n'][sample % 4]!
        : pupil(prompt, sample);
    const tally = new Tally();
    await makeSamples([solution()], tools(written, { ...at0, sample: { ...at0.sample, n: 4 } }), tally);
    // That a number follows a dollar sign makes it a price or a formula; the words of the price are a step.
    expect(tally.get('candidates: unfinished')).toBe(2);
  });

  it('reads the steps that follow a wrong one without cutting formulas, and takes a correction with one', async () => {
    const rest = 'Then\n\\[\n6+4=10\n\\]\nThe answer is: 10';
    const written = (prompt: string) => (prompt.split('\n').length === 2 ? '2+3=6' : rest);
    const correction = { reflection: 'no: \\[\n2+3\n\\] is less', improvement: '\\[\n2+3=5\n\\]' };
    const teacher = { name: 't', correct: async () => [correction] };
    const records = await makeSamples(
      [solution()],
      tools(
        written,
        { ...at0, shape: 'instance', validate: { k: 2, require_true_step_pass: false } },
        teacher,
      ),
      new Tally(),
    );
    const texts = records!.at(-1)!.steps.map(({ text }) => text);
    expect(texts).toContain('\\[\n6+4=10\n\\]');
    expect(texts).toContain('no: \\[\n2+3\n\\] is less');
  });

  it.each([
    ['unreadable', 'unreadable' as const],
    ['tells_answer', { reflection: 'the sum will be 9', improvement: '2+3=5' }],
    ['other_result', { reflection: 'no', improvement: '2+3=7' }],
    ['several_lines', { reflection: 'no\nno', improvement: '2+3=5' }],
    ['empty', { reflection: ' ', improvement: '2+3=5' }],
    ['too_long', { reflection: 'no '.repeat(61), improvement: '2+3=5' }],
  ])('rejects what a teacher writes: %s', async (reason, answer) => {
    const teacher = { name: 't', correct: async () => [answer] };
    const tally = new Tally();
    expect(await makeSamples([solution()], tools(pupil, at0, teacher), tally)).toHaveLength(1);
    expect(tally.get(`rejected: ${reason}`)).toBe(1);
  });

  it.each([
    [
      'step',
      'repeat_true_step',
      ['2+3=6 wrong', 'r', '2+3=5 improvement', '2+3=5 normal', '5+4=9 normal', 'a'],
    ],
    [
      'instance',
      'continue',
      [
        '2+3=6 wrong',
        '6+4=10 wrong',
        'The answer is: 10 wrong',
        'r',
        '2+3=5 improvement',
        '5+4=9 normal',
        'a',
      ],
    ],
    ['post_hoc', 'continue', ['2+3=5 normal', '5+4=9 normal', 'a']],
  ])('assembles the shape %s, after an improvement %s', async (shape, after_improvement, expected) => {
    const changes = { ...at0, shape, after_improvement, keep_original: false };
    const records = await makeSamples([solution()], tools(pupil, changes), new Tally());
    expect(records).toHaveLength(1);
    const [{ problem, steps }] = records as [NonNullable<typeof records>[number]];
    expect(
      steps.map(({ text, kind }) =>
        kind === 'reflection' ? 'r' : text === 'The answer is: 9' ? 'a' : `${text} ${kind}`,
      ),
    ).toEqual(expected);
    expect(problem.includes('2+3=6\n6+4=10')).toBe(shape === 'post_hoc');
  });

  it('takes positions at random by the solution’s number, and no more samples than asked for', async () => {
    const wrong = (prompt: string, sample: number) =>
      prompt.split('\n').length > 5 ? 'The answer is: 9' : `${sample}=${100 + sample}\n`;
    const lenient = { validate: { k: 1, require_true_step_pass: false }, keep_original: false };
    const made = async (changes: object) =>
      makeSamples([solution(1), solution(2)], tools(wrong, { ...lenient, ...changes }), new Tally());
    expect(await made({ positions: 1, max_per_position: 1 })).toHaveLength(2);
    expect(await made({ positions: 1, max_per_position: 3, max_errors_per_solution: 3 })).toHaveLength(6);
    expect(await made({ max_errors_per_solution: 2 })).toHaveLength(4);
    expect(await made({ positions: 2 })).toEqual(await made({ positions: 2 }));
  });

  it('stops where the signal says', async () => {
    expect(await makeSamples([solution()], tools(pupil), new Tally(), AbortSignal.abort())).toBeUndefined();
  });
});

it('finds wrong branches by a tree search, with right ones of the same tree', async () => {
  const changes = { sampler: 'mcts', mcts: { simulations: 3, width: 4 }, keep_original: false };
  const tally = new Tally();
  const records = await makeTreeSamples([solution()], tools(pupil, changes), tally);
  expect(records?.map(({ steps }) => steps.map(({ text, kind }) => `${text} ${kind}`))).toEqual([
    [
      '2+3=6 wrong',
      'this does not follow. reflection',
      '2+3=5 improvement',
      '5+4=9 normal',
      'The answer is: 9 normal',
    ],
  ]);
  expect(tally.get('tree nodes')).toBeGreaterThan(2);
});

it.each([
  ['steps', makeSamples],
  ['mcts', makeTreeSamples],
])(
  'teaches a second pass, by the sampler %s, to leave right solutions as they are',
  async (sampler, make) => {
    const changes = { ...at0, sampler, mcts: { simulations: 3, width: 4 }, shape: 'post_hoc' };
    const records = await make([solution()], tools(pupil, changes), new Tally());
    const again = 'Write the solution again without its errors.';
    expect(records?.map(({ problem }) => problem)).toEqual([
      '2+3+4?',
      `2+3+4?\n\n2+3=5\n5+4=9\nThe answer is: 9\n\n${again}`,
      `2+3+4?\n\n2+3=6\n6+4=10\nThe answer is: 10\n\n${again}`,
    ]);
  },
);

describe('the tally', () => {
  it('counts distinct wrong steps exactly up to 1,024 and estimates more, and goes on from its state', () => {
    const tally = new Tally();
    for (let i = 0; i < 900; i++) tally.wrongStep(`step ${i % 300}`, 'slip');
    expect(tally.distinctWrongSteps).toBe(300);
    expect(tally.errorEntropy).toBe(0);
    const later = new Tally(JSON.parse(JSON.stringify(tally.state)));
    for (let i = 0; i < 20_000; i++) later.wrongStep(`step ${i}`, i % 2 ? 'slip' : 'copied');
    expect(Math.abs(later.distinctWrongSteps / 20_000 - 1)).toBeLessThan(0.1);
    expect(later.state.wrong_steps.smallest).toHaveLength(1024);
    expect(later.errorEntropy).toBeGreaterThan(0.9);
  });
});
