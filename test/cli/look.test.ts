// The commands that tell: recipes, inspect.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { parse } from 'yaml';
import { loadRunConfig, parseRunConfig, recipeSchema } from '../../src/methods/config.js';
import { train } from '../../src/methods/run.js';
import { goldenDirectory } from '../models/golden.js';
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

const rows = (stdout: string) =>
  new Map(
    stdout.split('\n').map((line) => /^(\S+(?: \S+)?) {2,}(.*)$/.exec(line)?.slice(1) as [string, string]),
  );

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
      stderr: expect.stringMatching(
        /^no recipe has kto and zzz in it; npx steptrain recipes ls lists all \d+$/,
      ),
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

test('the schema in the package is that of the code', () => {
  const stored = JSON.parse(readFileSync('recipes/recipe.schema.json', 'utf8'));
  expect(stored, 'run: npm run build').toEqual(recipeSchema());
});

test('judge says what – stands for, where it prints one', async () => {
  writeFileSync(at('problem.txt'), '12 + 7 - 3\n\n12+7=19\n19-3=15\n');
  const { code, stdout, stderr } = await cli('judge', at('run'), at('problem.txt'), '--device', 'cpu');
  expect([code, stdout]).toEqual([0, expect.stringContaining('–')]);
  expect(stderr).toMatch(/^– is no verdict: the model would write neither of its words there, or /m);
});

describe('inspect', () => {
  test('a model whose weights do not fit its configuration is refused as when it is loaded', async () => {
    cpSync(goldenDirectory('qwen2'), at('misfit'), { recursive: true });
    const path = at('misfit/config.json');
    const config = JSON.parse(readFileSync(path, 'utf8'));
    writeFileSync(path, JSON.stringify({ ...config, vocab_size: config.vocab_size + 1 }));
    expect(await cli('inspect', at('misfit'))).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(
        /weight 'model.embed_tokens.weight': expected shape \[321,64\], found \[320,64\]/,
      ),
    });
    const { layer_types: _, ...other } = config;
    writeFileSync(path, JSON.stringify({ ...other, num_hidden_layers: config.num_hidden_layers + 1 }));
    expect(await cli('inspect', at('misfit'))).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        "the weights do not fit the model's configuration; missing: 'model.layers.2.",
      ),
    });
  });

  test('model', async () => {
    const found = rows((await cli('inspect', 'word-problems')).stdout);
    expect(found.get('type')).toContain('language model');
    expect(found.get('tokenizer')).toContain('with a chat template');
    expect(Number(found.get('parameters')?.replaceAll(',', ''))).toBeGreaterThan(1e5);
    // The model of every command where none is named, and named by an option.
    for (const named of [[], ['--model', 'word-problems']])
      expect(rows((await cli('inspect', ...named)).stdout)).toEqual(found);
  });

  test('a model with quantised weights', async () => {
    const found = rows((await cli('inspect', goldenDirectory('quantized/bitsandbytes'))).stdout);
    // 164 kB of embedding and head, half a byte for each of 73,728 linear weights, 1 KiB of levels for each of 14.
    expect(found.get('stored')).toBe('218 kB in 21 tensors of F32, nf4_double');
    expect(found.get('parameters')).toBe('115,008');
  });

  test('adapter', async () => {
    const found = rows((await cli('inspect', at('run/adapter'))).stdout);
    expect(found.get('base')).toBe('embedded');
    expect(found.get('rank')).toMatch(/^2, scaled by 16/);
    expect(found.get('judges')).toBe('steps, by the words + and -');
    // A run stands for its adapter.
    expect(rows((await cli('inspect', at('run'))).stdout)).toEqual(found);
    expect(rows((await cli('inspect', '--model', at('run'))).stdout)).toEqual(found);
    const judge = rows((await cli('inspect', 'word-problems-judge')).stdout);
    expect(judge.get('base')).toBe('word-problems-attempts');
    expect(judge.get('judges')).toBe("steps, by the words 1 and 0 and the base's likelihood");
    cpSync(at('run/adapter'), at('counting'), { recursive: true });
    const card = JSON.parse(readFileSync(at('counting/steptrain.json'), 'utf8'));
    const said = async (weights: object) => {
      const likelihood = { of: 'calculations', constant: 1, least: 2, before: 0, ...weights };
      const own = { ...card.judge, likelihood, threshold: 0.25, warnings: ['hardly above chance'] };
      writeFileSync(
        at('counting/steptrain.json'),
        JSON.stringify({ ...card, dtype: 'bf16', quantize: 'nf4', judge: own }),
      );
      return rows((await cli('inspect', at('counting'))).stdout);
    };
    const counting = await said({ verdict: 0 });
    expect(counting.get('judges')).toBe('steps, by calculations alone');
    expect(counting.get('trained by')).toBe('method sft, in bf16, on a base in nf4');
    expect([counting.get('threshold'), counting.get('warning')]).toEqual(['0.250', 'hardly above chance']);
    expect((await said({ verdict: 1 })).get('judges')).toBe('steps, by the words + and - and calculations');
  });
});
