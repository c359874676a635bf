import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseRunConfig } from '../../src/methods/config.js';
import { cell, checkNames, finalCells, trialCells } from '../../src/sweep/cells.js';
import { loadSweep, parseSweep, points } from '../../src/sweep/file.js';

const SWEEP = `
recipe: quickstart
output_dir: out
set: { data.arithmetic.samples: 100 }
arms:
  SFT: { set: { baseline: sft } }
  PPO (alone): { grid: { ppo.learning_rate: [1.0e-4, 2.0e-4], ppo.gamma: [1, 0.5] } }
select: { on: metrics_validation.f1_macro, seeds: [9] }
seeds: [1, 2]
report: { F1: metrics.f1_macro }
`;

describe('a sweep file', () => {
  it('makes a trial of every point and a run of every arm and seed', () => {
    const sweep = parseSweep(SWEEP, 's.yaml', ['run.device=cpu']);
    const ids = trialCells(sweep).map(({ id }) => id);
    expect(ids).toHaveLength(4);
    expect(ids[0]).toBe('PPO_alone/ppo.learning_rate=0.0001,ppo.gamma=1/seed-9');
    const [, ppo] = sweep.arms;
    const chosen = points(ppo!)[2]!;
    expect(finalCells(sweep, new Map([['PPO (alone)', chosen]])).map(({ id }) => id)).toEqual([
      'SFT/seed-1',
      'PPO_alone/ppo.learning_rate=0.0002,ppo.gamma=1/seed-1',
      'SFT/seed-2',
      'PPO_alone/ppo.learning_rate=0.0002,ppo.gamma=1/seed-2',
    ]);
    expect(cell(ppo!, chosen, 2).settings).toEqual([
      'data.arithmetic.samples=100',
      'run.device="cpu"',
      'ppo.learning_rate=0.0002',
      'ppo.gamma=1',
      'run.seed=2',
    ]);
  });

  it.each([
    ['seeds: [1, 2]', 'seeds: [1, 1]', /s\.yaml:9:.*seeds expects a list of different seeds/],
    ['seeds: [1, 2]', 'sedes: [1, 2]', /unknown key "sedes"; did you mean "seeds"/],
    ['select: {', 'selekt: {', /unknown key "selekt"/],
    ['{ baseline: sft }', '{ run.seed: 3 }', /run\.seed is not for arms/],
    ['{ F1: metrics.f1_macro }', '{}', /reports at least one key/],
    ['seeds: [1, 2]', 'seeds: [1, 2]\ncompare_to: DPO', /there is no arm DPO; arms are SFT, PPO \(alone\)/],
    ['recipe: quickstart', '', /arm SFT has no recipe/],
    ['{ grid: {', '{ set: { ppo.gamma: 1 }, grid: {', /both sets ppo\.gamma and tries values of it/],
    ['select: { on: metrics_validation.f1_macro, seeds: [9] }', '', /has a grid, and select is missing/],
    [SWEEP, '- a', /mapping of sections/],
  ])('%s → %s is refused', (from, to, message) => {
    expect(() => parseSweep(SWEEP.replace(from, to), 's.yaml')).toThrow(message);
  });

  it('refuses arms that share a folder, and keeps long points apart', () => {
    const twins = SWEEP.replace('SFT:', 'ppo-alone: {}\n  PPO_alone:');
    expect(() => checkNames(parseSweep(twins, 's.yaml'))).toThrow(/would share the folder ppo_alone/);
    const long = (word: string) => ({ 'prompt.template': `${'x'.repeat(200)}${word}` });
    const [arm] = parseSweep(SWEEP, 's.yaml').arms;
    const ids = ['a', 'b'].map((word) => cell(arm!, long(word), 1).id);
    expect(new Set(ids).size).toBe(2);
    for (const id of ids) expect(id.split('/')[1]!.length).toBeLessThan(120);
  });
});

const folder = 'recipes/sweeps';

describe.each(readdirSync(folder))('%s', (name) => {
  it('has a valid configuration in every run', async () => {
    const sweep = await loadSweep(`${folder}/${name}`);
    expect(sweep.outputDir).toBe(`runs/${name.replace('.yaml', '')}`);
    for (const arm of sweep.arms)
      for (const point of points(arm)) {
        const recipe = readFileSync(`recipes/${arm.recipe}.yaml`, 'utf8');
        const { settings } = cell(arm, point, 1);
        const parse = (...more: string[]) =>
          parseRunConfig(recipe, { name, settings: [...settings, ...more] }).config;
        // Rows are the user's where the recipe generates none.
        const config = await Promise.resolve()
          .then(() => parse())
          .catch(() => parse('data.train=file.jsonl'));
        expect(config.run.seed).toBe(1);
      }
  });

  it('starts with its purpose and commands, and comments its values', () => {
    const text = readFileSync(`${folder}/${name}`, 'utf8');
    expect(text.split('\n\n')[0]!.match(/^# {3}.*steptrain sweep /gm)!.length).toBeGreaterThanOrEqual(2);
    const lines = text.split('\n');
    const values = lines.flatMap((line, i) =>
      /^ *[\w ()]+: *\S/.test(line) && !line.startsWith('#') ? [i] : [],
    );
    expect(values.filter((i) => !lines[i - 1]!.trimStart().startsWith('# ')).map((i) => lines[i])).toEqual(
      [],
    );
  });
});
