// How likely the base finds a step, beside the verdict words.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel, type Model } from '../../../src/api/model.js';
import { inMemory } from '../../../src/data/dataset.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import {
  type EvaluationOptions,
  evaluateVerdicts,
  verdictMetrics,
} from '../../../src/eval/evaluate-verdicts.js';
import { fitLikelihood, keptVerdicts, likelihoodVerdicts } from '../../../src/eval/likelihood-weights.js';
import { judgeName } from '../../../src/eval/reports/likelihood-report.js';
import { formatEvalTable, formatTrainedTable } from '../../../src/eval/reports/report-table.js';
import type { StepRecord } from '../../../src/records/record.js';
import { judgements } from '../../../src/scoring/judge.js';
import type { LikelihoodWeights } from '../../../src/scoring/settings.js';
import type { JudgedVerdict } from '../../../src/scoring/verdict/judged.js';
import {
  logOdds,
  type StepLikelihoods,
  stepCalculations,
  stepLikelihoods,
  WRONG,
  withLikelihood,
  withUnread,
} from '../../../src/scoring/verdict/likelihood.js';
import { verdictScorer } from '../../../src/scoring/verdict/scorer.js';
import { judgeVerdicts } from '../../../src/scoring/verdict/verdicts.js';
import { verdictSequence } from '../../../src/sequences/sequence.js';
import type { Tokenizer } from '../../../src/tokenizer/tokenizer.js';
import { openTest } from '../../ops/devices.js';

const PROBLEM = 'Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?';
const solution = (...texts: string[]): StepRecord => ({
  problem: PROBLEM,
  steps: texts.map((text) => ({ text, label: 1, kind: 'normal' })),
});
const asSolution = ({ problem, steps }: StepRecord) => ({ problem, steps: steps.map(({ text }) => text) });
const RIGHT = solution('Tom: 12 + 7 = 19', 'Answer: 19');
const SLIP = solution('Tom: 12 + 7 = 18', 'Answer: 18');
const WRONG_ANSWER = solution('Tom: 12 + 7 = 19', 'Answer: 12');

describe('of the steps of a solution', () => {
  const device = openTest();
  let model: Model;
  let tokenizer: Tokenizer;
  beforeAll(async () => {
    model = await loadModel(device, 'word-problems');
    tokenizer = await model.tokenizer();
  });
  afterAll(() => {
    model.dispose();
    device.dispose();
  });
  const words = () => verdictTokenizer({ template: 'compact', pos_word: '1', neg_word: '0' }, tokenizer);
  const sequencesOf = (records: readonly StepRecord[], maxLength = 128) =>
    inMemory(
      records.map((record, i) => verdictSequence(words().solution(record, { maxLength }), words(), i)),
    );
  const likelihoodsOf = async (records: readonly StepRecord[], microBatchTokens = 4096) =>
    (await stepLikelihoods(model.decoder, sequencesOf(records), { microBatchTokens })) as StepLikelihoods;

  it('is that of the least likely token, as the model scores the text, and of what came before', async () => {
    const [found] = await likelihoodsOf([SLIP]);
    const ids = (text: string) => [...tokenizer.encode(text)];
    const [problem, first, whole] = [
      `${PROBLEM}\n`,
      `${PROBLEM}\nTom: 12 + 7 = 18\n`,
      `${PROBLEM}\nTom: 12 + 7 = 18\nAnswer: 18\n`,
    ].map(ids) as [number[], number[], number[]];
    const [score] = await model.score([whole]);
    const logprobs = score?.logprobs as Float32Array;
    const least = (from: number, to: number) => Math.max(-3, Math.min(...logprobs.slice(from - 1, to - 1)));
    const slip = least(problem.length, first.length);
    expect(found?.get(0)).toEqual({ least: slip, before: 0 });
    // The answer follows from the slip: it is likely, and stays marked by what came before.
    expect(least(first.length, whole.length)).toBeGreaterThan(Math.log(0.1));
    expect(found?.get(1)).toEqual({ least: slip, before: slip });
    expect(slip).toBeLessThan(Math.log(0.1));
  });

  it('tells the right line and answer from wrong ones', async () => {
    const [right, slip, answer] = await likelihoodsOf([RIGHT, SLIP, WRONG_ANSWER]);
    const own = (of: typeof right, step: number) => Math.exp(of?.get(step)?.least as number);
    expect(own(right, 0)).toBeGreaterThan(0.5);
    expect(own(right, 1)).toBeGreaterThan(0.5);
    expect(own(slip, 0)).toBeLessThan(0.1);
    expect(own(answer, 0)).toBe(own(right, 0));
    expect(own(answer, 1)).toBeLessThan(0.1);
  });

  it('is the same bits whatever is read with it, and ends where the verdicts do', async () => {
    const records = [RIGHT, SLIP, WRONG_ANSWER];
    const together = await likelihoodsOf(records);
    expect(await likelihoodsOf(records, 1)).toEqual(together);
    const cut = sequencesOf([RIGHT], sequencesOf([RIGHT]).get(0).solution.trunk.ids.length - 1);
    const [short] = (await stepLikelihoods(model.decoder, cut, {
      microBatchTokens: 64,
    })) as StepLikelihoods;
    expect([...(short?.keys() ?? [])]).toEqual([0]);
    expect(short?.get(0)).toEqual(together[0]?.get(0));
  });

  it('of calculations is computed and not asked, whatever the words, and each step stands for itself', async () => {
    const records = [
      solution(
        'Yuki, so to speak: 12 + 7 = 19 buttons',
        'She sews on.',
        '150 g * 2 = 310 g',
        '310 / 10 = 31',
      ),
      SLIP,
    ];
    const found = stepCalculations(records);
    const least = (of: (typeof found)[number] | undefined) =>
      [...(of?.values() ?? [])].map((each) => each.least);
    const earlier = (of: (typeof found)[number] | undefined) =>
      [...(of?.values() ?? [])].map((each) => each.before);
    expect(least(found[0])).toEqual([0, 0, WRONG, 0]);
    expect(earlier(found[0])).toEqual([0, 0, 0, WRONG]);
    // `Answer: 18` follows from the slip: nothing in it is computed.
    expect([least(found[1]), earlier(found[1])]).toEqual([
      [WRONG, 0],
      [0, WRONG],
    ]);
    const weights = { of: 'calculations', constant: 1, verdict: 0, least: 3, before: 0 } as const;
    const prompt = { template: 'compact', pos_word: '1', neg_word: '0' } as const;
    const judge = verdictScorer(model.decoder, { tokenizer, prompt, likelihood: weights, maxLength: 110 });
    const [judged] = (await judge.score([asSolution(SLIP)])) ?? [];
    expect(judged).toMatchObject({
      verdicts: [0, null],
      reasons: [expect.stringMatching(/ = 18 is wrong$/), null],
    });
    // Of calculations alone no verdict is said of a step without one; beside words theirs is.
    const verdicts = async (likelihood: LikelihoodWeights) => {
      const judge = verdictScorer(model.decoder, { tokenizer, prompt, likelihood, maxLength: 110 });
      return (await judgements(judge, [asSolution(SLIP)]))[0]?.map(({ verdict }) => verdict);
    };
    expect(await verdicts(weights)).toEqual(['wrong', null]);
    expect(await verdicts({ ...weights, verdict: 1e-9 })).toEqual(['wrong', 'right']);
  });

  it('of calculations judges what the model does not read', async () => {
    const weights = { of: 'calculations', constant: 1, verdict: 0.5, least: 3, before: 0 } as const;
    const prompt = { template: 'compact', pos_word: '1', neg_word: '0' } as const;
    const judgeOf = (maxLength: number) =>
      verdictScorer(model.decoder, {
        tokenizer,
        prompt,
        likelihood: weights,
        maxLength,
        skipUnreadable: true,
      });
    const long = {
      problem: PROBLEM,
      steps: ['Tom: 12 + 7 = 19', 'Tom: 12 + 7 = 18', 'Tom has them.', '2 + 2 = 4'],
    };
    const [whole] = (await judgeOf(400).score([long])) ?? [];
    const first = sequencesOf([solution(long.steps[0] as string)]).get(0).ids.length + 1;
    const [cut] = (await judgeOf(first).score([long])) ?? [];
    expect(whole?.reasons).toEqual(['12 + 7 = 19', '12 + 7 = 18 is wrong', null, '2 + 2 = 4']);
    expect(cut?.scores[0]).toBe(whole?.scores[0]);
    const unread = '(the model did not read the step)';
    expect(cut?.reasons).toEqual([
      '12 + 7 = 19',
      `12 + 7 = 18 is wrong ${unread}`,
      null,
      `2 + 2 = 4 ${unread}`,
    ]);
    expect(cut?.verdicts).toEqual([whole?.verdicts?.[0], 0, null, 1]);
    expect(cut?.scores[1]).toBeCloseTo(1 / (1 + Math.exp(2)), 12);
    expect(cut?.scores[2]).toBeNull();

    // Beside other solutions, which keep their places.
    const [none, again] = (await judgeOf(first).score([{ problem: PROBLEM, steps: [] }, long])) ?? [];
    expect(none?.scores).toEqual([]);
    expect(again).toEqual(cut);

    const records = [solution(...long.steps)];
    const judged = await judgeVerdicts(model.decoder, {}, sequencesOf(records, first), {
      threshold: 0.5,
      microBatchTokens: 4096,
    });
    const all = withUnread(judged, stepCalculations(records), () => 1);
    expect(all.map(({ step, unread = false }) => [step, unread])).toEqual([
      [0, false],
      [1, true],
      [3, true],
    ]);
    expect(withUnread(judged, stepCalculations(records), () => null)).toBe(judged);
  });

  it('judges with its weights beside the words, and stops by a signal', async () => {
    const sequences = sequencesOf([RIGHT, SLIP]);
    const options = { threshold: 'greedy', microBatchTokens: 4096 } as const;
    const weights = { constant: 2, verdict: 0, least: 1.5, before: 0 };
    const byWords = await judgeVerdicts(model.decoder, {}, sequences, options);
    const prompt = { template: 'compact', pos_word: '1', neg_word: '0' } as const;
    const judge = verdictScorer(model.decoder, {
      tokenizer,
      prompt,
      threshold: 'greedy',
      likelihood: weights,
    });
    const judged = await judge.score([asSolution(RIGHT), asSolution(SLIP)]);
    expect(judged?.flatMap(({ verdicts = [] }) => verdicts)).toEqual([1, 1, 0, 0]);
    const weighed = withLikelihood(byWords, await likelihoodsOf([RIGHT, SLIP]), weights, 'greedy');
    expect(judged?.flatMap(({ scores }) => scores)).toEqual(weighed.map(({ probability }) => probability));
    expect(judged?.[0]).not.toHaveProperty('reasons');
    const signal = AbortSignal.abort();
    expect(await stepLikelihoods(model.decoder, sequences, { ...options, signal })).toBeUndefined();
  });
});

describe('weighed with the words', () => {
  /** The words know the even solutions, the likelihood all but every fifth. */
  const records = Array.from({ length: 40 }, (_, i): StepRecord => {
    const label = i % 4 < 2 ? 1 : 0;
    const step = { text: `x ${i}`, label, kind: 'normal', ...(label === 0 ? { error: 'slip of 1' } : {}) };
    return { problem: `p ${i}`, steps: [step as StepRecord['steps'][number]] };
  });
  const byWords = records.map(({ steps: [step] }, i): JudgedVerdict => {
    const label = step?.label as 0 | 1;
    const probability = i % 2 === 0 ? 0.1 + 0.8 * label : 0.6;
    const logs = { logPositive: Math.log(probability), logNegative: Math.log(1 - probability) };
    return { solution: i, step: 0, label, verdict: probability >= 0.5 ? 1 : 0, probability, ...logs };
  });
  const likelihoods: StepLikelihoods = byWords.map(({ label }, i) => {
    const own = (i % 5 === 0 ? 1 - label : label) === 1 ? -0.1 : -6;
    return new Map([[0, { least: own, before: 0 }]]);
  });
  const part = { judged: byWords, likelihoods };
  const accuracy = (judged: readonly JudgedVerdict[]) =>
    judged.filter(({ label, verdict }) => label === verdict).length / judged.length;

  it('is better than either where each knows what the other does not', () => {
    const found = likelihoodVerdicts({ validation: part, test: part }, { threshold: 'greedy' });
    expect(accuracy(byWords)).toBe(0.75);
    expect(accuracy(found?.alone ?? [])).toBe(0.8);
    expect(accuracy(found?.both ?? [])).toBeGreaterThan(0.85);
    expect(found?.weights.verdict).toBeGreaterThan(0);
    expect(found?.weights.least).toBeGreaterThan(0);
    const alone = fitLikelihood(byWords, likelihoods, { alone: true });
    expect(alone?.verdict).toBe(0);
  });

  it('has log-probabilities that are its probability, and keeps to a threshold', () => {
    const weights = { constant: 1, verdict: 0.5, least: 1, before: 0 };
    for (const { probability, logPositive, logNegative, verdict } of withLikelihood(
      byWords,
      likelihoods,
      weights,
      0.7,
    )) {
      expect(Math.exp(logPositive)).toBeCloseTo(probability, 12);
      expect(Math.exp(logNegative)).toBeCloseTo(1 - probability, 12);
      expect(verdict).toBe(probability >= 0.7 ? 1 : 0);
    }
    const [own] = withLikelihood(byWords, likelihoods, { constant: 0, verdict: 0, least: 1, before: 0 }, 0.5);
    expect(own?.probability).toBeCloseTo(1 / (1 + Math.exp(6)), 12);
  });

  it('gives words no weight that learned nothing, or that few validation steps would weigh', () => {
    const judged = (wordless: boolean, n: number, withTrain: boolean) => {
      const few = { judged: byWords.slice(0, n), likelihoods: likelihoods.slice(0, n) };
      const train = withTrain ? part : undefined;
      return likelihoodVerdicts({ validation: few, test: part, train }, { threshold: 'greedy', wordless });
    };
    expect(judged(false, 40, false)?.weights.verdict).toBeGreaterThan(0);
    expect(judged(true, 40, false)?.weights.verdict).toBe(0);
    const few = judged(false, 8, true);
    expect(few?.weights.verdict).toBe(0);
    expect(few?.alone).toBeUndefined();
    // Eight steps of one class could not be fitted alone.
    expect(judged(false, 2, true)?.weights).toBeDefined();
    expect(judged(false, 2, false)).toBeUndefined();
  });

  it('is called chance where not even the steps it was fitted on are told apart', () => {
    const random: StepLikelihoods = byWords.map(
      (_, i) => new Map([[0, { least: -((i * 7) % 5), before: 0 }]]),
    );
    const guessed = { judged: byWords, likelihoods: random };
    const options = { threshold: 'greedy', wordless: true } as const;
    const found = likelihoodVerdicts({ validation: guessed, test: guessed }, options);
    expect(found?.isChance).toBe(true);
    expect(likelihoodVerdicts({ validation: part, test: part }, options)?.isChance).toBeUndefined();
    const report = evaluateVerdicts(byWords, {
      ...{ method: 'sft', data: {}, records, invalidAsWrong: true, positivePrior: 0.5 },
      likelihood: found,
    });
    expect(report.likelihood?.kept).toBe(false);
    expect(formatEvalTable(report, { boxed: false })).toMatch(/the adapter judges by\s+its verdicts alone/);
  });

  it.each(['calculations', undefined] as const)(
    'never finds a step likelier for a wrong one before it (%s)',
    (of) => {
      // By chance, on a handful of rows: what follows a wrong step is right, and half of the rest is wrong.
      const pairs = Array.from({ length: 12 }, (_, i) => ({
        isWrong: i % 2 === 0,
        next: i % 2 === 0 || i % 4 === 1,
      }));
      const label = (isRight: boolean): 0 | 1 => (isRight ? 1 : 0);
      const steps = pairs.flatMap(({ isWrong, next }, solution) =>
        [!isWrong, next].map((isRight, step) => ({
          solution,
          step,
          label: label(isRight),
          logPositive: 0,
          logNegative: 0,
        })),
      );
      const chance: StepLikelihoods = pairs.map(({ isWrong }) => {
        const [first, carried] = isWrong ? [WRONG, of ? 0 : WRONG] : [0, 0];
        return new Map([
          [0, { least: first, before: 0 }],
          [1, { least: carried, before: first }],
        ]);
      });
      const weights = fitLikelihood(steps, chance, { alone: true, of }) as LikelihoodWeights;
      const oddsAfter = (before: number) =>
        logOdds({ logPositive: 0, logNegative: 0 }, { least: of ? 0 : before, before }, weights);
      expect(oddsAfter(WRONG)).toBeLessThanOrEqual(oddsAfter(0));
      expect(weights.least).toBeGreaterThan(0);
      const words = fitLikelihood(steps, chance, { of }) as LikelihoodWeights;
      expect(of ? words.before : words.least + words.before).toBeGreaterThanOrEqual(0);
    },
  );

  it('finds a step without a calculation as likely right as such steps were, or as all where none was', () => {
    const solution = (first: string, label: 0 | 1) => ({
      problem: 'p',
      steps: [first].map((text) => ({ text, label, kind: 'normal' as const })),
    });
    const of = 'calculations' as const;
    const chanceOf = (rows: readonly ReturnType<typeof solution>[], alone: boolean) => {
      const judged = rows.flatMap(({ steps }, i) =>
        steps.map(({ label }, step) => ({ solution: i, step, label, logPositive: 0, logNegative: 0 })),
      );
      const weights = fitLikelihood(judged, stepCalculations(rows), { alone, of }) as LikelihoodWeights;
      const words = { logPositive: 0, logNegative: 0 };
      const [none, checked] = [
        { least: 0, before: 0 },
        { least: 0, before: 0, checked: true as const },
      ];
      return [none, checked].map((own) => 1 / (1 + Math.exp(-logOdds(words, own, weights))));
    };
    const computed = Array.from({ length: 60 }, (_, i) =>
      solution(`12 + 7 = ${i % 3 ? 19 : 18}`, i % 3 ? 1 : 0),
    );
    const told = Array.from({ length: 60 }, (_, i) => solution('So he has some.', i % 4 ? 0 : 1));
    for (const alone of [true, false]) {
      const [without, checked] = chanceOf(computed, alone) as [number, number];
      expect(without).toBeCloseTo(2 / 3, 1);
      expect(checked).toBeGreaterThan(0.9);
      expect(chanceOf([...computed, ...told], alone)[0]).toBeCloseTo(1 / 4, 1);
    }
  });

  it('gives words that say the opposite no weight, and leaves out evidence that is no number', () => {
    const inverted = byWords.map((each) => ({
      ...each,
      logPositive: each.label ? -3 : -0.1,
      logNegative: each.label ? -0.1 : -3,
    }));
    expect(fitLikelihood(inverted, likelihoods)?.verdict).toBe(0);
    const broken = byWords.map((each, i) => (i === 0 ? { ...each, logPositive: Number.NaN } : each));
    const weights = fitLikelihood(broken, likelihoods) as LikelihoodWeights;
    expect(Object.values(weights).every(Number.isFinite)).toBe(true);
    const nothing = byWords.map((each) => ({ ...each, logPositive: Number.NaN }));
    expect(fitLikelihood(nothing, likelihoods)).toBeUndefined();
  });

  it('leaves what cannot be read as it is, and is not fitted on one class', () => {
    const unread = byWords.map((each) => ({ ...each, verdict: undefined, unreadable: true as const }));
    expect(
      withLikelihood(unread, likelihoods, { constant: 9, verdict: 0, least: 0, before: 0 }, 0.5),
    ).toEqual(unread);
    const right = byWords.filter(({ label }) => label === 1);
    expect(fitLikelihood(right, likelihoods)).toBeUndefined();
    const none = { judged: [], likelihoods: [] };
    expect(likelihoodVerdicts({ validation: none, test: part }, { threshold: 'greedy' })).toBeUndefined();
    const weights = { constant: 1, verdict: 1, least: 1, before: 1 };
    const given = likelihoodVerdicts({ validation: none, test: part }, { threshold: 'greedy', weights });
    expect(given).toMatchObject({ weights });
    expect(given?.alone).toBeUndefined();
  });

  it('has the metrics of the report, and the words a report of their own', () => {
    const sft = verdictMetrics(byWords, { invalidAsWrong: true });
    const options: EvaluationOptions = {
      ...{ method: 'stepamc', data: {}, records, invalidAsWrong: true, positivePrior: 0.5 },
      baselines: { sft },
      others: { sft: byWords },
      validation: byWords,
      bootstrap: { resamples: 50 },
      seen: ({ solution }) => solution % 8 === 0,
    };
    const likelihood = likelihoodVerdicts({ validation: part, test: part }, { threshold: 'greedy' });
    const both = likelihood?.both ?? [];
    const report = evaluateVerdicts(byWords, { ...options, likelihood });
    const { warnings: _, ...byThemselves } = evaluateVerdicts(byWords, options);
    expect(report.words).toEqual(byThemselves);
    expect(keptVerdicts(byWords, likelihood)).toBe(both);
    expect(keptVerdicts(byWords, undefined)).toBe(byWords);

    // Whatever the page shows first is of the judge that is kept.
    const alone = evaluateVerdicts(both, { ...options, baselines: {}, others: {}, validation: both });
    const shown = ['metrics', 'metrics_unseen', 'metrics_validation', 'intervals', 'calibration'] as const;
    for (const key of [...shown, 'threshold_sweep', 'errors', 'processbench'] as const)
      expect(report[key], key).toEqual(alone[key]);
    expect(report.metrics.accuracy).toBe(accuracy(both));
    expect(report.metrics.accuracy).toBeGreaterThan(report.words?.metrics.accuracy as number);
    expect(Object.keys(report.differences?.to ?? {})).toEqual(['words', 'likelihood', 'random']);
    expect(report.baselines.words).toEqual(byThemselves.metrics);
    expect(report.baselines).not.toHaveProperty('sft');

    const lines = formatEvalTable(report, { boxed: false }).split('\n');
    const rows = (title: string) =>
      lines.filter((line) => line.startsWith(title)).map((line) => line.split(/ {2,}/));
    expect(rows('40 steps, %')[0]?.slice(1, 4)).toEqual([
      'verdicts + likelihood',
      '95 % CI',
      'verdicts alone',
    ]);
    expect(rows('35 unseen steps, %')[0]?.slice(1)).toEqual(['warm-up', 'stepamc', '95 % CI']);
    expect(rows('recall by kind of error')[0]?.slice(1)).toEqual([
      ...['steps', 'judge', 'verdicts', 'unseen', 'judge', 'verdicts'],
    ]);
    expect(rows('slip of 1')[0]).toHaveLength(7);
    const told = lines.join(' ').replaceAll(/ +/g, ' ');
    expect(told).toMatch(/the judge by verdicts and likelihood has F1 macro/);
    expect(told).toMatch(/stepamc by its verdicts alone has F1 macro/);
    expect(told.match(/In brackets: the difference/g)).toHaveLength(1);

    // The end of a run fits a screen: kinds of errors are left to its page and `eval`.
    const end = formatTrainedTable(report, { boxed: false }).split('\n');
    expect(end.length).toBeLessThan(26);
    expect(end.join(' ').replaceAll(/ +/g, ' ')).toContain(
      'Tables by kind of error or by group: `steptrain eval` on this run',
    );
    expect(end.join(' ').replaceAll(/ +/g, ' ')).toContain(
      'weighs these verdicts with how likely the base finds a line:',
    );
    expect(end.some((line) => line.startsWith('slip of 1'))).toBe(false);
  });

  it('goes by its evidence alone where the words have no weight', () => {
    const likelihood = likelihoodVerdicts(
      { validation: part, test: part },
      { threshold: 'greedy', of: 'calculations', wordless: true },
    );
    const report = evaluateVerdicts(byWords, {
      ...{ method: 'sft', data: {}, records, invalidAsWrong: true, positivePrior: 0.5, likelihood },
      bootstrap: { resamples: 50 },
    });
    expect(judgeName(report)).toBe('calculations');
    expect(Object.keys(report.differences?.to ?? {})).toEqual(['words', 'random']);
    expect(formatEvalTable(report, { boxed: false })).toMatch(
      /the judge by calculations has F1 macro 80\.0: [\s\S]*the calculations alone, for want of\s+verdicts/,
    );
  });
});
