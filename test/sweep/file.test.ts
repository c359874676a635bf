import { readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseRunConfig } from '../../src/methods/config.js';
import { armLevels, cell, checkNames, finalCells, trialCells, withNeeds } from '../../src/sweep/cells.js';
import { loadSweep, parseSweep, points } from '../../src/sweep/file.js';
import { SweepFolder } from '../../src/sweep/folder.js';

const SWEEP = `
recipe: quickstart
output_dir: out
set: { data.arithmetic.samples: 100 }
arms:
  SFT: { set: { method: sft } }
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
    expect(cell(ppo!, chosen, 2).settings).toEqual({
      'data.arithmetic.samples': 100,
      'run.device': 'cpu',
      'ppo.learning_rate': 2e-4,
      'ppo.gamma': 1,
      'run.seed': 2,
    });
  });

  it.each([
    ['seeds: [1, 2]', 'seeds: [1, 1]', /s\.yaml:9:.*seeds expects a list of different seeds/],
    ['seeds: [1, 2]', 'sedes: [1, 2]', /unknown key "sedes"; did you mean "seeds"/],
    ['select: {', 'selekt: {', /unknown key "selekt"/],
    ['{ method: sft }', '{ run.seed: 3 }', /run\.seed is not for arms/],
    ['{ F1: metrics.f1_macro }', '{}', /reports at least one key/],
    ['seeds: [1, 2]', 'seeds: [1, 2]\ncompare_to: DPO', /there is no arm DPO; arms are SFT, PPO \(alone\)/],
    ['recipe: quickstart', '', /arm SFT has no recipe/],
    ['{ grid: {', '{ set: { ppo.gamma: 1 }, grid: {', /both sets ppo\.gamma and tries values of it/],
    [
      'metrics_validation.f1_macro,',
      'log.sft.held_out_loss,',
      /held_out_loss may be better where it is lower; say goal: min/,
    ],
    ['select: { on: metrics_validation.f1_macro, seeds: [9] }', '', /has a grid, and select is missing/],
    ['SFT: {', 'SFT: { from: sft,', /arm SFT has from: sft, and there is no such arm; arms are SFT, PPO/],
    [
      'SFT: {',
      'SFT: { from: PPO (alone), tokens_of: DPO,',
      /arm SFT has tokens_of: DPO, and there is no such arm/,
    ],
    ['SFT: {', 'SFT: { rationales: {},', /arm SFT has rationales and no from/],
    [
      'SFT: {',
      'SFT: { tokens_of: SFT,',
      /arm SFT waits for itself: SFT → SFT; from and tokens_of go round in a circle/,
    ],
    [
      'SFT: { set: { method: sft }',
      'SFT: { tokens_of: PPO (alone), set: { run.max_tokens: 5 }',
      /both tokens_of and run\.max_tokens/,
    ],
    ['{ method: sft }', '{ model.adapter: a }, from: PPO (alone)', /both from and model\.adapter/],
    [SWEEP, '- a', /mapping of sections/],
  ])('%s → %s is refused', (from, to, message) => {
    expect(() => parseSweep(SWEEP.replace(from, to), 's.yaml')).toThrow(message);
  });

  it('refuses a --set that an arm would not follow, and values that are tried twice', () => {
    const parsed =
      (content: string, ...set: readonly string[]) =>
      () =>
        parseSweep(content, 's.yaml', set);
    expect(parsed(SWEEP, 'run.device=cpu')).not.toThrow();
    for (const set of ['method=stepamc', 'ppo.gamma=0.9'])
      expect(parsed(SWEEP.replace('method: sft', 'method: sft, ppo: { gamma: 1 }'), set)).toThrow(
        /arm SFT has a value of its own for (method|ppo\.gamma), which would win over --set/,
      );
    expect(parsed(SWEEP.replace('[1, 0.5]', '[1, "1"]'))).toThrow('arm PPO (alone) tries ppo.gamma=1 twice');
    // A section that is tried takes the place of what is set in it.
    const section = SWEEP.replace('ppo.gamma: [1, 0.5]', 'data.arithmetic: [{ seed: 1 }, { seed: 2 }]');
    expect(parsed(section)).toThrow('both sets data.arithmetic and tries values of it');
  });

  it('puts what a run needs before it: the run that it begins from, that whose tokens it gets, and its reasons', () => {
    const linked = SWEEP.replace(
      '  SFT: {',
      '  RFT: { from: SFT, tokens_of: PPO (alone), rationales: { k: 2 } }\n  SFT: {',
    );
    const sweep = parseSweep(linked, 's.yaml');
    expect(armLevels(sweep).map((arms) => arms.map(({ name }) => name))).toEqual([
      ['SFT', 'PPO (alone)'],
      ['RFT'],
    ]);
    const cells = finalCells({ ...sweep, seeds: [1] }, new Map());
    // The grid of its reference has not been decided.
    expect(withNeeds(sweep, cells, new Map()).map(({ id }) => id)).toEqual(['SFT/seed-1']);
    const chosen = new Map([['PPO (alone)', points(sweep.arms[2]!)[0]!]]);
    const all = withNeeds(sweep, cells, chosen);
    expect(all.map(({ id }) => id)).toEqual([
      'SFT/seed-1',
      'PPO_alone/ppo.learning_rate=0.0001,ppo.gamma=1/seed-1',
      'RFT/rationales/seed-1',
      'RFT/seed-1',
    ]);
    const { needs } = all[3]!;
    expect(
      Object.values(needs)
        .map((each) => each?.id)
        .sort(),
    ).toEqual(
      all
        .slice(0, 3)
        .map(({ id }) => id)
        .sort(),
    );
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

const files = ['recipes/sweeps', 'research/sweeps'].flatMap((folder) =>
  readdirSync(folder).map((name) => `${folder}/${name}`),
);
/** Complete, so that no adapter is read. */
const LORA = [
  'lora={r: 4, lora_alpha: 8, lora_dropout: 0, target_modules: all-linear, use_rslora: false, rank_pattern: {}, alpha_pattern: {}, modules_to_save: []}',
];

describe.each(files)('%s', (file) => {
  const name = basename(file);
  it('has a valid configuration in every run', async () => {
    const sweep = await loadSweep(file);
    expect(sweep.outputDir).toBe(`runs/${name.replace('.yaml', '')}`);
    const recipes = (recipe: string) => `recipes/${recipe}.yaml`;
    const sweeps = await SweepFolder.open({ ...sweep, outputDir: join(tmpdir(), 'none') }, recipes);
    for (const arm of sweep.arms)
      for (const point of points(arm)) {
        const recipe = readFileSync(recipes(arm.recipe), 'utf8');
        const settings = await sweeps.ownSettings(cell(arm, point, 1));
        const parse = (...more: string[]) =>
          parseRunConfig(recipe, { name, settings: [...settings, ...more] }).config;
        // Rows and the judge to go on from are the user's where the recipe has none.
        const config = await Promise.resolve()
          .then(() => parse())
          .catch(() => parse('data.train=file.jsonl'))
          .catch(() => parse('model.adapter=runs/judge', ...LORA));
        expect(config.run.seed).toBe(1);
      }
  });

  it('starts with its purpose and commands, and comments its values', () => {
    const text = readFileSync(file, 'utf8');
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
