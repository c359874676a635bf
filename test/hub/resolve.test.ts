import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { startRun } from '../../src/cli/run.js';
import { completeRunConfig, parseRunConfig } from '../../src/methods/config.js';
import { runRecipe } from '../../src/methods/run.js';
import { configuredRecords } from '../../src/run/parts.js';
import { resolveInputs } from '../../src/run/paths.js';
import { fetchModel } from '../../src/run/resolve-saved.js';
import { configuredTokenizer } from '../../src/run/tokenizer.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { capture, cli } from '../cli/run-cli.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { startHub, type TestHub, type TestRepository } from './test-hub.js';

const read = (path: string) => readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)));
const weights = read('test/golden/qwen2/model.safetensors');
const small = {
  'README.md': Buffer.from('# tiny'),
  'config.json': read('test/golden/qwen2/config.json'),
  'generation_config.json': read('test/golden/qwen2/generation_config.json'),
  'tokenizer.json': read('assets/arithmetic-base/tokenizer.json'),
  'tokenizer_config.json': read('assets/arithmetic-base/tokenizer_config.json'),
};
const model: TestRepository = {
  kind: 'model',
  name: 'golden/qwen2',
  files: { ...small, 'model.safetensors': weights },
};
const index = {
  metadata: {},
  weight_map: Object.fromEntries(
    [...weightNames()].map((name) => [name, 'model-00001-of-00001.safetensors']),
  ),
};
const sharded: TestRepository = {
  kind: 'model',
  name: 'golden/sharded',
  files: {
    ...small,
    'model.safetensors.index.json': Buffer.from(JSON.stringify(index)),
    'model-00001-of-00001.safetensors': weights,
    'model.fp16.safetensors': Buffer.from('variant'),
  },
};
const data: TestRepository = {
  kind: 'dataset',
  name: 'trl-lib/tiny',
  files: {
    'README.md': Buffer.from('# data'),
    'data/train-00000-of-00002.parquet': read('test/data/files/stepwise-snappy.parquet'),
    'data/train-00001-of-00002.parquet': read('test/data/files/stepwise-gzip.parquet'),
    'data/test-00000-of-00001.parquet': read('test/data/files/stepwise-brotli.parquet'),
  },
};

function weightNames(): Iterable<string> {
  const file = openSafetensors(fileURLToPath(new URL('../golden/qwen2/model.safetensors', import.meta.url)));
  const names = [...file.tensors.keys()];
  file.close();
  return names;
}

let folder: string;
let hub: TestHub;
beforeEach(async () => {
  folder = temporaryDirectory();
  hub = await startHub([model, sharded, data]);
  vi.stubEnv('HF_ENDPOINT', hub.endpoint);
  vi.stubEnv('HF_HOME', join(folder, 'hf'));
  vi.stubEnv('HF_HUB_CACHE', undefined);
  vi.stubEnv('HF_HUB_OFFLINE', undefined);
  vi.stubEnv('HF_TOKEN', undefined);
  return () => vi.unstubAllEnvs();
});

const resolved = (sections: { data?: object; model?: object }) =>
  resolveInputs(
    completeRunConfig({ method: 'sft', data: { source: 'arithmetic' }, ...sections }),
    () => 'r',
    {
      cwd: folder,
      stream: { write: () => {} },
    },
  );
const filesOf = (directory: string) => readdirSync(directory, { recursive: true }).map(String).sort();

describe('a model of the hub', () => {
  it('downloads its configuration, weights and tokenizer, and nothing else', async () => {
    const { model: section } = await resolved({ model: { base: 'golden/qwen2' } });
    expect(relative(join(folder, 'hf/hub'), String(section.base))).toBe(
      `models--golden--qwen2/snapshots/${hub.commit(model)}`,
    );
    expect(filesOf(String(section.base))).toEqual([
      'config.json',
      'generation_config.json',
      'model.safetensors',
      'tokenizer.json',
      'tokenizer_config.json',
    ]);
    expect((await configuredTokenizer(section)).encode('7')).toEqual([55]);
  });

  it('is fetched for a program that loads it, by its id; a directory stays what it is', async () => {
    vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    const directory = await fetchModel('golden/qwen2');
    expect(relative(join(folder, 'hf/hub'), directory)).toBe(
      `models--golden--qwen2/snapshots/${hub.commit(model)}`,
    );
    expect(filesOf(directory)).toContain('model.safetensors');
    const write = vi.spyOn(process.stderr, 'write');
    rmSync(join(folder, 'hf'), { recursive: true });
    const lines: string[] = [];
    write.mockClear();
    expect(await fetchModel('golden/qwen2', { log: (line, level) => lines.push(`${level}: ${line}`) })).toBe(
      directory,
    );
    expect(lines.join('\n')).toMatch(/golden\/qwen2/);
    expect(write).not.toHaveBeenCalled();
    expect(await fetchModel(directory)).toBe(directory);
    await expect(fetchModel('golden/none')).rejects.toThrow(/^fetchModel: there is no golden\/none/);
  });

  it('is fetched until a signal ends it, which leaves no part of a file', async () => {
    const [reason, stop] = [new Error('enough'), new AbortController()];
    const { signal } = stop;
    // The first line of progress comes within the first file.
    const log = () => stop.abort(reason);
    await expect(fetchModel('golden/qwen2', { signal, log })).rejects.toBe(reason);
    const left = filesOf(join(folder, 'hf/hub/models--golden--qwen2'));
    expect(left.filter((path) => /incomplete|snapshots|\.lock/.test(path))).toEqual([]);
    const asked = hub.requests.length;
    await expect(fetchModel('golden/qwen2', { signal, log: () => {} })).rejects.toBe(reason);
    expect(hub.requests).toHaveLength(asked);
    expect(filesOf(await fetchModel('golden/qwen2', { log: () => {} }))).toContain('model.safetensors');
  });

  it('in shards downloads those of its index', async () => {
    const { model: section } = await resolved({
      model: { base: 'golden/sharded', tokenizer: 'golden/qwen2@main' },
    });
    expect(filesOf(String(section.base))).toEqual([
      'config.json',
      'generation_config.json',
      'model-00001-of-00001.safetensors',
      'model.safetensors.index.json',
    ]);
    expect(filesOf(section.tokenizer)).toEqual(['tokenizer.json', 'tokenizer_config.json']);
  });

  it('that is not supported is refused before any download of weights', async () => {
    const files = { ...model.files, 'config.json': Buffer.from('{"model_type": "gpt2"}') };
    const other = await startHub([{ ...model, files }]);
    vi.stubEnv('HF_ENDPOINT', other.endpoint);
    await expect(resolved({ model: { base: 'golden/qwen2' } })).rejects.toThrow(/gpt2/);
    expect(other.requests.join()).not.toContain('model.safetensors');
  });

  it.each([
    ['config.json', 'has no config.json'],
    [
      'model.safetensors',
      'has no model.safetensors, no model.safetensors.index.json and no pytorch_model.bin; weights in other formats are not read',
    ],
    ['tokenizer.json', 'has no tokenizer.json (found none); name a model that has one with model.tokenizer'],
  ])('without %s is refused', async (absent, message) => {
    const files = Object.fromEntries(Object.entries(model.files).filter(([path]) => path !== absent));
    const other = await startHub([{ ...model, files }]);
    vi.stubEnv('HF_ENDPOINT', other.endpoint);
    await expect(resolved({ model: { base: 'golden/qwen2' } })).rejects.toThrow(message);
  });
});

describe('data of the hub', () => {
  it('consists of the split of its part', async () => {
    const { data: section } = await resolved({
      data: { train: 'trl-lib/tiny', test: 'trl-lib/tiny', validation: 'trl-lib/tiny@main:test' },
    });
    expect(section.train).toMatch(/\/data\/train-0000\*-of-00002\.parquet$/);
    const { parts } = await configuredRecords(section);
    expect([parts.train.length, parts.validation.length, parts.test.length]).toEqual([14, 7, 7]);
  });

  it('is used only if no local path exists', async () => {
    const here = await resolveInputs(
      completeRunConfig({ method: 'sft', data: { train: 'test/data/files', test: 'test/data' } }),
      () => 'r',
      { cwd: fileURLToPath(new URL('../..', import.meta.url)) },
    );
    expect(here.data.train).toMatch(/\/test\/data\/files$/);
    expect(hub.requests).toEqual([]);
  });

  it('is refused with the place if it does not exist, and so is a missing path in an existing folder', async () => {
    const attempt = (train: string, cwd: string) => {
      const { config, locate } = parseRunConfig(`method: sft\ndata: {train: ${train}}\n`, { name: 'r.yaml' });
      return resolveInputs(config, locate, { cwd });
    };
    await expect(attempt('nobody/nothing', folder)).rejects.toThrow(
      `r.yaml:2:15: data.train leads nowhere: there is no nobody/nothing (looked for from ${folder}), and there is no ` +
        `data set nobody/nothing on ${hub.endpoint}, or it is private; check the name, or set HF_TOKEN`,
    );
    const root = fileURLToPath(new URL('../..', import.meta.url));
    await expect(attempt('test/nothing', root)).rejects.toThrow(
      'as test is a folder here, write test/nothing@main if you mean the hub',
    );
    expect(hub.requests).toHaveLength(1);
    vi.stubEnv('HF_HUB_OFFLINE', '1');
    await expect(attempt('trl-lib/tiny', folder)).rejects.toThrow(
      /^r\.yaml:2:15: data\.train leads nowhere: there is no trl-lib\/tiny \(looked for from \S+\); on the hub: HF_HUB_OFFLINE is set and the data set trl-lib\/tiny is not, or not whole, in /,
    );
  });
});

it('steptrain run trains a model of the hub on data of the hub', async () => {
  const settings = {
    'model.base': 'golden/qwen2',
    'data.source': 'auto',
    'data.train': 'trl-lib/tiny',
    'data.test': 'trl-lib/tiny:test',
    'sft.num_train_epochs': 1,
    'run.output_dir': join(folder, 'run'),
    'run.device': 'cpu',
  };
  const set = Object.entries(settings).map(([key, value]) => `${key}=${value}`);
  const run = () =>
    capture(async () => {
      await startRun({ recipe: 'quickstart_sft', set }, async () => runRecipe);
      return 0;
    });
  const { stdout, stderr } = await run();
  expect(stdout).toMatch(/F1 macro/);
  expect(stderr).toMatch(/Done after 1 step;/);
  await hub.close();
  vi.stubEnv('HF_HUB_OFFLINE', '1');
  expect((await run()).stdout).toBe(stdout);
});

it('steptrain merge takes its base from the hub', async () => {
  const adapter = fileURLToPath(new URL('../golden/qwen2/adapter', import.meta.url));
  const output = join(folder, 'merged');
  const { code, stdout } = await cli('merge', 'golden/qwen2', adapter, output);
  expect(stdout).toMatch(/adapted weights merged/);
  expect(code).toBe(0);
  expect(filesOf(output)).toEqual(
    expect.arrayContaining(['config.json', 'model.safetensors', 'tokenizer.json']),
  );
});
