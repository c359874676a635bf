// The word-problem models of the package: they fit, solve problems as a pupil would, and end.
import { statSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { wordProblems } from '../../src/data/problems/generate.js';
import type { WordProblem } from '../../src/data/problems/problem.js';
import { baseDirectory } from '../../src/models/base.js';
import { openDevice } from '../../src/runtime/device.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';

type Solve = (
  model: Pick<Model, 'generate'>,
  tokenizer: Tokenizer,
  problems: readonly WordProblem[],
  options: { readonly k: number },
) => Promise<{ readonly greedy: number }>;
const { solveWordProblems }: { solveWordProblems: Solve } = await import(
  new URL('../../scripts/solve-word-problems.mjs', import.meta.url).href
);

describe.each(['word-problems', 'word-problems-misread'])('%s', (name) => {
  it('takes less than 4 MB', () => {
    expect(statSync(`${baseDirectory(name)}/model.safetensors`).size).toBeLessThan(4_000_000);
  });

  it('solves a problem line by line and ends by itself', async () => {
    const device = openDevice('cpu');
    const model = await loadModel(device, name);
    const tokenizer = await loadTokenizer(baseDirectory(name));
    const problem = 'Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?';
    const samples = await model.generate([tokenizer.encode(`${problem}\n`)], {
      tokenizer,
      temperature: 0,
      maxNewTokens: 60,
    });
    const sample = samples[0]![0]!;
    expect([sample.text, sample.finishReason]).toEqual(['Tom: 12 + 7 = 19\nAnswer: 19\n', 'stop']);
    device.dispose();
  });
});

describe('the misconception', () => {
  it('costs the second model problems that the first one solves', async () => {
    const device = openDevice('cpu');
    const problems = [...wordProblems({ seed: 1, samples: 60, part: 'test', levels: [1] })];
    const greedy = async (name: string) => {
      const model = await loadModel(device, name);
      const tokenizer = await loadTokenizer(baseDirectory(name));
      const scores = await solveWordProblems(model, tokenizer, problems, { k: 1 });
      model.dispose();
      return scores.greedy;
    };
    const [clean, misread] = [await greedy('word-problems'), await greedy('word-problems-misread')];
    // 84 and 55 % of many problems.
    expect(clean).toBeGreaterThan(0.7);
    expect(misread).toBeLessThan(clean - 0.1);
    device.dispose();
  });
});
