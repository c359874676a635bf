// Rewards of solutions: rules, models of steps, a user's function, mixtures, and where they are placed.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { AGGREGATIONS, aggregated } from '../../src/eval/solving/aggregation.js';
import { functionReward, loadRewardFunction } from '../../src/rewards/function.js';
import { mixedRewards, rewardMoments, type WeightedSource } from '../../src/rewards/mixture.js';
import { boundedSteps, stepEnds } from '../../src/rewards/placement.js';
import type { RewardedSolution, SolutionReward } from '../../src/rewards/reward.js';
import { answerReward, formatReward, lengthReward } from '../../src/rewards/rules.js';
import { stepScoreReward } from '../../src/rewards/step-scores.js';
import { referenceScorer } from '../../src/scoring/reference.js';
import { numbersOf, outcomeScores, scorer } from '../../src/scoring/scorer.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const solution = (text: string, more: Partial<RewardedSolution> = {}): RewardedSolution => ({
  problem: { problem: '3 + 4?', answer: '7' },
  text,
  steps: text.split('\n'),
  tokens: text.length,
  truncated: false,
  ...more,
});
const values = async (reward: SolutionReward, ...solutions: RewardedSolution[]) =>
  (await reward.score(solutions))?.map(({ value }) => value);

describe('rules', () => {
  it('reward nothing in reasoning that the prompt opened and nothing ends', async () => {
    const texts = ['Answer: 7', 'is it 8?</think>Answer: 7'];
    const asked = (isOpened: boolean) =>
      texts.map((text) => solution(text, isOpened ? { opened: '<think>\n' } : {}));
    for (const reward of [answerReward(), formatReward()]) {
      expect(await values(reward, ...asked(true))).toEqual([0, 1]);
      expect(await values(reward, ...asked(false))).toEqual([1, 1]);
    }
  });

  it('find the mark of reasoning that the prompt opened in the form, once', async () => {
    const opened = '<think>\n';
    const form = formatReward('^<think>(?!.*<think>).*</think>');
    const texts = ['Add.\n</think>\n7', `${opened}Add.\n</think>\n7`, 'Add. 7'];
    expect(await values(form, ...texts.map((text) => solution(text, { opened })))).toEqual([1, 1, 0]);
    expect(await values(form, ...texts.map((text) => solution(text)))).toEqual([0, 1, 0]);
  });

  it('reward the right answer, the form and the length', async () => {
    const texts = ['3 + 4 = 7\nAnswer: 7', 'Answer: 7.0', '3 + 4 = 8\nAnswer: 8', ''].map((text) =>
      solution(text),
    );
    expect(await values(answerReward(), ...texts)).toEqual([1, 1, 0, 0]);
    expect(await values(answerReward(), solution('Answer: 7', { truncated: true }))).toEqual([0]);
    expect(await values(formatReward('^\\d.*Answer'), ...texts)).toEqual([1, 0, 1, 0]);
    expect(await values(formatReward(), ...texts)).toEqual([1, 1, 1, 0]);
    expect(() => formatReward('(')).toThrow('reward.format.pattern is no regular expression');
    const long = [5, 10, 15, 20, 99].map((tokens) => solution('', { tokens }));
    expect(await values(lengthReward({ from: 10, to: 20 }), ...long)).toEqual([-0, -0, -0.5, -1, -1]);
  });
});

describe('scores of steps', () => {
  it('are those of the steps that a model was trained on', async () => {
    const seen: (readonly string[])[] = [];
    const thoughts = scorer({
      name: 'thoughts',
      segmentation: 'thoughts/1',
      async score(solutions) {
        seen.push(...solutions.map(({ steps }) => steps));
        return solutions.map(({ steps }) => ({ scores: steps.map((_, i) => (i + 1) / 4) }));
      },
    });
    const reward = stepScoreReward(thoughts, { name: 'steps', aggregation: 'last' });
    const found = await reward.score([solution('<think>One\nline.\n\nTwo.</think>Answer: 7')]);
    expect(seen).toEqual([['One\nline.', 'Two.', 'Answer: 7']]);
    expect(found).toEqual([{ value: 0.75, steps: [0.25, 0.5, 0.75] }]);
    expect(reward.segmentation).toBe('thoughts/1');
  });

  const { prm_agg: golden } = JSON.parse(
    readFileSync(new URL('../golden/vectors.json', import.meta.url), 'utf8'),
  ) as { prm_agg: Record<string, number[]> };

  it('are aggregated to the golden numbers', () => {
    const p = golden.p!;
    const names = {
      mean: 'avg',
      product: 'prod',
      max: 'max',
      min: 'min',
      last: 'last',
      geometric_mean: 'geo_mean',
    } as const;
    for (const [how, name] of Object.entries(names))
      expect(aggregated(p, how as keyof typeof names), how).toBeCloseTo(golden[name]![0]!, 8);
    const soft = aggregated(p, 'soft_min')!;
    expect(soft).toBeCloseTo(-Math.log(p.reduce((sum, x) => sum + Math.exp(-10 * x), 0) / p.length) / 10, 10);
    // Steps that all score alike say the same of a short and of a long solution.
    expect(aggregated([0.7, 0.7, 0.7], 'soft_min')).toBeCloseTo(0.7, 12);
    expect(AGGREGATIONS.every((how) => aggregated([], how) === null)).toBe(true);
  });

  it('behind the last step that was read count as 0 where they are probabilities', () => {
    expect(
      numbersOf({ unit: 'step', scale: 'probability' }, { scores: [0.9, null, 0.8, null, null] }),
    ).toEqual([0.9, 0.8, 0, 0]);
    expect(numbersOf({ unit: 'step', scale: 'reward' }, { scores: [0.9, null, 0.8, null, null] })).toEqual([
      0.9, 0.8,
    ]);
    expect(numbersOf({ unit: 'step', scale: 'probability' }, { scores: [null, null] })).toEqual([]);
    // A model of outcomes scores the last step alone.
    expect(numbersOf({ unit: 'step', scale: 'probability' }, { scores: [null, 0.7] })).toEqual([0.7]);
  });

  it('become the reward of a solution and of its steps; what is not read gets its own', async () => {
    const own = scorer({
      name: 'numbers',
      score: async (asked) =>
        asked.map(({ steps }) => ({ scores: steps.map((step) => (step === '?' ? null : Number(step))) })),
    });
    const reward = stepScoreReward(own, { name: 'steps', aggregation: 'min', unread: -1 });
    const given = await reward.score([solution('0.5\n0.25\n?'), solution('', { steps: [] })]);
    expect(given).toEqual([
      { value: -1, steps: [0.5, 0.25, -1] },
      { value: -1, steps: [-1] },
    ]);
    const outcome = stepScoreReward(own, { name: 'outcome', aggregation: 'last', bySteps: false });
    expect(await outcome.score([solution('?\n0.75')])).toEqual([{ value: 0.75 }]);
    // A model that learned no step after an error knows nothing of those.
    const cut = { name: 'steps', aggregation: 'max', untilWrong: true } as const;
    const [counted] = (await stepScoreReward(own, cut).score([solution('0.25\n?\n0.75')])) ?? [];
    expect(counted).toEqual({ value: 0.25, steps: [0.25, 0, 0.75] });
  });
});

it('exact arithmetic rewards steps up to the first wrong one, by the worked solution', async () => {
  const problem = {
    problem: '3 + 4 apples, twice?',
    answer: '14',
    solution: '3+4=7\n7*2=14\nThe answer is: 14',
  };
  const reward = stepScoreReward(referenceScorer, { name: 'reference', aggregation: 'mean' });
  const given = await reward.score([
    solution('3+4=7\n7*2=14', { problem }),
    solution('3+4=7\n7*2=15\n15+1=16', { problem }),
  ]);
  expect(given).toEqual([
    { value: 1, steps: [1, 1] },
    { value: 1 / 3, steps: [1, 0, 0] },
  ]);
  await expect(reward.score([solution('3+4=7')])).rejects.toThrow(/compares steps with worked solutions/);
});

it('a model of whole texts rewards each text; what it cannot read gets its own', async () => {
  const length = scorer({
    name: 'length',
    unit: 'outcome',
    scale: 'reward',
    score: async (of) => of.map((one) => outcomeScores(one, one.text ? one.text.length : null)),
  });
  const reward = stepScoreReward(length, { name: 'outcome', aggregation: 'last', unread: -2 });
  expect(await reward.score([solution('ab'), solution('')])).toEqual([{ value: 2 }, { value: -2 }]);
  expect(await reward.score([solution('ab')], AbortSignal.abort())).toBeUndefined();
});

describe('a mixture', () => {
  const source = (name: string, given: number[], more: Partial<WeightedSource> = {}): WeightedSource => ({
    weight: 1,
    scale: 1,
    clip: 0,
    whiten: false,
    reward: { name, score: async () => given.map((value) => ({ value })) },
    ...more,
  });
  const three = ['a', 'b', 'c'].map((text) => solution(text));

  it('weighs what is scaled, clipped and whitened, and keeps every term', async () => {
    const mixed = await mixedRewards(
      [source('one', [1, 0, 1], { weight: 2 }), source('two', [1, 2, 3], { scale: 2, clip: 4, weight: 0.5 })],
      three,
    );
    expect(mixed?.map(({ value }) => value)).toEqual([3, 2, 4]);
    expect(mixed?.[2]?.terms).toEqual({ one: 1, two: 3 });
    const white = await mixedRewards([source('one', [1, 2, 3], { whiten: true })], three);
    expect(white?.map(({ value }) => value)).toEqual([-1, 0, 1]);
    const equal = await mixedRewards([source('one', [5, 5, 5], { whiten: true })], three);
    expect(equal?.map(({ value }) => value)).toEqual([0, 0, 0]);
  });

  it('whitens by the moments of other solutions, scaled, clipped and by steps as its own', async () => {
    const before = source('one', [1, 2, 9], { scale: 2, clip: 6 });
    const whiten = await rewardMoments(before, three);
    expect(whiten).toEqual({ mean: 4, deviation: 2 });
    const later = source('one', [4, 2, 1], { scale: 2, clip: 6, whiten: whiten! });
    expect((await mixedRewards([later], three))?.map(({ value }) => value)).toEqual([1, 0, -1]);
    const score = async () => three.map(() => ({ value: 5, steps: [0, 2] }));
    const steps = { ...source('', []), reward: { name: 'steps', score } };
    expect(await rewardMoments(steps, three)).toEqual({ mean: 5, deviation: 1 });
    expect((await rewardMoments(steps, three, { bySteps: true }))?.mean).toBe(1);
    const stopped = AbortSignal.abort();
    expect(await rewardMoments(before, three, { signal: stopped })).toBeUndefined();
  });

  it('keeps the rewards of steps apart where they are placed at steps', async () => {
    const steps: SolutionReward = {
      name: 'steps',
      score: async (of) => of.map(() => ({ value: 0.5, steps: [1, 0.5] })),
    };
    const both = [source('rule', [1, 0, 1]), { ...source('', []), reward: steps, weight: 2 }];
    expect(await mixedRewards(both, three, { bySteps: true })).toMatchObject([
      { value: 1, steps: [2, 1], terms: { rule: 1, steps: 0.5 } },
      { value: 0 },
      { value: 1 },
    ]);
    expect((await mixedRewards(both, three))?.map(({ value }) => value)).toEqual([2, 1, 2]);
  });

  it('shuffles as a control: the same rewards, each at another place, as seed and rollout batch say', async () => {
    const many = Array.from({ length: 40 }, (_, i) => solution(String(i)));
    const numbers = many.map((_, i) => i);
    const shuffle = async (more: object) =>
      (await mixedRewards([source('one', numbers, { shuffle: true })], many, more))?.map(
        ({ value }) => value,
      );
    const first = (await shuffle({ seed: 1 })) as number[];
    expect([...first].sort((a, b) => a - b)).toEqual(numbers);
    expect(first.filter((value, i) => value === i).length).toBeLessThan(8);
    expect(await shuffle({ seed: 1 })).toEqual(first);
    expect(await shuffle({ seed: 1, iteration: 1 })).not.toEqual(first);
    const steps: SolutionReward = {
      name: 'steps',
      score: async (of) => of.map((_, i) => ({ value: i, steps: new Array(i % 3).fill(i) })),
    };
    const bySteps = { ...source('', []), reward: steps, shuffle: true };
    const mixed = (await mixedRewards([bySteps], many, { bySteps: true }))!;
    expect(mixed.map(({ steps: own }) => own?.length ?? 0)).toEqual(numbers.map((i) => i % 3));
    // Those without steps have rewards of their own.
    const whole = mixed.flatMap(({ value }) => (value === undefined ? [] : [value]));
    expect(whole.sort((a, b) => a - b)).toEqual(numbers.filter((i) => i % 3 === 0));
    const all = mixed.flatMap(({ steps: own }) => own ?? []).sort((a, b) => a - b);
    expect(all).toEqual(numbers.flatMap((i) => new Array(i % 3).fill(i)));
  });

  it('shuffles among the solutions of a problem alone', async () => {
    const many = Array.from({ length: 40 }, (_, i) => ({
      ...solution(String(i)),
      problem: { problem: `problem ${i % 5}`, answer: '7' },
    }));
    const numbers = many.map((_, i) => i);
    const dealt = (await mixedRewards([source('one', numbers, { shuffle: 'problem' })], many))!;
    expect(dealt.every(({ value }, i) => (value as number) % 5 === i % 5)).toBe(true);
    expect(dealt.filter(({ value }, i) => value === i).length).toBeLessThan(20);
    expect(dealt.map(({ value }) => value as number).sort((a, b) => a - b)).toEqual(numbers);
  });

  it('refuses what is no finite number or too few of them, and names the solution', async () => {
    await expect(mixedRewards([source('odd', [1, Number.NaN, 1])], three)).rejects.toThrow(
      'reward odd: expected finite numbers, found NaN for the solution "b" of "3 + 4?"',
    );
    await expect(mixedRewards([source('few', [1])], three)).rejects.toThrow('expected 3 rewards');
  });
});

describe('placement', () => {
  it('finds the token that ends each step', () => {
    const tokenizer = byteTokenizer();
    const text = 'é = 2\n\nb = 3\nAnswer: 5\n';
    const tokens = tokenizer.encode(text);
    const ends = stepEnds('a = 2\nb = 3\n', tokenizer.encode('a = 2\nb = 3\n'), tokenizer);
    expect(ends).toEqual([4, 10]);
    // Paragraphs are steps; the first letter has two bytes.
    expect(stepEnds(text, tokens, tokenizer)).toEqual([5, tokens.length - 2]);
    expect(stepEnds('same\nsame', tokenizer.encode('same\nsame'), tokenizer)).toEqual([3, 8]);
    expect(stepEnds('', [], tokenizer)).toEqual([]);
    // By the rule of a card a thought is a step of its own, and its tags are none.
    const thought = '<think>One\nline.\n\nTwo.</think>Answer: 5';
    expect(stepEnds(thought, tokenizer.encode(thought), tokenizer, 'thoughts/1')).toEqual([15, 21, 38]);
    // A byte that is no UTF-8 is three bytes of the text; the steps after it end where they ended before.
    const broken = [0xff, 0xe2, ...tokenizer.encode('a = 2\nb = 3\n')];
    expect(stepEnds(tokenizer.decode(broken), broken, tokenizer)).toEqual([6, 12]);
  });

  it('bounds the sum of steps', () => {
    expect(boundedSteps([0.9, 0.2, 0.6], 'none', 0)).toEqual([0.9, 0.2, 0.6]);
    expect(boundedSteps([0.9, 0.2, 0.6], 'clip', 0.5)).toEqual([0, -0.3, 0]);
    const delta = boundedSteps([0.9, 0.2, 0.6], 'delta', 0);
    expect(delta.reduce((sum, reward) => sum + reward, 0)).toBeCloseTo(0.9, 10);
    // However often an easy step is repeated, the sum stays.
    const repeated = boundedSteps(new Array(9).fill(0.9), 'delta', 0);
    expect(repeated.reduce((sum, reward) => sum + reward, 0)).toBeCloseTo(0.9, 10);
  });
});

describe("a user's function", () => {
  const options = { batch: 2, timeout: 0.2 };
  it('is loaded from its module and called in batches', async () => {
    const path = join(temporaryDirectory(), 'reward.mjs');
    writeFileSync(
      path,
      'export default async (solutions) => solutions.map(({ text }, i) => (i ? { value: 1, steps: [1] } : text.length));',
    );
    const reward = functionReward(await loadRewardFunction(path), options);
    expect(await reward.score(['a', 'bb', 'ccc'].map((text) => solution(text)))).toEqual([
      { value: 1 },
      { value: 1, steps: [1] },
      { value: 3 },
    ]);
    writeFileSync(path.replace('reward', 'bare'), 'export const x = 1;');
    await expect(loadRewardFunction(path.replace('reward', 'bare'))).rejects.toThrow('no default export');
    await expect(loadRewardFunction(`${path}.none`)).rejects.toThrow('cannot be loaded');
  });

  it('that fails is reported with the solution that it fails at', async () => {
    const fails = functionReward(
      (solutions) => solutions.map(({ text }) => (text === 'b' ? JSON.parse('{') : 1)),
      options,
    );
    await expect(fails.score([solution('a'), solution('b')])).rejects.toThrow(/failed: .*JSON.*"text":"b"/s);
    const bare = functionReward(
      (all) => all.map(({ text }) => (text === 'b' ? undefined : 1) as number),
      options,
    );
    await expect(bare.score([solution('a'), solution('b')])).rejects.toThrow(
      /returned undefined instead of a number or \{ value, steps \}.*"text":"b"/s,
    );
    const short = functionReward(() => [], options);
    await expect(short.score([solution('a')])).rejects.toThrow('returned 0 rewards instead of 1');
  });

  it('that hangs ends at its time, or with the run', async () => {
    const hangs = functionReward(() => new Promise(() => {}), options);
    await expect(hangs.score([solution('a')])).rejects.toThrow('no answer within 0.2 s');
    const abort = new AbortController();
    const running = functionReward(() => new Promise(() => {}), { batch: 1, timeout: 60 }).score(
      [solution('a')],
      abort.signal,
    );
    setImmediate(() => abort.abort());
    expect(await running).toBeUndefined();
  });
});
