// Steps of which a judge says little are told from others through the API too, not by the command alone.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import type { Row } from '../../src/data/columns.js';
import { scoredRows } from '../../src/eval/score-rows.js';
import type { PlacedSolution } from '../../src/eval/solution-stream.js';
import { savedModel } from '../../src/models/saved.js';
import { judgements, judgeSolutions, judgeSteps, unlikeTraining } from '../../src/scoring/judge.js';
import { openScorer } from '../../src/scoring/open.js';
import { openTest } from '../ops/devices.js';

const device = openTest(undefined, { threads: 1 });
let folder: string;
const models: Model[] = [];
afterAll(() => {
  for (const model of models) model.dispose();
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-unlike-'));
});

const PROBLEM = 'Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?';
const STEPS = ['Tom: 12 + 7 = 19', 'Therefore the moon is made of cheese.', 'Answer: 19', 'Zog: 12 + 7 = 19'];

/** The judge of the package, with other weights. */
async function judge(likelihood?: object): Promise<Model> {
  const directory = join(folder, `judge-${models.length}`);
  cpSync(savedModel('word-problems-judge').adapter!, directory, { recursive: true });
  const path = join(directory, 'steptrain.json');
  const card = JSON.parse(readFileSync(path, 'utf8'));
  if (likelihood) card.judge.likelihood = likelihood;
  writeFileSync(path, JSON.stringify(card));
  const model = await loadModel(device, directory);
  models.push(model);
  return model;
}

async function* listed(placed: readonly PlacedSolution[]) {
  yield* placed;
}

const marked = (judged: readonly { readonly unlikeTraining?: true }[]) =>
  judged.flatMap((own, step) => ('unlikeTraining' in own ? [step] : []));

it('of another form or, where all forms are known, of other words', async () => {
  const model = await judge();
  expect(marked(await judgeSteps(model, PROBLEM, STEPS))).toEqual([1]);
  const [known, other] = await judgeSolutions(model, [
    { problem: PROBLEM, steps: [STEPS[0]!, STEPS[2]!] },
    { problem: PROBLEM, steps: [STEPS[0]!, STEPS[3]!] },
  ]);
  expect([marked(known!), marked(other!)]).toEqual([[], [1]]);
  expect(unlikeTraining(model, [STEPS[3]!])).toMatchObject({ places: [0], words: ['Zog'] });
});

it('through any scorer of the judge, and in the rows of score', async () => {
  const scorer = await openScorer(device, 'word-problems-judge');
  try {
    const [judged = []] = await judgements(scorer, [{ problem: PROBLEM, steps: STEPS }]);
    expect(marked(judged)).toEqual([1]);
    const placed = STEPS.slice(0, 2).map((step, i) => ({
      row: { id: i },
      where: `line ${i + 1}`,
      index: i,
      solution: { problem: PROBLEM, steps: [step], answer: undefined, cutOff: false },
    }));
    let unlike = 0;
    const rows: Row[] = [];
    const options = { aggregations: [], onUnlike: () => void unlike++ };
    for await (const row of scoredRows(listed(placed), scorer, options)) rows.push(row);
    expect(rows.map(({ warnings }) => warnings)).toEqual([
      undefined,
      [expect.stringMatching(/^step 1 is written unlike the steps that this judge learned from/)],
    ]);
    expect(unlike).toBe(1);
  } finally {
    scorer.dispose();
  }
});

it('without a calculation, of a judge that goes by calculations beside words', async () => {
  const model = await judge({ constant: 3, verdict: 0.2, least: 1, before: 1, of: 'calculations' });
  const judged = await judgeSteps(model, PROBLEM, STEPS);
  expect(marked(judged)).toEqual([1, 2]);
  expect(judged.map(({ reason = '' }) => /(^|; )12 \+ 7 = 19$/.test(reason))).toEqual([
    true,
    false,
    false,
    true,
  ]);
});
