// Adapters on experts, bases whose experts are quantised or divided, and saved ones; the model itself is in variants.test.ts.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import {
  modelModules,
  modelWeights,
  newModelConfig,
  readModelConfig,
} from '../../src/architectures/table.js';
import { Tape } from '../../src/autograd/tape.js';
import { adapterSection } from '../../src/config/adapter.js';
import { Generator } from '../../src/generate/generator.js';
import { type Adapter, createAdapter, loadAdapter } from '../../src/models/adapter.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder } from '../../src/models/decoder.js';
import { draw } from '../../src/models/initial-values.js';
import { loadDecoder, trainableDecoder } from '../../src/models/load.js';
import { mergeAdapter } from '../../src/models/merge.js';
import { chosenFormats } from '../../src/models/quantize.js';
import { saveDecoder } from '../../src/models/save.js';
import { nll } from '../../src/objectives/nll.js';
import { headLogits, headLogprobs } from '../../src/ops/head.js';
import { parseAdapterConfig } from '../../src/weights/adapter-config.js';
import type { JsonObject } from '../../src/weights/json.js';
import { loraPlan } from '../../src/weights/lora-plan.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { changeAdapter, someAdapter } from '../generate/some-adapter.js';
import { isas, openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { tensorsIn } from './golden.js';

const NAME = 'variants/qwen3-moe';
const directory = goldenPath(NAME);
const expected = tensorsIn(join(directory, 'adapter-expected.safetensors'));

function idsOf(): number[] {
  const file = openSafetensors(join(directory, 'expected.safetensors'));
  const bytes = file.read('ids');
  file.close();
  return [...new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)];
}
const ids = idsOf();

/** Logits, loss and the gradients of an adapter. */
async function stepOf(decoder: Decoder, adapter: Adapter, dropout?: { seed: number; step: number }) {
  const { device } = decoder;
  const batch = raggedBatch(device, [{ ids, rowId: 3 }], decoder.config);
  const tape = new Tape(device);
  const { logits, loss } = device.scope(() =>
    tape.run(() => {
      const hidden = decoder.forward(batch, { adapter, dropout });
      const targets = device.tensor(Int32Array.from([...ids.slice(1), 0]));
      const share = Float32Array.from(ids, (_, t) => (t < ids.length - 1 ? 1 / (ids.length - 1) : 0));
      const { logprobs } = headLogprobs(hidden, decoder.head(), targets);
      return { logits: headLogits(hidden, decoder.head()), loss: nll(logprobs, device.tensor(share)) };
    }),
  );
  tape.backward([[loss, 1]]);
  const found = {
    logits: await logits.readFloats(),
    loss: (await loss.readFloats())[0] as number,
    gradients: await adapter.trainable!.grads.readFloats(),
  };
  for (const owned of [logits, loss, batch, tape]) owned.dispose();
  return found;
}

describe.each(isas)('%s', (isa) => {
  const device = openTest(isa);
  afterAll(() => device.dispose());

  it('an adapter on attention, router and experts has the logits and gradients of transformers', async () => {
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const adapter = loadAdapter(device, decoder.config, join(directory, 'adapter'), { trainable: true });
    const { logits, loss } = await stepOf(decoder, adapter);
    expect(maxDifference(logits, expected.get('logits')!)).toBeLessThan(1e-4);
    expect(Math.abs(loss - expected.get('loss')![0]!)).toBeLessThan(1e-5);
    const names = [...expected.keys()].filter((name) => name.startsWith('grad.'));
    expect(names).toHaveLength(adapter.trainable!.list.length);
    for (const name of names) {
      const found = await adapter.trainable!.get(name.slice('grad.'.length))!.grad!.readFloats();
      const wanted = expected.get(name)!;
      const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
      expect(maxDifference(found, wanted), name).toBeLessThanOrEqual(1e-3 * largest + 1e-6);
    }
    for (const owned of [adapter, decoder]) owned.dispose();
  });
});

describe('qwen3_moe', () => {
  const device = openTest();
  afterAll(() => device.dispose());

  it('reads what PEFT writes of experts that are one parameter, and neither writes nor continues it', async () => {
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const path = join(directory, 'adapter-joint');
    const joint = loadAdapter(device, decoder.config, path, { trainable: true });
    const { logits } = await stepOf(decoder, joint);
    expect(maxDifference(logits, expected.get('logits')!)).toBeLessThan(1e-4);
    const folder = join(temporaryDirectory(), 'new');
    await expect(joint.save(folder)).rejects.toThrow(/: target_parameters: PEFT would misread the pairs/);
    expect(existsSync(folder)).toBe(false);
    expect(() => adapterSection(path)).toThrow(
      /: target_parameters: expected target_modules, since pairs of/,
    );
    for (const owned of [joint, decoder]) owned.dispose();
  });

  /** A new adapter of the golden model's. */
  const adapterOf = (keys: JsonObject) => {
    const config = parseAdapterConfig({ peft_type: 'LORA', r: 3, lora_alpha: 6, ...keys }, 'x');
    return createAdapter(device, readModelConfig(directory), config, { seed: 1 });
  };

  it('with dropout alone has a pair for each expert, and none in the file, which PEFT refuses', async () => {
    const adapter = adapterOf({ target_modules: 'all-linear', lora_dropout: 0.05 });
    changeAdapter(adapter, 4);
    const folder = temporaryDirectory();
    await adapter.save(folder);
    const tensors = tensorsIn(join(folder, 'adapter_model.safetensors'));
    expect([...tensors.keys()].sort()).toEqual(
      adapter.plan.modules.flatMap(({ aName, bName }) => [aName, bName]).sort(),
    );
    const json = join(folder, 'adapter_config.json');
    const stored = JSON.parse(readFileSync(json, 'utf8'));
    expect([stored.lora_dropout, stored.target_parameters]).toEqual([0, null]);
    const again = loadAdapter(device, readModelConfig(directory), folder, { trainable: true });
    expect(again.config.loraDropout).toBe(0);
    expect(await again.trainable!.values.readFloats()).toEqual(await adapter.trainable!.values.readFloats());
    // The dropout of other adapters stays in the file.
    const attention = adapterOf({ target_modules: ['q_proj'], lora_dropout: 0.05 });
    await attention.save(folder);
    expect(JSON.parse(readFileSync(json, 'utf8')).lora_dropout).toBe(0.05);
    for (const owned of [adapter, again, attention]) owned.dispose();
  });

  it.each([
    ['without down_proj', 'target_modules', { target_modules: ['gate_proj', 'up_proj'] }],
    ['by a pattern', 'target_modules', { target_modules: '.*\\.(gate|gate_proj|up_proj|down_proj)' }],
    ['of one layer', 'target_modules', { target_modules: ['layers.1.mlp.gate'] }],
    ['of some layers', 'layers_to_transform', { target_modules: ['gate'], layers_to_transform: [1] }],
    ['but for some', 'exclude_modules', { target_modules: 'all-linear', exclude_modules: ['v_proj'] }],
    ['scaled by the root', 'use_rslora', { target_modules: 'all-linear', use_rslora: true }],
    [
      'of several ranks',
      'rank_pattern and alpha_pattern',
      { target_modules: 'all-linear', rank_pattern: { up_proj: 5 } },
    ],
    ['on whole parameters', 'target_parameters', { target_parameters: ['experts.gate_up_proj'] }],
  ])('a new adapter %s is refused, as PEFT would misread it', (_, key, keys) => {
    expect(() => adapterOf(keys as JsonObject)).toThrow(
      `lora: ${key}: PEFT would misread the pairs of experts`,
    );
  });

  it('a new adapter on experts is refused where some layers have none, and one on attention is not', () => {
    const model = readModelConfig(goldenPath('variants/qwen3-moe-dense-layers'));
    const planOf = (...names: string[]) =>
      loraPlan(parseAdapterConfig({ peft_type: 'LORA', target_modules: names }, 'x'), modelModules(model));
    expect(() => planOf('q_proj', 'gate_proj', 'up_proj', 'down_proj')).toThrow(/target_modules: PEFT would/);
    expect(planOf('q_proj', 'v_proj').modules.length).toBeGreaterThan(0);
  });

  it.each([
    ['a model with layers without experts', 'qwen3-moe-dense-layers', {}, (layer: number) => layer === 1],
    [
      'layers_to_transform, which does not reach parameters',
      'qwen3-moe',
      { layers_to_transform: [1] },
      () => true,
    ],
    [
      'a rank of one layer',
      'qwen3-moe',
      { rank_pattern: { 'model.layers.0.mlp.experts.gate_up_proj': 6 } },
      () => true,
    ],
  ])('reads target_parameters of PEFT with %s', (_, name, keys, has) => {
    const config = parseAdapterConfig(
      {
        peft_type: 'LORA',
        r: 2,
        target_modules: ['q_proj'],
        target_parameters: ['experts.gate_up_proj'],
        ...keys,
      } as JsonObject,
      'x',
    );
    const model = readModelConfig(goldenPath(`variants/${name}`));
    const { modules } = loraPlan(config, modelModules(model), { strictTargets: false });
    const found = modules.filter(({ module }) => !module.endsWith('q_proj'));
    const wanted = modelModules(model).filter(({ name }) => /experts\.\d+\.(gate|up)_proj$/.test(name));
    expect(found.map(({ module }) => module)).toEqual(wanted.map(({ name }) => name));
    expect(wanted.some(({ name }) => has(Number(/layers\.(\d+)/.exec(name)?.[1])))).toBe(true);
    for (const { module, r } of found) {
      const own = 'rank_pattern' in keys && module.startsWith('model.layers.0.') ? 6 : 2;
      expect(r, module).toBe(own);
    }
  });

  it('computes a layer again in the backward with the same masks', async () => {
    const found = [];
    for (const gradientCheckpointing of [false, true]) {
      const decoder = await loadDecoder(device, directory, { dtype: 'f32', gradientCheckpointing });
      const given = loadAdapter(device, decoder.config, join(directory, 'adapter'), { trainable: true });
      const adapter = Object.assign(given, { config: { ...given.config, loraDropout: 0.3 } });
      found.push(await stepOf(decoder, adapter, { seed: 1, step: 2 }));
      if (!gradientCheckpointing) found.push(await stepOf(decoder, adapter, { seed: 1, step: 3 }));
      for (const owned of [adapter, decoder]) owned.dispose();
    }
    expect(found[2]).toEqual(found[0]);
    expect(maxDifference(found[1]!.logits, found[0]!.logits)).toBeGreaterThan(1e-3);
  });

  it('is merged with an adapter to the scores of both', async () => {
    const output = join(temporaryDirectory(), 'merged');
    const report = await mergeAdapter(device, directory, join(directory, 'adapter'), output, {
      check: [ids],
    });
    expect(report.merged).toBe(2 * (2 + 3 * 6));
    expect(report.largestDifference).toBeLessThan(1e-4);
    expect(report.largestLogit).toBeGreaterThan(0.1);
    const model = await loadModel(device, output, { dtype: 'f32' });
    const scored = await model.score([ids]);
    const [other] = await (await loadModel(device, directory, { dtype: 'f32' })).score([ids]);
    expect(maxDifference(scored[0]!.logprobs, other!.logprobs)).toBeGreaterThan(1e-2);
    model.dispose();
  });

  it('is loaded with an adapter in its weights, which is the adapter above them', async () => {
    const adapter = join(directory, 'adapter');
    const merged = await loadDecoder(device, directory, { dtype: 'f32', merged: adapter });
    const batch = raggedBatch(device, [{ ids }], merged.config);
    const logits = device.scope(() => headLogits(merged.forward(batch), merged.head()));
    expect(maxDifference(await logits.readFloats(), expected.get('logits')!)).toBeLessThan(1e-4);
    for (const owned of [logits, batch, merged]) owned.dispose();
  });

  it('is saved under the names of the hub, and is the same again', async () => {
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const saved = temporaryDirectory();
    await saveDecoder(decoder, saved);
    const [before, after] = [directory, saved].map((path) => tensorsIn(join(path, 'model.safetensors')));
    expect([...after!.keys()].sort()).toEqual([...before!.keys()].sort());
    for (const [name, values] of before!) expect(after!.get(name), name).toEqual(values);
    decoder.dispose();
  });

  it.each([
    ['some of the experts', { target_modules: '.*experts\\.[0-3]\\.up_proj' }, /fits 4 of the 6 experts of/],
    [
      'experts of different ranks',
      { target_modules: ['up_proj'], rank_pattern: { '1.up_proj': 4 } },
      /expected one rank and one alpha for all experts of model\.layers\.0\.mlp\.experts\.up_proj/,
    ],
  ])('refuses an adapter on %s', (_, keys, message) => {
    const config = parseAdapterConfig({ peft_type: 'LORA', ...keys } as JsonObject, 'adapter_config.json');
    expect(() => loraPlan(config, modelModules(readModelConfig(directory)))).toThrow(message);
  });

  it.each(['f32', 'bf16'] as const)(
    'writes with several adapters in one forward what each writes alone, and what its forward scores: %s',
    async (dtype) => {
      const model = await loadModel(device, directory, { dtype });
      const adapters = [
        // Scales of 3.2 and 1.7, by which a product rounds otherwise than by 2.
        someAdapter(
          model,
          { r: 5, lora_alpha: 16, target_modules: ['q_proj', 'gate_proj', 'up_proj', 'down_proj', 'gate'] },
          1,
        ),
        someAdapter(
          model,
          { r: 10, lora_alpha: 17, target_modules: ['gate_proj', 'up_proj', 'down_proj'] },
          2,
        ),
        someAdapter(model, { r: 3, target_modules: ['v_proj'] }, 3),
      ];
      const prompts = [
        [5, 9, 12, 30, 31, 32, 33, 36],
        [7, 8],
      ];
      const options = { n: 2, maxNewTokens: 8, temperature: 0.9, ignoreEos: true } as const;
      const all = [undefined, ...adapters];
      const alone = [];
      for (const adapter of all) {
        const generator = new Generator(model.decoder);
        alone.push(await generator.generate(prompts, { ...options, role: { adapter } }).samples);
        generator.dispose();
      }
      const generator = new Generator(model.decoder);
      const together = await Promise.all(
        all.map((adapter) => generator.generate(prompts, { ...options, role: { adapter } }).samples),
      );
      generator.dispose();
      expect(together).toEqual(alone);
      for (const [i, adapter] of all.entries()) {
        const { tokens = [], logprobs = [] } = alone[i]?.[0]?.[0] ?? {};
        const batch = raggedBatch(device, [{ ids: [...prompts[0]!, ...tokens] }], model.decoder.config);
        const found = device.scope(() => {
          const hidden = model.decoder.forward(batch, { adapter });
          const targets = device.tensor(Int32Array.from([...prompts[0]!.slice(1), ...tokens, 0]));
          return headLogprobs(hidden, model.decoder.head(), targets).logprobs;
        });
        const scored = (await found.readFloats()).slice(prompts[0]!.length - 1, -1);
        expect([...logprobs]).toEqual([...scored]);
        for (const owned of [found, batch]) owned.dispose();
        if (i > 0) expect(alone[i]).not.toEqual(alone[0]);
      }
      for (const owned of [...adapters, model]) owned.dispose();
    },
  );

  it('reads in full the experts of a projection that are not all stored in one format', () => {
    const specs = modelWeights(readModelConfig(directory));
    const odd = 'model.layers.1.mlp.experts.3.down_proj.weight';
    const isOf = (name: string) => /layers\.1\.mlp\.experts\.\d+\.down_proj/.test(name);
    for (const other of [undefined, 'e4m3'] as const) {
      const format = (name: string) => (name === odd ? other : 'int8');
      const kept = chosenFormats(specs, { format }, 'keep');
      expect([...kept.keys()].filter(isOf)).toEqual([]);
      expect(kept.get('model.layers.0.mlp.experts.3.down_proj.weight')).toEqual({ stored: 'int8' });
      expect(kept.get('model.layers.1.mlp.experts.3.up_proj.weight')).toEqual({ stored: 'int8' });
    }
    // What is made is made of all.
    const wide = specs.map((spec) => ({ ...spec, shape: spec.shape.map(() => 64) }));
    const made = chosenFormats(wide, { format: (name) => (name === odd ? undefined : 'nf4') }, 'nf4');
    expect([...made].filter(([name]) => isOf(name)).map(([, of]) => of)).toEqual(
      Array(6).fill({ made: 'nf4_double' }),
    );
  });

  /** A model whose rows are whole blocks of every format. */
  async function wideModel(): Promise<string> {
    const config = newModelConfig(
      {
        model_type: 'qwen3_moe',
        ...{ hidden_size: 128, intermediate_size: 256, num_hidden_layers: 2, num_attention_heads: 2 },
        ...{ num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 64, tie_word_embeddings: true },
        initializer_range: 0.1,
      },
      { vocabSize: 96 },
    );
    const specs = modelWeights(config).map(({ name, shape, init }, i) => ({
      name,
      shape,
      init: draw(init, shape, 7, i),
    }));
    const { decoder, parameters } = trainableDecoder(device, config, specs, { dtype: 'f32' });
    const path = temporaryDirectory();
    await saveDecoder(decoder, path);
    parameters.dispose();
    decoder.dispose();
    return path;
  }

  it.each(['nf4', 'int8'] as const)('keeps its experts in %s, and not its router', async (quantize) => {
    const path = await wideModel();
    const whole = await loadDecoder(device, path, { dtype: 'f32' });
    const decoder = await loadDecoder(device, path, { dtype: 'f32', quantize });
    const formats = [...decoder.options.formats!.keys()];
    expect(formats).toContain('model.layers.1.mlp.experts.3.down_proj.weight');
    expect(formats).not.toContain('model.layers.1.mlp.gate.weight');
    // The same values in full, by which the products are checked.
    const exact = temporaryDirectory();
    await saveDecoder(decoder, exact);
    const dequantised = await loadDecoder(device, exact, { dtype: 'f32' });
    const [found, wanted, other] = await Promise.all(
      [decoder, dequantised, whole].map(async (each) => {
        const batch = raggedBatch(device, [{ ids }], each.config);
        const logits = device.scope(() => headLogits(each.forward(batch), each.head()));
        const values = await logits.readFloats();
        for (const owned of [logits, batch]) owned.dispose();
        return values;
      }),
    );
    expect(maxDifference(found!, wanted!)).toBeLessThan(1e-4);
    expect(maxDifference(found!, other!)).toBeGreaterThan(1e-3);
    for (const owned of [whole, decoder, dequantised]) owned.dispose();
  });
});
