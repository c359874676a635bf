// The commands that tell: recipes, config, judge.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { parse } from 'yaml';
import { loadRunConfig, parseRunConfig, recipeSchema } from '../../src/methods/config.js';
import { train } from '../../src/methods/run.js';
import { cli } from './run-cli.js';

let folder: string;
const at = (name: string) => join(folder, name);

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-look-'));
  vi.stubEnv('STEPTRAIN_CACHE', at('cache'));
  const silent = vi.spyOn(console, 'error').mockImplementation(() => {});
  await train(
    {
      method: 'sft',
      lora: { r: 2 },
      data: { source: 'arithmetic', arithmetic: { samples: 24 }, max_length: 200 },
      sft: { max_steps: 2, save_steps: 1 },
      run: { device: 'cpu', threads: 1 },
    } as never,
    { output: at('run') },
  );
  silent.mockRestore();
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

describe('recipes', () => {
  test('ls names each with what it is for', async () => {
    const { stdout } = await cli('recipes', 'ls');
    expect(stdout).toMatch(/^ {2}quickstart +StepAMC in/m);
    const groups = stdout.split('\n\n').map((block) => block.split('\n'));
    expect(groups.map(([title]) => title?.split(':')[0])).toEqual([
      'Try now',
      'Any model',
      'Your data',
      'Published set-ups',
      'Sweeps',
    ]);
    for (const line of groups.flatMap(([, ...rows]) => rows)) expect(line).toMatch(/^ {2}\S+ {2,}\S/);
    expect(groups[2]?.find((line) => line.includes(' qwen2.5-0.5b_dpo '))).toMatch(/\(never trained\)$/);
    expect(groups[0]?.join()).not.toContain('never trained');
  });

  test('ls lists those that have every word', async () => {
    const { stdout } = await cli('recipes', 'ls', 'QWEN2.5-0.5B', 'stepamc', 'published');
    expect(stdout).toMatch(/^Published set-ups: .*\n {2}qwen2\.5-0\.5b_stepamc_prm42k {2}\S.*$/);
    expect((await cli('recipes', 'ls', 'sweeps', 'few_labels')).stdout).toMatch(
      /^Sweeps: .*\n {2}stepamc_few_labels {2}\S.*$/,
    );
    expect((await cli('recipes', 'ls', 'your data')).stdout).toMatch(/^Your data: (?:(?!\n\n)[\s\S])*$/);
    expect(await cli('recipes', 'ls', 'kto', 'zzz')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^no recipe has kto and zzz in it; steptrain recipes ls lists all \d+$/),
    });
  });

  test('cp --full writes it merged with those that it extends, and every key', async () => {
    const name = 'qwen2.5-0.5b_kto';
    expect((await cli('recipes', 'cp', name, at('full.yaml'), '--full')).code).toBe(0);
    const text = readFileSync(at('full.yaml'), 'utf8');
    expect(text).not.toContain('extends');
    expect(text).toMatch(/^# yaml-language-server: \$schema=\/.*\n# The complete configuration of qwen2/);
    const { config } = parseRunConfig(text, { name: 'full.yaml' });
    const settings = ['data.train=YOUR_ROWS.jsonl'];
    expect(config).toEqual((await loadRunConfig(`recipes/${name}.yaml`, settings)).config);
    // A short copy extends the same recipe from anywhere.
    await cli('recipes', 'cp', name, at('short.yaml'));
    expect((await loadRunConfig(at('short.yaml'), settings)).config).toEqual(config);
  });

  test('cp writes a recipe that runs and knows its schema, once', async () => {
    const { code } = await cli('recipes', 'cp', 'quickstart_sft', at('my.yaml'));
    expect(code).toBe(0);
    const text = readFileSync(at('my.yaml'), 'utf8');
    const schema = /^# yaml-language-server: \$schema=(.*)$/m.exec(text)?.[1] as string;
    expect(JSON.parse(readFileSync(schema, 'utf8')).title).toBe('A recipe of steptrain');
    expect(parseRunConfig(text, { name: 'my.yaml' }).config.method).toBe('sft');
    const { stdout } = await cli('recipes', 'cat', 'quickstart_sft');
    expect(parse(stdout)).toEqual(parse(text));
    const again = await cli('recipes', 'cp', 'quickstart_sft', at('my.yaml'));
    expect(again).toMatchObject({ code: 1, stderr: `${at('my.yaml')} is there already; name another file` });
  });
});

describe('config', () => {
  test('the schema in the package is that of the code', () => {
    const stored = JSON.parse(readFileSync('recipes/recipe.schema.json', 'utf8'));
    expect(stored, 'run: npm run build').toEqual(recipeSchema());
  });

  test('show prints a recipe that reads back as the same', async () => {
    const { stdout } = await cli('config', 'show', 'quickstart', '--set', 'lora.r=3');
    expect(parseRunConfig(stdout, { name: 'shown' }).config).toMatchObject({
      method: 'stepamc',
      lora: { r: 3 },
    });
  });
});

test('judge says what – stands for, where it prints one', async () => {
  writeFileSync(at('problem.txt'), '12 + 7 - 3\n\n12+7=19\n19-3=15\n');
  const { code, stdout, stderr } = await cli('judge', at('run'), at('problem.txt'), '--device', 'cpu');
  expect([code, stdout]).toEqual([0, expect.stringContaining('–')]);
  expect(stderr).toMatch(/^– is no verdict: the model would write neither of its words there, or /m);
});
