// Steps of which a judge says little are told from others through the API too, not by the command alone.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import type { Row } from '../../src/data/columns.js';
import { wordProblemRecords } from '../../src/data/problems/records.js';
import { MISTAKES } from '../../src/data/problems/solution.js';
import { scoredRows } from '../../src/eval/score-rows.js';
import type { PlacedSolution } from '../../src/eval/solution-stream.js';
import { savedModel } from '../../src/models/saved.js';
import { judgements, judgeSolutions, judgeSteps, unlikeTraining } from '../../src/scoring/judge.js';
import { openScorer } from '../../src/scoring/open.js';
import { verdictsOf } from '../../src/scoring/scorer.js';
import { openTest } from '../ops/devices.js';
import { sharedPath } from '../shared.js';

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
  const all = await judgeSteps(model, PROBLEM, STEPS);
  expect(marked(all)).toEqual([1, 2, 3]);
  expect(all.map(({ verdict }) => verdict)).toEqual(['right', 'unsure', 'unsure', 'unsure']);
  expect(all[2]?.reason).toMatch(/^step 2 is written unlike .*: from there on it is unsure$/);
  const [known, other] = await judgeSolutions(model, [
    { problem: PROBLEM, steps: [STEPS[0]!, STEPS[2]!] },
    { problem: PROBLEM, steps: [STEPS[0]!, STEPS[3]!] },
  ]);
  expect([marked(known!), marked(other!)]).toEqual([[], [1]]);
  expect(unlikeTraining(model, { problem: PROBLEM, steps: [STEPS[3]!] })).toMatchObject({
    places: [0],
    words: ['Zog'],
  });
});

it('through any scorer of the judge, and in the rows of score', async () => {
  const scorer = await openScorer(device, 'word-problems-judge');
  try {
    const [judged = []] = await judgements(scorer, [{ problem: PROBLEM, steps: STEPS }]);
    expect(marked(judged)).toEqual([1, 2, 3]);
    // Whatever learns from its verdicts learns nothing there.
    const [verdicts] = await verdictsOf(scorer)([{ problem: PROBLEM, steps: STEPS }]);
    expect(verdicts).toEqual([1, null, null, null]);
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
    expect(rows.map(({ verdicts }) => verdicts)).toEqual([['right'], ['unsure']]);
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

it.each([
  [
    'other names',
    'Natalia has 12 apples. Natalia finds 7 more. How many apples does Natalia have now?',
    ['Natalia'],
  ],
  ['other things', PROBLEM.replaceAll('apples', 'laptops'), ['laptops']],
  ['another language', 'Tom hat 12 Äpfel. Er findet 7.', ['hat', 'Äpfel', 'Er', 'findet']],
  [
    'another order',
    'How many apples does Tom have now? Tom has 12 apples. Tom finds 7 more.',
    ['"How" at its start', '"? Tom"', '"." at its end'],
  ],
  ['larger numbers', PROBLEM.replace('12', '1200'), ['1200']],
  ['no story', '12 + 7 = ?', ['+', '=']],
])('in its problem: %s, with lines as it knows them', async (_, problem, some) => {
  const model = await judge();
  const steps = ['Tom: 12 + 7 = 19', 'Answer: 19'];
  const judged = await judgeSteps(model, problem, steps);
  expect(judged.map(({ verdict }) => verdict)).toEqual(['unsure', 'unsure']);
  const found = unlikeTraining(model, { problem, steps });
  expect(found).toMatchObject({ places: [0, 1], from: 0 });
  expect([...(found?.words ?? []), ...(found?.inProblem ?? [])]).toEqual(some);
  expect(judged[0]?.reason).toMatch(
    /^the problem has (known words in an order|words) that this judge never met \(.*\): it is unsure of every step$/,
  );
});

it('nowhere in the test problems of its own generator', async () => {
  const model = await judge();
  let count = 0;
  for (const { part, record } of wordProblemRecords({
    ...{ seed: 1, samples: 12000, levels: [1, 0, 0], error_rate: 0.4, mistakes: MISTAKES },
  })) {
    if (part !== 'test') continue;
    count++;
    const steps = record.steps.map(({ text }) => text);
    expect(unlikeTraining(model, { problem: record.problem, steps }), record.problem).toBeUndefined();
  }
  expect(count).toBeGreaterThan(1000);
});

const svamp = sharedPath('data/svamp/test.jsonl');
it.runIf(svamp)('in all problems of SVAMP, whose right lines it calls wrong no more', async () => {
  const model = await judge();
  const solutions = readFileSync(svamp as string, 'utf8')
    .trim()
    .split('\n')
    .slice(0, 100)
    .map((line) => {
      const { Body, Question, Answer } = JSON.parse(line) as Record<string, string>;
      return { problem: `${Body} ${Question}`, steps: [`Answer: ${Answer}`] };
    });
  const verdicts = (await judgeSolutions(model, solutions)).flat().map(({ verdict }) => verdict);
  expect(new Set(verdicts)).toEqual(new Set(['unsure', null]));
});
