// The commands that tell: recipes, config, inspect.
import { cpSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
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

  test('cp writes a recipe that extends the same one from anywhere', async () => {
    const name = 'qwen2.5-0.5b_kto';
    await cli('recipes', 'cp', name, at('short.yaml'));
    const [copied, own] = await Promise.all(
      [at('short.yaml'), `recipes/${name}.yaml`].map((file) =>
        loadRunConfig(file, ['data.train=rows.jsonl']),
      ),
    );
    expect(copied?.config).toEqual(own?.config);
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

  test('diff lists what differs, defaults included', async () => {
    await cli('recipes', 'cp', 'quickstart_sft', at('other.yaml'));
    const text = readFileSync(at('other.yaml'), 'utf8');
    writeFileSync(at('other.yaml'), `${text}\n`.replace(/^ +r: \d+/m, '  r: 77'));
    const { stdout } = await cli('config', 'diff', 'quickstart_sft', at('other.yaml'));
    expect(stdout).toMatch(/^lora\.r: \d+ → 77$/);
    expect((await cli('config', 'diff', at('run'), at('run'))).stdout).toBe('no difference');
  });
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
    expect(await cli('inspect', 'model', at('misfit'))).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(
        /weight 'model.embed_tokens.weight': expected shape \[321,64\], found \[320,64\]/,
      ),
    });
    const { layer_types: _, ...other } = config;
    writeFileSync(path, JSON.stringify({ ...other, num_hidden_layers: config.num_hidden_layers + 1 }));
    expect(await cli('inspect', 'model', at('misfit'))).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        "the weights do not fit the model's configuration; missing: 'model.layers.2.",
      ),
    });
  });

  test('model', async () => {
    const found = rows((await cli('inspect', 'model', 'word-problems')).stdout);
    expect(found.get('type')).toContain('language model');
    expect(found.get('tokenizer')).toContain('with a chat template');
    expect(Number(found.get('parameters')?.replaceAll(',', ''))).toBeGreaterThan(1e5);
    // The model of every command where none is named, and named by an option.
    for (const named of [[], ['--model', 'word-problems']])
      expect(rows((await cli('inspect', 'model', ...named)).stdout)).toEqual(found);
  });

  test('a model with quantised weights', async () => {
    const found = rows((await cli('inspect', 'model', goldenDirectory('quantized/bitsandbytes'))).stdout);
    // 164 kB of embedding and head, half a byte for each of 73,728 linear weights, 1 KiB of levels for each of 14.
    expect(found.get('stored')).toBe('218 kB in 21 tensors of F32, nf4_double');
    expect(found.get('parameters')).toBe('115,008');
  });

  test('adapter', async () => {
    const found = rows((await cli('inspect', 'adapter', at('run/adapter'))).stdout);
    expect(found.get('base')).toBe('embedded');
    expect(found.get('rank')).toMatch(/^2, scaled by 16/);
    expect(found.get('judges')).toBe('steps, by the words + and -');
    const patterned = at('patterned');
    cpSync(at('run/adapter'), patterned, { recursive: true });
    const config = JSON.parse(readFileSync(join(patterned, 'adapter_config.json'), 'utf8'));
    const alpha_pattern = { q_proj: 4 };
    writeFileSync(join(patterned, 'adapter_config.json'), JSON.stringify({ ...config, alpha_pattern }));
    expect(rows((await cli('inspect', 'adapter', patterned)).stdout).get('rank')).toBe(
      `${found.get('rank')}, alpha_pattern {"q_proj":4}`,
    );
    // A run stands for its adapter, and both for their base.
    expect(rows((await cli('inspect', 'adapter', at('run'))).stdout)).toEqual(found);
    expect(rows((await cli('inspect', 'adapter', '--model', at('run'))).stdout)).toEqual(found);
    const base = (await cli('inspect', 'model', 'embedded')).stdout;
    for (const name of ['run', 'run/adapter'])
      expect((await cli('inspect', 'model', at(name))).stdout).toBe(base);
    const judge = rows((await cli('inspect', 'adapter', 'word-problems-judge')).stdout);
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
      return rows((await cli('inspect', 'adapter', at('counting'))).stdout);
    };
    const counting = await said({ verdict: 0 });
    expect(counting.get('judges')).toBe('steps, by calculations alone');
    expect(counting.get('trained by')).toBe('method sft, in bf16, on a base in nf4');
    expect([counting.get('threshold'), counting.get('warning')]).toEqual(['0.250', 'hardly above chance']);
    expect((await said({ verdict: 1 })).get('judges')).toBe('steps, by the words + and - and calculations');
    expect(await cli('inspect', 'adapter', at('run/checkpoints'))).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('is no adapter'),
    });
  });

  test('checkpoint, whole and damaged', async () => {
    const found = rows((await cli('inspect', 'checkpoint', at('run/checkpoints/step-2'))).stdout);
    expect(found.get('step')).toBe('2 of all stages');
    expect(found.get('files')).toMatch(/^whole, /);
    truncateSync(at('run/checkpoints/step-2/state.json'), 5);
    const damaged = await cli('inspect', 'checkpoint', at('run/checkpoints/step-2'));
    expect(rows(damaged.stdout).get('files')).toMatch(/^damaged: state\.json has 5 bytes/);
    expect([damaged.code, damaged.stderr]).toEqual([
      1,
      `${at('run/checkpoints/step-2')} is damaged; another checkpoint of the run may be whole`,
    ]);
  });

  test('run', async () => {
    const found = rows((await cli('inspect', 'run', at('run'))).stdout);
    expect(found.get('method')).toBe('sft, LoRA of rank 2 of embedded');
    expect(found.get('progress')).toBe('finished after step 2');
    expect(found.get('results')).toContain('adapter');
  });

  test('run that was stopped, by its checkpoint: the log has only some of the steps', async () => {
    const stopped = at('stopped');
    cpSync(at('run'), stopped, { recursive: true });
    rmSync(join(stopped, 'checkpoints/step-2'), { recursive: true });
    writeFileSync(join(stopped, 'metrics.jsonl'), '{"step":0,"phase":"sft"}\n');
    const found = rows((await cli('inspect', 'run', stopped)).stdout);
    expect(found.get('progress')).toBe('step 1 in sft');
    writeFileSync(join(stopped, 'metrics.jsonl'), '{"step":2,"phase":"sft"}\n');
    expect(rows((await cli('inspect', 'run', stopped)).stdout).get('progress')).toBe('step 2, in sft');
  });

  test('data, with the first bad row', async () => {
    const row = {
      problem: '1+1',
      steps: [
        { text: '2', label: 1 },
        { text: '3', label: 0 },
      ],
    };
    writeFileSync(at('data.jsonl'), `${JSON.stringify(row)}\n{"problem": 3, "steps": []}\n`);
    const { stdout } = await cli('inspect', 'data', at('data.jsonl'));
    expect(rows(stdout).get('solutions')).toBe('1 of 1 problems, from 2 rows');
    expect(rows(stdout).get('steps')).toBe('2: 1 right, 1 wrong, 0 without a label');
    expect(stdout).toContain('data.jsonl');
  });

  test('data with problems and answers, and of no layout at all', async () => {
    writeFileSync(
      at('problems.jsonl'),
      '{"question":"1+1?","answer":"#### 2"}\n{"question":"1+1?","answer":"#### 2"}\n',
    );
    const { stdout } = await cli('inspect', 'data', at('problems.jsonl'));
    expect(rows(stdout).get('problems')).toBe('2, 1 different, each with its answer');
    expect(rows(stdout).get('reading')).toBe('the layout is gsm8k');
    writeFileSync(at('none.jsonl'), '{"a":1}\n');
    const { code, stderr } = await cli('inspect', 'data', at('none.jsonl'));
    expect(code).toBe(1);
    expect(stderr).toMatch(/none\.jsonl, line 1: the columns a are of no known layout; expected \{/);
  });
});
