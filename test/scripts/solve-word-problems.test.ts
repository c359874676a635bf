// The scores of a model on word problems, of one that solves them as it is told.
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { wordProblems } from '../../src/data/problems/generate.js';
import { rightSolution } from '../../src/data/problems/solution.js';
import type { Sample } from '../../src/generate/rows/sample-row.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';

const tokenizer = await loadTokenizer(fileURLToPath(new URL('../../assets/word-problems', import.meta.url)));
const { solveWordProblems } = await import(
  new URL('../../scripts/solve-word-problems.mjs', import.meta.url).href
);
const problems = [...wordProblems({ seed: 8, samples: 300, levels: [0, 1], part: 'test' })];

/** Solves the problem of a prompt greedily; of its samples the first has a wrong line, the second is right and has no end, the others are neither. */
const model = {
  async generate(prompts: readonly ArrayLike<number>[], { n = 1 } = {}): Promise<Sample[][]> {
    return prompts.map((prompt) => {
      const asked = tokenizer.decode(prompt);
      const problem = problems.find((one) => `${one.problem}\n` === asked)!;
      const right = rightSolution(problem);
      const sample = (text: string, finishReason: 'stop' | 'length') => ({ text, finishReason }) as Sample;
      if (n === 1) return [sample(right.join('\n'), 'stop')];
      const slipped = ['nonsense', ...right].join('\n');
      return Array.from({ length: n }, (_, i) =>
        i === 0 ? sample(slipped, 'stop') : sample(i === 1 ? right.join('\n') : 'Answer: 9999', 'length'),
      );
    });
  },
};

it('counts answers, wrong steps behind right ones, ends and kinds of mistakes', async () => {
  const scores = await solveWordProblems(model, tokenizer, problems, { k: 4 });
  expect(scores).toMatchObject({
    problems: 300,
    k: 4,
    greedy: 1,
    passAt1: 0.25,
    passAtK: 1,
    luckyAnswers: 1,
    ended: 0.4,
  });
  expect(Object.fromEntries(scores.errors)).toEqual({ unreadable: 300, answer: 600 });
});
