// Beam search over steps: which beams go on, what it costs, and that a reward model without mistakes finds right solutions.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel, type Model } from '../../../src/api/model.js';
import type { Problem } from '../../../src/data/benchmarks/problem.js';
import { wordProblems } from '../../../src/data/problems/generate.js';
import { evaluateSolving } from '../../../src/eval/solving/evaluate-solving.js';
import { metricValues } from '../../../src/eval/solving/metrics.js';
import type { GradedSample } from '../../../src/eval/solving/sample.js';
import { bestBeams, type SearchOptions, searchSolutions } from '../../../src/eval/solving/search.js';
import { searchContributions, withinTokens } from '../../../src/eval/solving/search-metrics.js';
import { solvingPrompt } from '../../../src/generate/solving-prompt.js';
import { configuredTokenizer } from '../../../src/run/tokenizer.js';
import { type Device, openDevice } from '../../../src/runtime/device.js';
import { oracleScorer } from '../../../src/scoring/oracle.js';
import { type Scorer, sampled, scorer, verdictsOf } from '../../../src/scoring/scorer.js';
import type { Tokenizer } from '../../../src/tokenizer/tokenizer.js';

const BASE = 'word-problems-misread';
let device: Device;
let model: Model;
let tokenizer: Tokenizer;
let prompts: number[][];
beforeAll(async () => {
  device = openDevice('cpu');
  model = await loadModel(device, BASE);
  tokenizer = await configuredTokenizer({ base: BASE, tokenizer: 'base' });
  const prompt = solvingPrompt(tokenizer, { template: '{problem}' });
  prompts = problems.map(({ problem }) => prompt.tokens(problem));
});
afterAll(() => {
  model.dispose();
  device.dispose();
});

const problems = [...wordProblems({ samples: 24, levels: [1], seed: 5, part: 'test' })].map(
  (generated): Problem => ({ problem: generated.problem, answer: generated.answer, generated }),
);

const options = (more: Partial<SearchOptions> = {}): SearchOptions => ({
  beams: 2,
  expansions: 3,
  rounds: 12,
  separator: '\n',
  maxNewTokens: 64,
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  seed: 1,
  stop: [],
  eosTokenIds: model.eosTokenIds,
  tokenizer,
  scorer: oracleScorer,
  aggregation: 'min',
  untilWrong: false,
  maxRows: 64,
  ...more,
});

describe('a search', () => {
  it('keeps the best of different texts, the earlier of equals', () => {
    const pool = [
      ['a', 0.1],
      ['b', 0.7],
      ['b', 0.7],
      ['c', 0.7],
      ['d', 0.9],
    ].map(([text, score]) => ({ text, score }) as { text: string; score: number });
    expect(bestBeams(pool, 3).map(({ text }) => text)).toEqual(['d', 'b', 'c']);
  });

  it('goes by the scores: with the oracle it solves what its opposite does not', async () => {
    const opposite = scorer({
      name: 'opposite',
      score: async (solutions) =>
        (await oracleScorer.score(solutions))?.map(({ scores }) => ({
          scores: scores.map((score) => 1 - (score ?? 0)),
        })),
    });
    const solved = async (scorer: Scorer) => {
      const found = await searchSolutions(model, problems, prompts, options({ scorer }));
      const verdicts = await verdictsOf(oracleScorer)(
        found.map(({ text }, i) =>
          sampled(problems[i]!, { problem: i, sample: 0, text }, text.trim().split('\n')),
        ),
      );
      return verdicts.filter((steps) => steps.length > 0 && steps.every((right) => right === 1)).length;
    };
    const [with_, against] = [await solved(oracleScorer), await solved(opposite)];
    expect(with_).toBeGreaterThanOrEqual(15);
    expect(with_ - against).toBeGreaterThanOrEqual(3);
  });

  it('finds for a problem the same whatever is searched beside it, and counts every token', async () => {
    const together = await searchSolutions(model, problems.slice(0, 3), prompts.slice(0, 3), options());
    const apart = await searchSolutions(
      model,
      problems.slice(0, 3),
      prompts.slice(0, 3),
      options({ maxRows: 1 }),
    );
    expect(apart).toEqual(together);
    for (const { text, tokens, rounds, finished } of together) {
      expect(finished).toBe(true);
      // Three continuations, of which one won.
      expect(tokens).toBeGreaterThan(tokenizer.encode(text).length);
      // Another beam may have gone on for longer.
      expect(rounds).toBeGreaterThanOrEqual(text.trim().split('\n').length);
    }
  });

  it('of one beam at temperature 0 is the greedy solution', async () => {
    const greedy = { beams: 1, expansions: 1, temperature: 0 };
    const found = await searchSolutions(model, problems.slice(0, 2), prompts.slice(0, 2), options(greedy));
    const samples = await model.generate(prompts.slice(0, 2), {
      temperature: 0,
      maxNewTokens: 64,
      tokenizer,
    });
    expect(found.map(({ text, tokens }) => [text, tokens])).toEqual(
      samples.map(([sample]) => [sample!.text, sample!.tokens.length]),
    );
  });

  it('ends what has not ended in the last round, and says of what is cut off that it did not finish', async () => {
    const one = [problems.slice(0, 1), prompts.slice(0, 1)] as const;
    const [whole] = await searchSolutions(model, ...one, options({ rounds: 1 }));
    expect(whole).toMatchObject({ finished: true, rounds: 1 });
    expect(whole!.text.split('\n').length).toBeGreaterThan(1);
    const [cut] = await searchSolutions(model, ...one, options({ maxNewTokens: 4 }));
    expect(cut).toMatchObject({ finished: false, score: null, tokens: 12 });
    const long = [[...prompts[0]!, ...new Array(model.decoder.config.maxPositions).fill(32)]];
    const [none] = await searchSolutions(model, problems.slice(0, 1), long, options());
    expect(none).toEqual({ text: '', score: null, finished: false, tokens: 0, rounds: 0 });
  });
});

it('samples for as many tokens are the first that cost no more, at least one', () => {
  const samples = [10, 20, 5].map((tokens) => ({ tokens }));
  expect([5, 10, 29, 30, 35, 99].map((tokens) => withinTokens(samples, tokens))).toEqual([1, 1, 1, 2, 3, 3]);
});

it('an evaluation reports the search beside samples for as many tokens', async () => {
  const search = { beams: 2, expansions: 2 };
  const { report } = await evaluateSolving(model, tokenizer, problems.slice(0, 4), {
    n: 6,
    maxNewTokens: 64,
    scorer: oracleScorer,
    search,
  });
  expect(report.search).toEqual({ ...search, rounds: 40, separator: '\n' });
  const { metrics } = report;
  expect(metrics.tokens_equal!.value).toBeLessThanOrEqual(metrics.tokens_search!.value);
  expect(metrics.search!.value).toBeGreaterThanOrEqual(metrics['pass@1']!.value);
  expect(metrics.best_equal!.value).toBeLessThanOrEqual(metrics['pass@6']!.value);
  await expect(evaluateSolving(model, tokenizer, problems, { n: 4, search })).rejects.toThrow(
    /a search goes by the scores of a reward model/,
  );
});

it('counts tokens, which are no shares: equal ones have no interval', () => {
  const searched = [0, 1].map(() => ({ text: '', tokens: 50, finished: true, answer: '1', right: true }));
  const samples = searched.map(() => [{ tokens: 40, answer: '1', right: true } as GradedSample]);
  const found = metricValues(searchContributions(searched as never, samples, {}));
  expect(found.tokens_search).toEqual({ value: 50 });
  expect(found.tokens_equal).toEqual({ value: 40 });
});
