// Scores and verdicts on samples: by a model that judges steps, by a classifier, from a file.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadModel } from '../../../src/api/model.js';
import type { CorrectionReading } from '../../../src/data/corrections/standing.js';
import { wordProblems } from '../../../src/data/problems/generate.js';
import { rightSolution } from '../../../src/data/problems/solution.js';
import { aggregated } from '../../../src/eval/solving/aggregation.js';
import { evaluateSolving } from '../../../src/eval/solving/evaluate-solving.js';
import { judgedSamples } from '../../../src/eval/solving/judging.js';
import { stepsOf } from '../../../src/records/steps.js';
import { openDevice } from '../../../src/runtime/device.js';
import { classifierScorer } from '../../../src/scoring/classifier.js';
import { scoreFile } from '../../../src/scoring/files.js';
import { oracleScorer } from '../../../src/scoring/oracle.js';
import {
  numbersOf,
  type Scorer,
  type Solution,
  sampled,
  scorer,
  verdictsOf,
} from '../../../src/scoring/scorer.js';
import { verdictScorer } from '../../../src/scoring/verdict/scorer.js';
import { loggingTo } from '../../../src/terminal/log.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

const problem = { problem: '12;-6;+7', answer: '13' };
const solution = (text: string, sample = 0): Solution =>
  sampled(problem, { problem: 0, sample, text }, stepsOf(text));
/** The numbers that are put together. */
const numbers = async (by: Scorer, solutions: readonly Solution[]) =>
  ((await by.score(solutions)) ?? []).map((own) => numbersOf(by, own));

describe('steps', () => {
  it('are paragraphs, or lines where there are none', () => {
    expect(stepsOf('a\nb\n\n')).toEqual(['a', 'b']);
    expect(stepsOf('a\nb\n \nc\n')).toEqual(['a\nb', 'c']);
    expect(stepsOf(' \n')).toEqual([]);
  });

  it('give one score of several', () => {
    const scores = [0.5, 0.8, 0.2, 0.6];
    const all = (['min', 'product', 'mean', 'last'] as const).map((how) => aggregated(scores, how));
    expect(all).toEqual([0.2, expect.closeTo(0.048, 12), expect.closeTo(0.525, 12), 0.6]);
    expect(aggregated([], 'min')).toBeNull();
  });
});

it('scorer and judge read the steps that each was trained on', async () => {
  const reading = (segmentation?: 'thoughts/1') =>
    scorer({
      name: 'reading',
      ...(segmentation ? { segmentation } : {}),
      score: async (solutions) =>
        solutions.map(({ steps }) => ({ scores: steps.map(() => 1 / steps.length) })),
    });
  const text = '<think>One\nline.\n\nTwo.</think>Answer: 13';
  const sample = { ...{ problem: 0, sample: 0, prompt: '', tokens: 9, answer: '13', text }, right: true };
  const judged = async (scorer: Scorer, judge: Scorer) => {
    const options = { scorer, judge, aggregation: 'min', onProgress: () => {} } as const;
    const [found] = await judgedSamples([problem], [{ ...sample, finish_reason: 'stop' }], options);
    return [found?.score, found?.steps?.length];
  };
  expect(await judged(reading('thoughts/1'), reading())).toEqual([1 / 3, 2]);
  expect(await judged(reading(), reading('thoughts/1'))).toEqual([1 / 2, 3]);
});

describe('steps that a solution takes back', () => {
  const [generated] = wordProblems({ samples: 1, levels: [1], seed: 3, part: 'test' });
  const problems = [{ problem: generated!.problem, answer: generated!.answer, generated: generated! }];
  const right = rightSolution(generated!);
  const slip = right[0]!.replace(/\d+$/, (result) => `${Number(result) + 1}`);
  const text = [
    slip,
    'Wait, the last step is not right: no',
    `Corrected: ${right[0]}`,
    ...right.slice(1),
  ].join('\n');
  const sample = { ...{ problem: 0, sample: 0, prompt: '', tokens: 9, answer: '1', text }, right: true };
  const judged = async (corrections?: CorrectionReading) => {
    const options = { judge: oracleScorer, scorer: oracleScorer, corrections, onProgress: () => {} };
    const [found] = await judgedSamples(problems, [{ ...sample, finish_reason: 'stop' }], options);
    return found;
  };

  it('are no errors, and neither are the words about them', async () => {
    const stand = [null, null, ...right.map(() => 1)];
    expect(await judged({})).toMatchObject({ steps: stand, score: 1 });
    expect(await judged()).toMatchObject({ steps: [0, 0, 0, ...right.slice(1).map(() => 1)], score: 0 });
    // With other words there is no correction.
    expect((await judged({ format: { reflection: 'Hm: {text}', improvement: '{text}' } }))?.score).toBe(0);
  });

  it('are all steps so far where corrections mean the whole solution', async () => {
    const whole = (await judged({ scope: 'solution' }))?.steps;
    expect(whole).toEqual([null, null, ...right.map(() => 1)]);
  });
});

describe('a model that judges steps', () => {
  it('gives each step its own verdict and probability, whatever else is judged with it', async () => {
    const device = openDevice('cpu');
    const model = await loadModel(device, 'embedded');
    const prompt = { template: 'compact', pos_word: '1', neg_word: '0' };
    const judge = verdictScorer(model.decoder, { tokenizer: byteTokenizer(), maxLength: 64, prompt });
    const solutions = ['12-6=6\n6+7=13', '', '12-6=6', `12-6=6\n${'6+7=13\n'.repeat(20)}`].map((text, i) =>
      solution(text, i),
    );
    const scores = await numbers(judge, solutions);
    expect(scores.map(({ length }) => length)).toEqual([2, 0, 1, expect.any(Number)]);
    // Of the long one only the steps within 64 tokens are judged; the others count as wrong.
    const judged = scores[3]?.filter((score) => score > 0).length;
    expect(judged).toBeGreaterThan(1);
    expect(judged).toBeLessThan(21);
    expect(scores[3]?.slice(judged)).toEqual(Array(21 - (judged as number)).fill(0));
    expect(scores[0]?.[0]).toBe(scores[2]?.[0]);
    const verdicts = await verdictsOf(judge)(solutions);
    expect(verdicts.map(({ length }) => length)).toEqual([2, 0, 1, 21]);
    expect(verdicts[0]).toEqual(scores[0]?.map((score) => (score >= 0.5 ? 1 : 0)));
    expect(verdicts[3]?.at(-1)).toBeNull();
    device.dispose();
  });
});

describe('the oracle', () => {
  const generated = [...wordProblems({ seed: 3, samples: 20, part: 'test', levels: [0, 1] })];

  it('judges each step of a generated problem, with blank lines between the steps or without', async () => {
    for (const row of generated) {
      const lines = rightSolution(row);
      const wrong = lines.map((line, i) =>
        i === 0 ? line.replace(/\d+$/, (n) => String(Number(n) + 1)) : line,
      );
      const of = { problem: row.problem, answer: row.answer, generated: row };
      const ask = (text: string) => ({ ...solution(text), of });
      const asked = [lines.join('\n'), lines.join('\n\n'), wrong.join('\n')].map(ask);
      const [right, parted, slipped] = await verdictsOf(oracleScorer)(asked);
      expect(right).toEqual(lines.map(() => 1));
      expect(parted).toEqual(right);
      expect(slipped?.[0]).toBe(0);
    }
  });

  it('refuses problems without a plan in a sentence', async () => {
    await expect(oracleScorer.score([solution('6+7=13')])).rejects.toThrow(
      'the oracle judges generated problems alone, and problem 1 has no plan; make them with: npx steptrain data problems',
    );
  });
});

describe('a classifier', () => {
  const model = (logits: readonly number[]) => ({
    decoder: { config: { maxPositions: 40 } } as never,
    classify: async (sequences: readonly ArrayLike<number>[]) =>
      sequences.map(({ length }) => ({
        logits: [Float32Array.from(logits, (logit) => logit + length)],
        logprobs: [Float32Array.of(Math.log(0.25), Math.log(0.75))],
      })),
  });
  const options = { name: 'rm', tokenizer: byteTokenizer() };
  const solutions = [solution('6+7=13'), solution('x'.repeat(60)), solution('13')];

  it('scores by its output, or by the probability of the second class; nothing that it cannot read', async () => {
    const [first, long, last] = await numbers(classifierScorer(model([0.5]), options), solutions);
    expect([first, long, last]).toEqual([[15.5], [], [11.5]]);
    const two = await numbers(classifierScorer(model([0, 1]), options), solutions);
    expect(two).toEqual([[expect.closeTo(0.75, 6)], [], [expect.closeTo(0.75, 6)]]);
    await expect(classifierScorer(model([0, 1, 2]), options).score(solutions)).rejects.toThrow(
      'rm: expected one or two outputs for a whole solution, found 3',
    );
  });
});

describe('scores from a file', () => {
  const file = (...rows: readonly unknown[]) => {
    const path = join(temporaryDirectory(), 'scores.jsonl');
    writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    return path;
  };

  it('are found by problem and sample, one or one for each step', async () => {
    const path = file(
      { problem: 0, sample: 1, rm: [0.5, 0.25] },
      { problem: 0, sample: 0, rm: -3, text: ' a\n' },
    );
    const rm = await scoreFile(path, 'rm');
    expect(await numbers(rm, [solution('a', 0), solution('b', 1)])).toEqual([[-3], [0.5, 0.25]]);
    expect(rm.scale).toBe('reward');
    await expect(rm.score([solution('c', 2)])).rejects.toThrow(
      `${path}: there is no score of sample 2 of problem 0`,
    );
  });

  it.each([
    [{ problem: 0, sample: 0 }, "line 1: column 'score' should hold a number or a list of numbers"],
    [{ problem: 0, sample: 0, score: ['a'] }, "column 'score' should hold a number"],
    [{ sample: 0, score: 1 }, "expected whole numbers as 'problem' and 'sample'"],
    [{ problem: -1, sample: 0, score: 1 }, "expected whole numbers as 'problem' and 'sample'"],
  ])('are refused as %j', async (row, sentence) => {
    await expect(scoreFile(file(row), 'score')).rejects.toThrow(sentence);
  });

  it('give verdicts where they are probabilities, one for each step', async () => {
    const judge = verdictsOf(await scoreFile(file({ problem: 0, sample: 0, score: [0.9, 0.4] }), 'score'));
    const [a, b] = [solution('a\n\nb', 0), solution('a', 0)];
    expect(await judge([{ ...a, steps: ['a', 'b'] }])).toEqual([[1, 0]]);
    await expect(judge([{ ...b, steps: ['a'] }])).rejects.toThrow(
      /has 2 scores for a solution of 1 step; a judge needs one for each$/,
    );
    const stars = await scoreFile(file({ problem: 0, sample: 0, score: [4, 2] }), 'score');
    expect(() => verdictsOf(stars)).toThrow(/has scores outside of 0 and 1, which say of no step/);
  });

  it('are refused where they are of a sample with another text, and doubted where no row has one', async () => {
    const scored = await scoreFile(
      file({ problem: 0, sample: 0, score: 1, text: 'the answer is 5' }),
      'score',
    );
    await expect(scored.score([solution('the answer is 6', 0)])).rejects.toThrow(
      'sample 0 of problem 0 has the text "the answer is 5" there, and "the answer is 6" here: these are the scores of other samples',
    );
    const said: string[] = [];
    await loggingTo(
      (line) => said.push(line),
      () => scoreFile(file({ problem: 0, sample: 0, score: 1 }), 'score'),
    );
    expect(said).toEqual([expect.stringContaining('no row has the text of its sample')]);
  });

  it('are refused where a sample has two of them, with the line', async () => {
    const row = (rm: number) => ({ problem: 3, sample: 1, rm });
    const path = file(row(0.5), row(0.5), row(0.25));
    await expect(scoreFile(path, 'rm')).rejects.toThrow(
      `${path}, line 3: sample 1 of problem 3 has [0.25] here and [0.5] in an earlier row; leave one`,
    );
  });
});

describe('an evaluation', () => {
  it('refuses scores that are no numbers, and too few of them', async () => {
    const device = openDevice('cpu');
    const model = await loadModel(device, 'embedded');
    const evaluate = (score: Scorer['score']) =>
      evaluateSolving(model, byteTokenizer(), [problem], {
        maxNewTokens: 2,
        scorer: scorer({ name: 'rm', score }),
      });
    await expect(evaluate(async () => [{ scores: [Number.NaN] }])).rejects.toThrow(
      /^rm gives something that is not a number for step 1 of a solution of the problem/,
    );
    await expect(evaluate(async () => [])).rejects.toThrow('0 scores came for 1 solution');
    device.dispose();
  });

  it('chooses by scores, counts wrong steps of right solutions, and keeps both', async () => {
    const device = openDevice('cpu');
    const model = await loadModel(device, 'embedded');
    const judged: number[] = [];
    const { report, problems } = await evaluateSolving(
      model,
      byteTokenizer(),
      [{ problem: '10;+7\n10+7=', answer: '17' }],
      {
        template: '{problem}',
        n: 8,
        maxNewTokens: 8,
        seed: 1,
        curves: true,
        // Knows the answer: the best of k must then be right wherever one of k is.
        scorer: scorer({
          name: 'oracle',
          score: async (solutions) =>
            solutions.map(({ text }) => ({ scores: [text!.trim() === '17' ? 0.9 : 0.1, 0.95] })),
        }),
        judge: scorer({
          name: 'odd ones',
          score: async (solutions) =>
            solutions.map(({ place }) => {
              const { sample } = place!;
              judged.push(sample);
              return { scores: [sample % 2 === 1 ? 0 : 1] };
            }),
        }),
      },
    );
    const right = problems[0]?.samples.filter((sample) => sample.right) ?? [];
    expect(right.length).toBeGreaterThan(1);
    expect(right.length).toBeLessThan(8);
    expect(judged).toEqual(right.map(({ sample }) => sample));
    const { metrics } = report;
    for (const k of [2, 4, 8])
      expect(metrics[`best@${k}`]?.value).toBeCloseTo(metrics[`pass@${k}`]!.value, 12);
    expect(metrics['weighted@8']?.value).toBe(1);
    // Every aggregation is there from one set of samples; the last step's score tells nothing here.
    expect(metrics['best_learned@8']).toBeDefined();
    for (const k of [2, 4, 8]) {
      expect(metrics[`best_min@${k}`]).toEqual(metrics[`best@${k}`]);
      expect(metrics[`best_product@${k}`]).toEqual(metrics[`best@${k}`]);
      expect(metrics[`best_max@${k}`]).toEqual(metrics[`best_last@${k}`]);
      expect(metrics[`best_last@${k}`]!.value).toBeLessThan(metrics[`best@${k}`]!.value);
    }
    const odd = right.filter(({ sample }) => sample % 2 === 1).length / right.length;
    expect(metrics.step_errors?.value).toBe(odd);
    expect(metrics.wrong_steps?.value).toBe(odd);
    expect(right[0]).toMatchObject({ score: 0.9, steps: [right[0]!.sample % 2 === 1 ? 0 : 1] });
    expect(report).toMatchObject({ scorer: { name: 'oracle', aggregation: 'min' }, judge: 'odd ones' });
    device.dispose();
  });
});

it('samples that end within their reasoning, as at a stop text, are counted in a warning', async () => {
  using device = openDevice('cpu');
  using model = await loadModel(device, 'embedded');
  const options = { template: '{problem}\n12-6=', maxNewTokens: 8, stop: ['\n', '+'] };
  const warnings = async (inReasoning: boolean) =>
    (await evaluateSolving(model, byteTokenizer(), [problem], { ...options, inReasoning })).report.warnings;
  expect(await warnings(false)).toBeUndefined();
  expect(await warnings(true)).toEqual([
    '1 sample ended within the reasoning and has no answer; a stop text, such as "\\n", may stand in it',
  ]);
});
