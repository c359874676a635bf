// Qwen3.5 with experts: adapters as PEFT writes them, files with experts apart and jointly, states beside experts; the model itself is in variants.test.ts.
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import type { Qwen35Config } from '../../src/architectures/qwen3_5-config.js';
import {
  modelConfigJson,
  modelModules,
  modelWeights,
  newModelConfig,
  parseModelConfig,
  readModelConfig,
} from '../../src/architectures/table.js';
import { Tape } from '../../src/autograd/tape.js';
import { Generator } from '../../src/generate/generator.js';
import { type Adapter, createAdapter, loadAdapter, withHead } from '../../src/models/adapter.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder } from '../../src/models/decoder.js';
import { draw } from '../../src/models/initial-values.js';
import { loadDecoder, openDecoderWeights, trainableDecoder } from '../../src/models/load.js';
import { mergeAdapter } from '../../src/models/merge.js';
import { saveDecoder } from '../../src/models/save.js';
import { nll } from '../../src/objectives/nll.js';
import { headLogits, headLogprobs } from '../../src/ops/head.js';
import { parseAdapterConfig } from '../../src/weights/adapter-config.js';
import type { JsonObject } from '../../src/weights/json.js';
import { loraPlan } from '../../src/weights/lora-plan.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { writeSafetensors } from '../../src/weights/safetensors-writer.js';
import { changeAdapter, someAdapter } from '../generate/some-adapter.js';
import { isas, openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { tensorsIn } from './golden.js';

const directory = goldenPath('variants/qwen3_5-moe');
const adapterPath = join(directory, 'adapter');
const expected = tensorsIn(join(directory, 'adapter-expected.safetensors'));
const config = readModelConfig(directory) as Qwen35Config;

function integers(name: string): number[] {
  const file = openSafetensors(join(directory, 'expected.safetensors'));
  const bytes = file.read(name);
  file.close();
  return [...new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)];
}
const ids = integers('ids');

/** Logits and loss; the gradients of the adapter are in its buffer then. */
async function stepOf(decoder: Decoder, adapter?: Adapter) {
  const { device } = decoder;
  const batch = raggedBatch(device, [{ ids }], decoder.config);
  const tape = new Tape(device);
  const { logits, loss } = device.scope(() =>
    tape.run(() => {
      const hidden = decoder.forward(batch, adapter ? { adapter } : {});
      const targets = device.tensor(Int32Array.from([...ids.slice(1), 0]));
      const share = Float32Array.from(ids, (_, t) => (t < ids.length - 1 ? 1 / (ids.length - 1) : 0));
      const { logprobs } = headLogprobs(hidden, decoder.head(), targets);
      return { logits: headLogits(hidden, decoder.head()), loss: nll(logprobs, device.tensor(share)) };
    }),
  );
  if (adapter?.trainable) tape.backward([[loss, 1]]);
  const found = { logits: await logits.readFloats(), loss: (await loss.readFloats())[0] as number };
  for (const owned of [logits, loss, batch, tape]) owned.dispose();
  return found;
}

const adapterOf = (keys: JsonObject) =>
  parseAdapterConfig({ peft_type: 'LORA', r: 3, lora_alpha: 6, ...keys }, 'adapter_config.json');
const adapted = (keys: JsonObject) => loraPlan(adapterOf(keys), modelModules(config)).modules;

describe.each(isas)('%s', (isa) => {
  const device = openTest(isa);
  afterAll(() => device.dispose());

  it('an adapter of PEFT on all kinds of modules has the logits and gradients of transformers', async () => {
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const adapter = loadAdapter(device, decoder.config, adapterPath, { trainable: true });
    const { logits, loss } = await stepOf(decoder, adapter);
    expect(maxDifference(logits, expected.get('logits')!)).toBeLessThan(1e-4);
    expect(Math.abs(loss - expected.get('loss')![0]!)).toBeLessThan(1e-5);
    const found = new Map<string, Float32Array>();
    for (const { name, grad } of adapter.trainable!.list) found.set(name, await grad!.readFloats());
    let apart = 0;
    for (const [key, wanted] of expected) {
      const name = /^grad\.(.+)$/.exec(key)?.[1];
      const values = name && found.get(name);
      if (name === undefined) continue;
      if (values) apart++;
      const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
      const own = values || jointGradient(name, found);
      expect(maxDifference(own, wanted), name).toBeLessThanOrEqual(1e-3 * largest + 1e-6);
    }
    const onExperts = adapter.plan.modules.filter(({ expert }) => expert);
    expect(onExperts).toHaveLength(3 * 5 * 3);
    expect(apart).toBe(2 * (adapter.plan.modules.length - onExperts.length));
    for (const owned of [adapter, decoder]) owned.dispose();
  });

  it('writes the greedy tokens of transformers', async () => {
    const model = await loadModel(device, directory, { dtype: 'f32' });
    const [long, short] = [0, 1].map((i) => integers(`greedy.${i}`)) as [number[], number[]];
    const prompts = [long.slice(0, 17), short.slice(0, 3)];
    const samples = await model.generate(prompts, { temperature: 0, maxNewTokens: 20, ignoreEos: true });
    expect(samples.map(([sample], i) => [...prompts[i]!, ...sample!.tokens])).toEqual([long, short]);
    model.dispose();
  });
});

/** The gradient of PEFT's joint pair of a layer's experts, from those of each expert's modules. */
function jointGradient(name: string, found: ReadonlyMap<string, Float32Array>): Float32Array {
  const [, experts, inner, side] = /^(.+\.experts)\.(base_layer\.)?lora_([AB])\.weight$/.exec(name)!;
  const modules = inner ? ['gate_proj', 'up_proj'] : ['down_proj'];
  const rank = 3;
  const of = (module: string, expert: number) =>
    found.get(`${experts}.${expert}.${module}.lora_${side}.weight`)!;
  const all = Array.from({ length: 5 }, (_, expert) => modules.map((module) => of(module, expert)));
  // Both halves of gate_up_proj read the same A.
  if (side === 'A')
    return Float32Array.from(
      all.flatMap((parts) => [...parts[0]!].map((_, i) => parts.reduce((sum, part) => sum + part[i]!, 0))),
    );
  const rows = all[0]![0]!.length / rank;
  const joint = new Float32Array(modules.length * rows * rank * 5);
  all.forEach((parts, expert) => {
    parts.forEach((part, p) => {
      part.forEach((x, i) => {
        joint[((p * rows + Math.floor(i / rank)) * rank + (i % rank)) * 5 + expert] = x;
      });
    });
  });
  return joint;
}

describe('qwen3_5_moe', () => {
  const device = openTest();
  afterAll(() => device.dispose());

  it('has the defaults of transformers, and the keys of config.json that it had', () => {
    const sizes = { hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, vocab_size: 96 };
    const parsed = parseModelConfig({ model_type: 'qwen3_5_moe_text', ...sizes }, 'config.json');
    expect(parsed).toMatchObject({
      classPrefix: 'Qwen3_5Moe',
      layers: ['linear', 'linear', 'linear', 'full'],
      experts: { count: 256, perToken: 8, intermediateSize: 512, sharedSize: 512, normalise: true },
    });
    const { transformers_version: _, ...json } = JSON.parse(
      readFileSync(join(directory, 'config.json'), 'utf8'),
    );
    expect(modelConfigJson(config)).toMatchObject(json);
    expect(parseModelConfig(modelConfigJson(config), 'again')).toMatchObject({ experts: config.experts });
    // The classifiers that are trained here are read again.
    const judge = withHead(config, { kind: 'token', numLabels: 1, bias: true });
    expect(parseModelConfig(modelConfigJson(judge), 'judge').head).toMatchObject({ kind: 'token' });
  });

  it('is saved under the names that transformers gives, and is the same again', async () => {
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const saved = temporaryDirectory();
    await saveDecoder(decoder, saved);
    const [before, after] = [directory, saved].map((path) => tensorsIn(join(path, 'model.safetensors')));
    expect([...after!.keys()].sort()).toEqual([...before!.keys()].sort());
    // Norms lose a bit to the 1 that is added to them.
    for (const [name, values] of before!)
      expect(maxDifference(after!.get(name)!, values), name).toBeLessThan(/norm/.test(name) ? 1e-6 : 1e-30);
    expect(JSON.parse(readFileSync(join(saved, 'config.json'), 'utf8'))).toMatchObject({
      model_type: 'qwen3_5_moe_text',
      architectures: ['Qwen3_5MoeForCausalLM'],
      num_experts: 5,
      shared_expert_intermediate_size: 14,
    });
    decoder.dispose();
  });

  /** The golden model with the experts of each layer in two tensors, as transformers keeps them in memory. */
  async function fusedModel(): Promise<string> {
    const folder = temporaryDirectory();
    cpSync(join(directory, 'config.json'), join(folder, 'config.json'));
    const file = openSafetensors(join(directory, 'model.safetensors'));
    const read = (name: string) => file.read(name);
    const others = [...file.tensors]
      .filter(([name]) => !/experts\.\d/.test(name))
      .map(([name, { dtype, shape }]) => ({ name, dtype, shape, data: () => read(name) }));
    const joint = [0, 1, 2].flatMap((layer) => {
      const of = (parts: readonly string[]) =>
        Buffer.concat(
          Array.from({ length: 5 }, (_, expert) =>
            parts.map((part) => read(`model.layers.${layer}.mlp.experts.${expert}.${part}.weight`)),
          ).flat(),
        );
      const tensor = (name: string, shape: number[], parts: readonly string[]) => ({
        name: `model.layers.${layer}.mlp.experts.${name}`,
        dtype: 'F32' as const,
        shape,
        data: () => of(parts),
      });
      return [
        tensor('gate_up_proj', [5, 20, 24], ['gate_proj', 'up_proj']),
        tensor('down_proj', [5, 24, 10], ['down_proj']),
      ];
    });
    await writeSafetensors(join(folder, 'model.safetensors'), [...others, ...joint]);
    file.close();
    return folder;
  }

  it('reads experts that lie in joint tensors, and names one of another shape', async () => {
    const folder = await fusedModel();
    const names = [...tensorsIn(join(folder, 'model.safetensors')).keys()];
    expect(names.filter((name) => name.includes('.experts.'))).toHaveLength(6);
    const readers = [folder, directory].map((path) => openDecoderWeights(path, config));
    const [fused, apart] = readers.map((reader) =>
      modelWeights(config).map(({ name }) => [name, reader.tensors.get(name)?.shape, reader.read(name)]),
    );
    expect(fused).toEqual(apart);
    const part = readers.map((reader) => reader.part!('model.layers.1.mlp.experts.3.up_proj.weight', 8, 16));
    expect(Buffer.from(part[0]!)).toEqual(Buffer.from(part[1]!));
    for (const reader of readers) reader.close();
    const decoder = await loadDecoder(device, folder, { dtype: 'f32' });
    const wanted = tensorsIn(join(directory, 'expected.safetensors')).get('logits')!;
    expect(maxDifference((await stepOf(decoder)).logits, wanted)).toBeLessThan(1e-4);
    decoder.dispose();
    const json = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...json, num_experts: 6 }));
    expect(() => openDecoderWeights(folder, readModelConfig(folder))).toThrow(
      /weight 'model\.layers\.0\.mlp\.experts\.gate_up_proj': expected shape \[6,20,24\], found \[5,20,24\]/,
    );
  });

  it('writes an adapter of modules as PEFT does, dropout and all, and none of parameters', async () => {
    const folder = temporaryDirectory();
    const keys = { target_modules: 'all-linear', lora_dropout: 0.1 };
    const adapter = createAdapter(device, config, adapterOf(keys), { seed: 1 });
    changeAdapter(adapter, 4);
    await adapter.save(folder);
    const json = JSON.parse(readFileSync(join(folder, 'adapter_config.json'), 'utf8'));
    expect([json.target_parameters, json.lora_dropout]).toEqual([null, 0.1]);
    const again = loadAdapter(device, config, folder, { trainable: true });
    expect(await again.trainable!.values.readFloats()).toEqual(await adapter.trainable!.values.readFloats());
    const joint = loadAdapter(device, config, adapterPath, { trainable: true });
    await expect(joint.save(join(folder, 'joint'))).rejects.toThrow(
      /target_parameters: expected target_modules alone: pairs on experts and routers of this model/,
    );
    expect(existsSync(join(folder, 'joint'))).toBe(false);
    for (const owned of [adapter, again, joint]) owned.dispose();
  });

  it('targets what PEFT targets: experts and router by the names of parameters alone', () => {
    const names = (keys: JsonObject) => [
      ...new Set(adapted(keys).map(({ module }) => module.replace(/^model\.layers\.\d+\.|\.\d+(?=\.)/g, ''))),
    ];
    expect(names({ target_modules: ['up_proj'] })).toEqual(['mlp.shared_expert.up_proj']);
    expect(names({ target_modules: '.*mlp.*proj' })).toEqual(
      ['gate', 'up', 'down'].map((name) => `mlp.shared_expert.${name}_proj`),
    );
    const all = names({ target_modules: 'all-linear' });
    expect(all.filter((name) => name.startsWith('mlp.'))).toEqual(
      ['.gate_proj', '.up_proj', '.down_proj', '_gate'].map((name) => `mlp.shared_expert${name}`),
    );
    const read = loraPlan(
      adapterOf({ target_modules: ['q_proj'], target_parameters: ['experts.down_proj', 'gate.weight'] }),
      modelModules(config),
      { strictTargets: false },
    ).modules;
    expect(read.filter(({ expert }) => expert)).toHaveLength(3 * 5);
    expect(read.filter(({ module }) => module.endsWith('mlp.gate'))).toHaveLength(3);
    for (const name of ['gate', 'experts.0.up_proj'])
      expect(() => adapted({ target_modules: ['q_proj', name] })).toThrow(
        `no module of the model is called '${name}'`,
      );
  });

  it('is merged with an adapter to the scores of both', async () => {
    const output = join(temporaryDirectory(), 'merged');
    const report = await mergeAdapter(device, directory, adapterPath, output, { check: [ids] });
    expect(report.largestDifference).toBeLessThan(1e-4);
    const merged = await loadDecoder(device, output, { dtype: 'f32' });
    expect(maxDifference((await stepOf(merged)).logits, expected.get('logits')!)).toBeLessThan(1e-4);
    merged.dispose();
  });

  it('reads the layout of models that see, without the part that sees', async () => {
    const folder = temporaryDirectory();
    const {
      model_type: _,
      architectures: _classes,
      ...text
    } = JSON.parse(readFileSync(join(directory, 'config.json'), 'utf8'));
    const seeing = {
      model_type: 'qwen3_5_moe',
      architectures: ['Qwen3_5MoeForConditionalGeneration'],
      vision_config: { model_type: 'qwen3_5_moe_vision', depth: 1 },
      text_config: { ...text, model_type: 'qwen3_5_moe_text', mtp_num_hidden_layers: 1 },
    };
    writeFileSync(join(folder, 'config.json'), JSON.stringify(seeing));
    const file = openSafetensors(join(await fusedModel(), 'model.safetensors'));
    const renamed = [...file.tensors].map(([name, { dtype, shape }]) => ({
      name: name.replace(/^model\./, 'model.language_model.'),
      dtype,
      shape,
      data: () => file.read(name),
    }));
    const more = ['model.visual.pos_embed.weight', 'mtp.fc.weight'].map((name) => ({
      name,
      dtype: 'F32' as const,
      shape: [1],
      data: () => new Uint8Array(4),
    }));
    await writeSafetensors(join(folder, 'model.safetensors'), [...renamed, ...more]);
    file.close();
    expect(readModelConfig(folder)).toMatchObject({ modelType: 'qwen3_5_moe_text' });
    const found = [];
    for (const path of [folder, directory]) {
      const decoder = await loadDecoder(device, path, { dtype: 'f32' });
      found.push((await stepOf(decoder)).logits);
      decoder.dispose();
    }
    expect(found[0]).toEqual(found[1]);
  });

  it.each(['f32', 'bf16'] as const)(
    'writes with several adapters, states and experts in one forward what each writes alone: %s',
    async (dtype) => {
      const model = await loadModel(device, directory, { dtype });
      const keys = { target_modules: ['q_proj', 'in_proj_qkv', 'down_proj'] };
      const adapters = [
        undefined,
        someAdapter(model, { r: 5, lora_alpha: 16, ...keys }, 1),
        loadAdapter(device, config, adapterPath),
      ];
      const prompts = [
        [...ids, ...ids.slice(0, 30)],
        [...ids, ...ids.slice(0, 27), 7, 8],
        [7, 8],
      ];
      const options = { n: 2, maxNewTokens: 8, temperature: 0.9, ignoreEos: true } as const;
      const drawn = (generator: Generator, adapter: Adapter | undefined) =>
        generator.generate(prompts, { ...options, role: { adapter } }).samples;
      const alone = [];
      for (const adapter of adapters) {
        const generator = new Generator(model.decoder, { maxRows: 1 });
        alone.push(await drawn(generator, adapter));
        generator.dispose();
      }
      const generator = new Generator(model.decoder);
      expect(await Promise.all(adapters.map((adapter) => drawn(generator, adapter)))).toEqual(alone);
      expect(alone[1]).not.toEqual(alone[0]);
      for (const owned of [generator, adapters[1]!, adapters[2]!, model]) owned.dispose();
    },
  );

  it('learns from the first step on with a new adapter', async () => {
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const keys = { target_modules: ['out_proj', 'up_proj', 'shared_expert_gate'] };
    const adapter = createAdapter(device, config, adapterOf(keys), { seed: 1 });
    expect((await stepOf(decoder, adapter)).logits).toEqual((await stepOf(decoder)).logits);
    changeAdapter(adapter, 4);
    await stepOf(decoder, adapter);
    for (const { name, grad } of adapter.trainable!.list)
      expect(
        (await grad!.readFloats()).some((x) => x !== 0),
        name,
      ).toBe(true);
    for (const owned of [adapter, decoder]) owned.dispose();
  });

  it.each(['nf4', 'int8'] as const)('keeps its experts in %s, and not its router', async (quantize) => {
    const made = newModelConfig(
      {
        model_type: 'qwen3_5_moe_text',
        ...{ hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1 },
        ...{ head_dim: 64, num_experts: 3, num_experts_per_tok: 2, moe_intermediate_size: 64 },
        ...{ linear_num_key_heads: 1, linear_num_value_heads: 2, linear_key_head_dim: 32 },
        ...{ linear_value_head_dim: 32, full_attention_interval: 2, initializer_range: 0.1 },
        ...{ max_position_embeddings: 64, tie_word_embeddings: true },
      },
      { vocabSize: 96 },
    );
    const specs = modelWeights(made).map(({ name, shape, init }, i) => ({
      name,
      shape,
      init: draw(init, shape, 7, i),
    }));
    const { decoder: full, parameters } = trainableDecoder(device, made, specs, { dtype: 'f32' });
    const [path, exact] = [temporaryDirectory(), temporaryDirectory()];
    await saveDecoder(full, path);
    parameters.dispose();
    full.dispose();
    const decoder = await loadDecoder(device, path, { dtype: 'f32', quantize });
    const formats = [...decoder.options.formats!.keys()];
    expect(formats).toContain('model.layers.1.mlp.experts.2.down_proj.weight');
    expect(formats).toContain('model.layers.1.mlp.shared_expert.up_proj.weight');
    expect(formats).not.toContain('model.layers.1.mlp.gate.weight');
    await saveDecoder(decoder, exact);
    const dequantised = await loadDecoder(device, exact, { dtype: 'f32' });
    const found = await stepOf(decoder);
    expect(maxDifference(found.logits, (await stepOf(dequantised)).logits)).toBeLessThan(1e-4);
    for (const owned of [decoder, dequantised]) owned.dispose();
  });
});
