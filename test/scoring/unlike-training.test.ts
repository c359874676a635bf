// Steps of which a judge says little are told from others through the API too, not by the command alone.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { savedModel } from '../../src/models/saved.js';
import { judgeSolutions, judgeSteps, unlikeTraining } from '../../src/scoring/judge.js';
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
