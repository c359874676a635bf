import { expect, it } from 'vitest';
import type { SelectionOptions } from '../../../../src/methods/offline/rounds/candidates.js';
import { labelStage } from '../../../../src/methods/offline/rounds/label.js';
import type { StepRecord } from '../../../../src/records/record.js';
import { scorer } from '../../../../src/scoring/scorer.js';

const problems = [
  { problem: 'p', answer: '7' },
  { problem: 'q', answer: '7' },
];

/** Candidates by problem: `wrong` ones, and right ones whose first step the judge likes (`clean`) or not (`unclean`). */
const candidates = [
  ['clean', 'unclean', 'unclean', 'unclean', 'wrong', 'wrong', 'wrong', 'wrong'],
  ['clean', 'clean', 'unclean', 'unclean'],
];

/** Outcomes of the records of each problem. */
async function outcomes(outcome: 'answer' | 'clean', selection: Omit<SelectionOptions, 'dedupe'>) {
  const stage = labelStage({
    name: 'labels-1',
    source: 'samples-1',
    rows: candidates.flatMap((own, problem) =>
      own.map((first, sample) => ({
        problem,
        sample,
        text: `${first}\nThe answer is ${first === 'wrong' ? 8 : 7}`,
        tokens: 4,
        finish_reason: 'stop' as const,
      })),
    ),
    problems,
    judge: scorer({
      name: 'first step',
      score: async (solutions) =>
        solutions.map(({ steps }) => ({ scores: [steps[0] === 'unclean' ? 0 : 1, 1] })),
    }),
    outcome,
    flip: { share: 0, seed: 1 },
    selection: { dedupe: false, ...selection },
    settings: { save_steps: 0, save_total_limit: 1 } as never,
  });
  const made = stage.open();
  const step = await made.step(0, new AbortController().signal);
  const rows = (step?.rows ?? []) as unknown as StepRecord[];
  return problems.map(({ problem }) =>
    rows.filter((row) => row.problem === problem).map(({ outcome }) => outcome),
  );
}

it('where steps say what is right, right and wrong are compared by what the judge says', async () => {
  const both = { balance_per_problem: true, drop_unanimous: true };
  expect(await outcomes('clean', both)).toEqual([
    [1, 0],
    [1, 1, 0, 0],
  ]);
  // By answers alone nothing of the second problem can be compared.
  expect(await outcomes('answer', both)).toEqual([[1, 1, 1, 1, 0, 0, 0, 0], []]);
  expect((await outcomes('clean', { balance_per_problem: false, drop_unanimous: false }))[0]).toEqual([
    1, 0, 0, 0, 0, 0, 0, 0,
  ]);
});
