// Merged weights against PEFT's merge_and_unload, and merged models against the base under its adapter.
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { readModelConfig } from '../../src/architectures/table.js';
import { mergeAdapter } from '../../src/models/merge.js';
import { openCheckpoint, readStoredF32 } from '../../src/weights/checkpoint.js';
import { bf16ToF32, f32ToBf16 } from '../../src/weights/convert.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { cli } from '../cli/run-cli.js';
import { openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { changedAdapter, changedModel, untrainedAdapter } from './changed-model.js';
import { writeTokenizer } from './gguf-tokenizer.js';
import { DECODERS, expectedOf, expectedTensors, goldenDirectory } from './golden.js';

/** Weights that the golden adapter changes: in two layers, and for llama3 only the q and v projections. */
const MERGED: Readonly<Record<string, number>> = { llama3: 4, opt: 12 };
const device = openTest();
afterAll(() => device.dispose());

test('logits that are not finite are compared with nothing', async () => {
  const width = readModelConfig(goldenDirectory('mistral')).hiddenSize;
  const values = Array.from({ length: width }, () => 3e38);
  const base = await changedModel('mistral', {
    remove: ['model.norm.weight'],
    add: { 'model.norm.weight': { shape: [width], values } },
  });
  const merged = join(temporaryDirectory(), 'merged');
  await expect(
    mergeAdapter(device, base, adapterOf('mistral'), merged, { check: [[1, 2, 3]] }),
  ).rejects.toThrow(/the logits of .* under .* are not finite, so that nothing can be compared/);
});

test('names are those of loadModel: models of the package, and a run in the place of its adapter', async () => {
  const merged = join(temporaryDirectory(), 'merged');
  const report = await mergeAdapter(device, 'word-problems-attempts', 'word-problems-judge', merged);
  expect(report.merged).toBeGreaterThan(0);
  const run = temporaryDirectory();
  writeFileSync(join(run, 'config.yaml'), 'method: sft\n');
  cpSync(adapterOf('mistral'), join(run, 'adapter'), { recursive: true });
  const [byRun, byAdapter] = ['run', 'adapter'].map((name) => join(run, name, '..', `of-${name}`));
  await mergeAdapter(device, goldenDirectory('mistral'), run, byRun as string);
  await mergeAdapter(device, goldenDirectory('mistral'), join(run, 'adapter'), byAdapter as string);
  const bytes = (path?: string) => readFileSync(join(path as string, 'model.safetensors'));
  expect(bytes(byRun).equals(bytes(byAdapter))).toBe(true);
  await expect(mergeAdapter(device, run, run, merged)).rejects.toThrow();
  const own = await loadModel(device, goldenDirectory('mistral'), { adapter: run });
  expect(own.files?.adapter).toBe(join(run, 'adapter'));
  own.dispose();
});

const adapterOf = (name: string) => join(goldenDirectory(name), 'adapter');

/** Some weights that PEFT has merged, by name in the model. */
function peftMerged(name: string): ReadonlyMap<string, Float32Array> {
  const file = openSafetensors(goldenPath('merged.safetensors'));
  const own = [...file.tensors.keys()].filter((tensor) => tensor.startsWith(`${name}.`));
  const values = new Map(own.map((tensor) => [tensor.slice(name.length + 1), readStoredF32(file, tensor)]));
  file.close();
  return values;
}

function weightOf(directory: string, name: string): Float32Array {
  const reader = openCheckpoint(directory);
  const values = readStoredF32(reader, name).slice();
  reader.close();
  return values;
}

describe.each(DECODERS)('%s', (name) => {
  const { sequences } = expectedOf(name);
  const golden = expectedTensors(name);

  test('merges to the weights of PEFT and has the scores of the adapter', async () => {
    const output = join(temporaryDirectory(), 'merged');
    const report = await mergeAdapter(device, goldenDirectory(name), adapterOf(name), output, {
      check: sequences,
    });
    const weights = peftMerged(name);
    expect(weights.size).toBe(2);
    for (const [weight, values] of weights) {
      expect(maxDifference(weightOf(output, weight), values), weight).toBeLessThan(1e-6);
      expect(maxDifference(weightOf(goldenDirectory(name), weight), values), weight).toBeGreaterThan(1e-3);
    }
    expect(report).toMatchObject({ dtype: 'f32', merged: MERGED[name] ?? 14, replaced: 0 });
    expect(report.largestDifference).toBeLessThan(1e-4);
    expect(report.largestLogit).toBeGreaterThan(0.1);
    expect(existsSync(join(output, 'generation_config.json'))).toBe(true);

    const model = await loadModel(device, output, { dtype: 'f32' });
    (await model.score(sequences)).forEach(({ logprobs }, i) => {
      expect(maxDifference(logprobs, golden.get(`lora.logprobs.${i}`)!)).toBeLessThan(1e-4);
    });
    model.dispose();
  });

  test('rounds once to bf16, and reports the merge error', async () => {
    const directory = temporaryDirectory();
    const [exact, rounded] = [join(directory, 'exact'), join(directory, 'rounded')];
    const merge = (output: string, dtype: 'f32' | 'bf16') =>
      mergeAdapter(device, goldenDirectory(name), adapterOf(name), output, { dtype, check: sequences });
    await expect(merge(exact, 'F32' as 'f32')).rejects.toThrow("mergeAdapter: dtype: expected 'f32'");
    const fine = await merge(exact, 'f32');
    const coarse = await merge(rounded, 'bf16');
    expect(coarse.dtype).toBe('bf16');
    expect(coarse.largestDifference).toBeGreaterThan(10 * fine.largestDifference!);
    expect(coarse.largestDifference).toBeLessThan(0.1 * coarse.largestLogit!);
    const [weight] = [...peftMerged(name).keys()] as [string];
    expect(weightOf(rounded, weight)).toEqual(bf16ToF32(f32ToBf16(weightOf(exact, weight))));
  });
});

test('an adapter with a score becomes a classification model', async () => {
  const adapter = goldenPath('heads/token-adapter');
  const output = join(temporaryDirectory(), 'merged');
  const { sequences } = expectedOf('qwen2');
  const report = await mergeAdapter(device, goldenDirectory('qwen2'), adapter, output, { check: sequences });
  expect(report).toMatchObject({ merged: 4, replaced: 2 });
  expect(report.largestDifference).toBeLessThan(1e-4);
  const config = JSON.parse(readFileSync(join(output, 'config.json'), 'utf8'));
  expect(config.architectures).toEqual(['Qwen2ForTokenClassification']);
  const [merged, apart] = [
    await loadModel(device, output, { dtype: 'f32' }),
    await loadModel(device, goldenDirectory('qwen2'), { dtype: 'f32', adapter }),
  ];
  const [found, expected] = [await merged.classify(sequences), await apart.classify(sequences)];
  found.forEach(({ logits }, i) => {
    for (const [t, row] of logits.entries())
      expect(maxDifference(row, expected[i]!.logits[t]!)).toBeLessThan(1e-4);
  });
  merged.dispose();
  apart.dispose();
});

test('keeps the dtype of the base, copies the tokenizer, and splits into shards', async () => {
  const base = await changedModel('llama3', { dtype: 'BF16' });
  writeFileSync(join(base, 'tokenizer.json'), '{"of":"base"}');
  const output = join(temporaryDirectory(), 'merged');
  const report = await mergeAdapter(device, base, adapterOf('llama3'), output, { maxShardBytes: 60_000 });
  expect(report).toMatchObject({ dtype: 'bf16', largestDifference: undefined });
  expect(readFileSync(join(output, 'tokenizer.json'), 'utf8')).toBe('{"of":"base"}');
  expect(existsSync(join(output, 'model.safetensors.index.json'))).toBe(true);
  const model = await loadModel(device, output, { dtype: 'bf16' });
  expect(await model.score([[1, 2, 3]])).toHaveLength(1);
  model.dispose();
});

test('keeps the dtype of each weight where the base has several', async () => {
  const isNorm = (name: string) => name.includes('norm');
  const base = await changedModel('llama3', { dtype: (name) => (isNorm(name) ? 'F32' : 'BF16') });
  const output = join(temporaryDirectory(), 'merged');
  const report = await mergeAdapter(device, base, adapterOf('llama3'), output);
  expect(report.dtype).toBe('mixed');
  const file = openSafetensors(join(output, 'model.safetensors'));
  for (const [name, { dtype }] of file.tensors)
    expect([name, dtype]).toEqual([name, isNorm(name) ? 'F32' : 'BF16']);
  file.close();
  const norm = 'model.layers.1.input_layernorm.weight';
  expect(weightOf(output, norm)).toEqual(weightOf(base, norm));
  const all = join(temporaryDirectory(), 'all');
  expect((await mergeAdapter(device, base, adapterOf('llama3'), all, { dtype: 'bf16' })).dtype).toBe('bf16');
});

test('frees all device memory', async () => {
  await device.synchronize();
  const before = device.stats().liveBytes;
  const output = join(temporaryDirectory(), 'merged');
  await mergeAdapter(device, goldenDirectory('llama3'), adapterOf('llama3'), output, { check: [[1, 2, 3]] });
  await device.synchronize();
  expect(device.stats().liveBytes).toBe(before);
});

describe('refuses', () => {
  test('an adapter of another model, and writes nothing', async () => {
    const output = join(temporaryDirectory(), 'merged');
    await expect(mergeAdapter(device, goldenDirectory('llama3'), adapterOf('qwen3'), output)).rejects.toThrow(
      / is an adapter of another model /,
    );
    expect(existsSync(output)).toBe(false);
  });

  test('to leave half a model behind', async () => {
    const output = join(temporaryDirectory(), 'merged');
    let calls = 0;
    const signal = {
      throwIfAborted() {
        // The first weights are written by then.
        if (++calls > 3) throw new Error('aborted');
      },
    } as AbortSignal;
    await expect(
      mergeAdapter(device, goldenDirectory('llama3'), adapterOf('llama3'), output, { signal }),
    ).rejects.toThrow('aborted');
    expect(existsSync(output)).toBe(false);
  });

  test.each([
    [
      Number.NaN,
      undefined,
      /^weight 'model\.layers\.0\S+' would be NaN at \[\d+,\d+\]: .* take an earlier checkpoint$/,
    ],
    [Number.POSITIVE_INFINITY, undefined, /would be (?:-?Infinity|NaN) at/],
    [1e7, 'f16', /would be -?[\d.]+ at \[\d+,\d+\], which f16 cannot hold; write another dtype/],
  ] as const)('a weight that is no finite number: %s in %s', async (value, dtype, message) => {
    const adapter = join(temporaryDirectory(), 'adapter');
    cpSync(adapterOf('llama3'), adapter, { recursive: true });
    const path = join(adapter, 'adapter_model.safetensors');
    const bytes = readFileSync(path);
    const start = 8 + Number(bytes.readBigUInt64LE());
    const header = Object.entries<{ dtype: string; data_offsets: [number, number] }>(
      JSON.parse(bytes.toString('utf8', 8, start)),
    );
    const [, pair] = header.find(([name]) => /layers\.0\..*lora_B/.test(name)) ?? expect.fail('no pair');
    expect(pair.dtype).toBe('F32');
    for (let i = 0; i < 4; i++) bytes.writeFloatLE(value, start + pair.data_offsets[0] + 4 * i);
    writeFileSync(path, bytes);
    const output = join(temporaryDirectory(), 'merged');
    await expect(
      mergeAdapter(device, goldenDirectory('llama3'), adapter, output, dtype ? { dtype } : {}),
    ).rejects.toThrow(message);
    expect(existsSync(output)).toBe(false);
  });

  test('an output that contains a model', async () => {
    const output = await changedModel('llama3');
    await expect(
      mergeAdapter(device, goldenDirectory('llama3'), adapterOf('llama3'), output),
    ).rejects.toThrow(/expected a directory without weights, found model\.safetensors; choose another/);
  });

  test('unknown tokens, before it writes', async () => {
    const output = join(temporaryDirectory(), 'merged');
    await expect(
      mergeAdapter(device, goldenDirectory('llama3'), adapterOf('llama3'), output, { check: [[1, 320]] }),
    ).rejects.toThrow('merge: sequence 0: token id 320 at index 1 is not a whole number in 0..319');
    expect(existsSync(output)).toBe(false);
  });
});

describe('steptrain merge', () => {
  test('writes the model and prints the merge error', async () => {
    const output = join(temporaryDirectory(), 'merged');
    const { code, stdout, stderr } = await cli(
      'merge',
      goldenDirectory('llama3'),
      adapterOf('llama3'),
      output,
      '--dtype',
      'bf16',
    );
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(
      /^wrote .*merged: 4 adapted weights merged, stored as BF16\nlargest logit difference to the adapter on 64 random tokens: 0\.\d+, of logits up to \d+\.\d+$/,
    );
    const reader = openCheckpoint(output);
    expect(reader.tensors.get('model.norm.weight')?.dtype).toBe('BF16');
    reader.close();
    expect((await cli('merge', '--help')).stdout).toMatch(/Examples:\n +steptrain merge /);
  });

  test('prints for a GGUF file what its type loses', async () => {
    const base = await changedModel('qwen2');
    writeTokenizer(base, 'qwen2');
    const lost: number[] = [];
    for (const type of ['F32', 'Q8_0', 'Q4_0']) {
      const output = join(temporaryDirectory(), 'merged.gguf');
      const more = ['--dtype', type.toLowerCase(), '--other-base'];
      const { code, stdout } = await cli('merge', base, adapterOf('qwen2'), output, ...more);
      expect(code).toBe(0);
      lost.push(
        Number(new RegExp(`as written in ${type}, read back: (\\S+) to the adapter`).exec(stdout)?.[1]),
      );
    }
    const [exact, eight, four] = lost as [number, number, number];
    expect(exact).toBeLessThan(1e-4);
    expect(eight).toBeGreaterThan(10 * exact);
    expect(four).toBeGreaterThan(2 * eight);
    const whole = await cli('merge', base, join(temporaryDirectory(), 'whole.gguf'), '--dtype', 'f32');
    expect(whole.stdout).toMatch(/as written in F32, read back: \S+ to the model, of logits up to/);
  });

  test('refuses a name that is nearly that of a GGUF file', async () => {
    for (const name of ['mine.ggf', 'mine.GUFF', 'mine.ggml']) {
      const output = join(temporaryDirectory(), name);
      const { code, stderr } = await cli('merge', goldenDirectory('llama3'), adapterOf('llama3'), output);
      expect([code, existsSync(output)]).toEqual([1, false]);
      expect(stderr).toContain(`${name} would be a directory; name a file that ends in .gguf`);
    }
  });

  test('warns of an adapter that changes nothing', async () => {
    const untrained = await untrainedAdapter('llama3');
    const merge = (adapter: string) =>
      cli('merge', goldenDirectory('llama3'), adapter, join(temporaryDirectory(), 'merged'), '--other-base');
    expect((await merge(untrained)).stderr).toMatch(
      /^warning: .* changes nothing: every lora_B in it is 0, .* kept the parameters of that one$/,
    );
    expect(await merge(adapterOf('llama3'))).toMatchObject({ code: 0, stderr: '' });
  });

  test('warns if the adapter names another base', async () => {
    const named = changedAdapter('llama3', { base_model_name_or_path: 'models/other' });
    const output = join(temporaryDirectory(), 'merged');
    const { code, stderr } = await cli('merge', goldenDirectory('llama3'), named, output);
    expect(code).toBe(0);
    expect(stderr).toMatch(
      /^Warning: .* was trained on models\/other, which is not here, and .*llama3 has another name/,
    );
    const own = changedAdapter('llama3', { base_model_name_or_path: 'elsewhere/llama3@main' });
    expect((await cli('merge', goldenDirectory('llama3'), own, `${output}-2`)).stderr).toBe('');
  });

  test('refuses the adapter of another model of the same shape, which is here', async () => {
    const other = join(temporaryDirectory(), 'llama3');
    cpSync(goldenDirectory('llama3'), other, { recursive: true });
    const named = changedAdapter('llama3', { base_model_name_or_path: other });
    const output = join(temporaryDirectory(), 'merged');
    const merge = (...more: string[]) => cli('merge', goldenDirectory('llama3'), named, output, ...more);
    // A copy is the same model.
    expect(await merge()).toMatchObject({ code: 0, stderr: '' });
    rmSync(output, { recursive: true });
    const weights = join(other, 'model.safetensors');
    const bytes = readFileSync(weights);
    bytes.writeUInt8((bytes.at(-1) ?? 0) ^ 1, bytes.length - 1);
    writeFileSync(weights, bytes);
    const { code, stderr } = await merge();
    expect([code, existsSync(output)]).toEqual([1, false]);
    expect(stderr).toMatch(/was trained on .*, and .* is another model; .* --other-base$/);
    expect(await merge('--other-base')).toMatchObject({ code: 0, stderr: '' });
  });

  test('refuses an unsupported adapter in one sentence', async () => {
    const adapter = changedAdapter('llama3', { use_dora: true });
    const output = join(temporaryDirectory(), 'merged');
    const { code, stdout, stderr } = await cli('merge', goldenDirectory('llama3'), adapter, output);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/adapter_config\.json: use_dora: expected false .*, found true$/);
    expect((await cli('merge', '/nowhere', adapter, output)).stderr).toMatch(/^base: there is no \/nowhere /);
  });
});
