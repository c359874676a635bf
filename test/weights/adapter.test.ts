import { copyFileSync, cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ModelConfig } from '../../src/architectures/config.js';
import { modelModules, readModelConfig } from '../../src/architectures/table.js';
import {
  openAdapter,
  openAdapterWeights,
  readAdapterConfig,
  readAdapterHead,
  writeAdapter,
} from '../../src/weights/adapter.js';
import { parseAdapterConfig } from '../../src/weights/adapter-config.js';
import type { JsonObject } from '../../src/weights/json.js';
import { loraPlan } from '../../src/weights/lora-plan.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { writeSafetensors } from '../../src/weights/safetensors-writer.js';
import { goldenPath } from './golden.js';
import { temporaryDirectory } from './temporary-directory.js';

const MODELS = ['qwen2', 'qwen3', 'llama3', 'mistral'] as const;
const modulesOf = (model: string) => modelModules(readModelConfig(goldenPath(model)));
const json = (path: string): Record<string, unknown> => JSON.parse(readFileSync(path, 'utf8'));
const sorted = (config: Record<string, unknown>) => ({
  ...config,
  target_modules: [...(config.target_modules as string[])].sort(),
});

function copyOf(model: string): string {
  const directory = temporaryDirectory();
  for (const file of readdirSync(goldenPath(`${model}/adapter`))) {
    copyFileSync(goldenPath(`${model}/adapter/${file}`), join(directory, file));
  }
  return directory;
}

function edit(directory: string, keys: Record<string, unknown>): void {
  const path = join(directory, 'adapter_config.json');
  writeFileSync(path, JSON.stringify({ ...json(path), ...keys }));
}

describe('an adapter that PEFT saved', () => {
  it.each(MODELS)('is written back to the same files: %s', async (model) => {
    const directory = goldenPath(`${model}/adapter`);
    const adapter = openAdapter(directory, modulesOf(model));
    expect(adapter.plan.modules).toHaveLength(model === 'llama3' ? 4 : 14);
    expect(adapter.plan.modules.every(({ r, scaling }) => r === 4 && scaling === 4)).toBe(true);

    const copy = join(temporaryDirectory(), 'new', 'adapter');
    await writeAdapter(copy, adapter, (name) => adapter.file.read(name));
    adapter.file.close();
    expect(
      readFileSync(join(copy, 'adapter_model.safetensors')).equals(
        readFileSync(join(directory, 'adapter_model.safetensors')),
      ),
    ).toBe(true);
    expect(sorted(json(join(copy, 'adapter_config.json')))).toEqual(
      sorted(json(join(directory, 'adapter_config.json'))),
    );
    expect(readAdapterConfig(copy)).toEqual(adapter.config);
  });

  it('replaces an existing one', async () => {
    const directory = copyOf('llama3');
    const config = parseAdapterConfig({ peft_type: 'LORA', r: 1, target_modules: 'all-linear' }, 'x');
    const plan = loraPlan(config, modulesOf('llama3'));
    await writeAdapter(directory, { config, plan }, (name) => {
      const shape = plan.modules
        .flatMap(
          (m) =>
            [
              [m.aName, m.aShape],
              [m.bName, m.bShape],
            ] as const,
        )
        .find(([n]) => n === name)![1];
      return new Uint8Array(4 * shape[0] * shape[1]);
    });
    expect(readdirSync(directory).sort()).toEqual(['adapter_config.json', 'adapter_model.safetensors']);
    expect(json(join(directory, 'adapter_config.json')).target_modules).toEqual([
      'down_proj',
      'gate_proj',
      'k_proj',
      'o_proj',
      'q_proj',
      'up_proj',
      'v_proj',
    ]);
    const adapter = openAdapter(directory, modulesOf('llama3'));
    expect(adapter.plan.modules).toHaveLength(14);
    expect(adapter.file.tensors.get(plan.modules[0]!.aName)).toMatchObject({ dtype: 'F32', shape: [1, 64] });
    adapter.file.close();
  });
});

describe('openAdapter', () => {
  it('lists missing and unexpected tensors', () => {
    const directory = copyOf('llama3');
    edit(directory, { target_modules: ['q_proj', 'k_proj'] });
    expect(() => openAdapter(directory, modulesOf('llama3'))).toThrow(
      /missing: 'base_model\.model\.model\.layers\.0\.self_attn\.k_proj\.lora_A\.weight'.*; unexpected: 'base_model\.model\.model\.layers\.0\.self_attn\.v_proj\.lora_A\.weight'/,
    );
  });

  it('refuses an adapter of another size', () => {
    const directory = copyOf('llama3');
    edit(directory, { rank_pattern: { v_proj: 8 } });
    expect(() => openAdapter(directory, modulesOf('llama3'))).toThrow(
      /v_proj\.lora_A\.weight': expected shape \[8,64\], found \[4,64\]/,
    );
    expect(() => openAdapter(goldenPath('qwen3/adapter'), modulesOf('llama3'))).toThrow(
      /^.*qwen3\/adapter is an adapter of another model \(it was trained on qwen3\): its model\.layers\.0\.self_attn\.k_proj has 64 outputs, and that of this one 32$/,
    );
  });

  it('says of an adapter of a deeper model how many layers it changes', () => {
    const shallow = modulesOf('llama3').filter(({ name }) => !name.includes('.layers.1.'));
    expect(() => openAdapter(goldenPath('llama3/adapter'), shallow)).toThrow(
      /llama3\/adapter is an adapter of another model .*: it changes layer 2, and this one has 1$/,
    );
  });

  it('says of a run where its adapter is, or that there is none yet', () => {
    const run = temporaryDirectory();
    writeFileSync(join(run, 'config.yaml'), '');
    expect(() => openAdapter(run, modulesOf('llama3'))).toThrow(
      `${run} is a run without an adapter: it trained every weight, or its training has not ended; continue with: npx steptrain run --resume ${run}`,
    );
    cpSync(goldenPath('llama3/adapter'), join(run, 'adapter'), { recursive: true });
    expect(() => openAdapter(run, modulesOf('llama3'))).toThrow(
      `${run} is a run; name its adapter, ${join(run, 'adapter')}`,
    );
  });

  it('names missing files', () => {
    const directory = temporaryDirectory();
    expect(() => openAdapter(directory, modulesOf('llama3'))).toThrow(
      `${directory} is no adapter: it has no adapter_config.json`,
    );
    copyFileSync(goldenPath('llama3/adapter/adapter_config.json'), join(directory, 'adapter_config.json'));
    expect(() => openAdapter(directory, modulesOf('llama3'))).toThrow(
      /cannot read .*adapter_model\.safetensors: no such file/,
    );
    writeFileSync(join(directory, 'adapter_model.bin'), '');
    expect(() => openAdapter(directory, modulesOf('llama3'))).toThrow(
      /adapter_model\.bin: expected the zip archive that torch\.save writes/,
    );
  });
});

describe('readAdapterHead', () => {
  const withHead = async (taskType: string, tensors: Record<string, number[]>) => {
    const directory = copyOf('qwen2');
    edit(directory, { task_type: taskType, modules_to_save: ['classifier', 'score'] });
    const file = openSafetensors(join(directory, 'adapter_model.safetensors'));
    const lora = [...file.tensors].map(([name, { dtype, shape }]) => ({
      name,
      dtype,
      shape,
      data: () => file.read(name),
    }));
    const head = Object.entries(tensors).map(([name, shape]) => ({
      name: `base_model.model.${name}`,
      dtype: 'F32' as const,
      shape,
      data: () => new Uint8Array(4 * shape.reduce((a, b) => a * b)),
    }));
    await writeSafetensors(join(directory, 'adapter_model.safetensors'), [...lora, ...head]);
    file.close();
    return directory;
  };

  it('finds the head of the adapter, which can then be opened', async () => {
    const directory = await withHead('TOKEN_CLS', { 'score.weight': [3, 64], 'score.bias': [3] });
    expect(readAdapterHead(directory)).toEqual({ kind: 'token', numLabels: 3, bias: true });
    const config: ModelConfig = {
      ...readModelConfig(goldenPath('qwen2')),
      head: { kind: 'token', numLabels: 3, labels: undefined, bias: true, dropout: 0 },
    };
    const adapter = openAdapter(directory, modelModules(config));
    expect(adapter.plan.saved.map(({ weight }) => weight)).toEqual(['score.weight', 'score.bias']);
    adapter.file.close();
    expect(() => openAdapter(directory, modulesOf('qwen2'))).toThrow(
      /unexpected: 'base_model\.model\.score\.bias', 'base_model\.model\.score\.weight'/,
    );
  });

  it('returns undefined without a head, and reports a missing one', async () => {
    expect(readAdapterHead(goldenPath('qwen2/adapter'))).toBeUndefined();
    expect(readAdapterHead(await withHead('SEQ_CLS', { 'score.weight': [1, 64] }))).toEqual({
      kind: 'sequence',
      numLabels: 1,
      bias: false,
    });
    const directory = await withHead('SEQ_CLS', {});
    expect(() => readAdapterHead(directory)).toThrow(
      /expected a matrix 'base_model\.model\.score\.weight' for task_type SEQ_CLS/,
    );
  });
});

describe('parseAdapterConfig', () => {
  const parse = (keys: JsonObject) =>
    parseAdapterConfig({ peft_type: 'LORA', target_modules: ['q_proj'], ...keys }, 'adapter_config.json');

  it('uses the defaults of PEFT', () => {
    expect(parse({})).toEqual({
      r: 8,
      loraAlpha: 8,
      loraDropout: 0,
      useRslora: false,
      targetModules: { kind: 'names', names: ['q_proj'] },
      excludeModules: undefined,
      layersToTransform: undefined,
      layersPattern: undefined,
      rankPattern: {},
      alphaPattern: {},
      initLoraWeights: true,
      modulesToSave: [],
      taskType: undefined,
      baseModel: undefined,
    });
  });

  it('ignores bookkeeping and features that are off', () => {
    expect(
      parse({
        peft_version: '0.9.0',
        revision: 'main',
        auto_mapping: { base_model_class: 'X' },
        qalora_group_size: 32,
        use_new_thing: false,
        new_config: {},
        loftq_config: {},
      }).r,
    ).toBe(8);
  });

  it.each([
    ['gate_up_proj', 'A', [1_000_000_000, 0]],
    ['gate_up_proj', 'B', [0, 1_000_000_000]],
    ['down_proj', 'A', [4096, 0]],
    ['down_proj', 'A', [4097, 1]],
  ])(
    'is refused with joint %s.lora_%s of shape %o before it is taken apart',
    async (parameter, side, shape) => {
      const directory = temporaryDirectory();
      const name = `base_model.model.model.layers.0.mlp.experts.lora_${side}.weight`;
      const data = () => new Uint8Array(4 * shape.reduce((product, extent) => product * extent, 1));
      await writeSafetensors(join(directory, 'adapter_model.safetensors'), [
        { name, dtype: 'F32', shape, data },
      ]);
      writeFileSync(
        join(directory, 'adapter_config.json'),
        JSON.stringify({ peft_type: 'LORA', r: 1, target_parameters: [parameter] }),
      );
      expect(() => openAdapterWeights(directory)).toThrow(
        /a matrix of 1 ranks for each of at most 4096 experts/,
      );
    },
  );

  it.each<[string, JsonObject, string]>([
    [
      'another method',
      { peft_type: 'IA3' },
      'peft_type: expected \'LORA\'; other kinds of adapter are not supported, found "IA3"',
    ],
    [
      'trained biases',
      { bias: 'lora_only' },
      'bias: expected \'none\'; trained biases are not supported, found "lora_only"',
    ],
    [
      'DoRA',
      { use_dora: true },
      'use_dora: expected false (this feature of PEFT is not supported), found true',
    ],
    ['replicated layers', { layer_replication: [[0, 4]] }, 'layer_replication: expected null'],
    ['transposed weights', { fan_in_fan_out: true }, 'fan_in_fan_out: expected false'],
    ['activated LoRA', { alora_invocation_tokens: [1] }, 'alora_invocation_tokens: expected null'],
    ['QALoRA', { use_qalora: true }, 'use_qalora: expected false'],
    ['block-diagonal LoRA', { use_bdlora: { nblocks: 2 } }, 'use_bdlora: expected null'],
    ['a bias of B', { lora_bias: true }, 'lora_bias: expected false'],
    [
      'parameters as targets',
      { target_parameters: ['x'] },
      'target_parameters: expected only gate_up_proj and down_proj of experts, and weights of linear modules such as gate.weight of their router',
    ],
    ['single token rows', { trainable_token_indices: [3] }, 'trainable_token_indices: expected null'],
    ['tied copies', { ensure_weight_tying: true }, 'ensure_weight_tying: expected false'],
    [
      'PiSSA',
      { init_lora_weights: 'pissa_niter_4' },
      'init_lora_weights: expected true, false or \'gaussian\'; others may change the base weights and are not supported, found "pissa_niter_4"',
    ],
    ['an unknown key', { use_magic: 1 }, 'use_magic: expected only keys of PEFT 0.21.0, found 1'],
    [
      'no targets',
      { target_modules: null },
      'target_modules: expected a list of names or a pattern, found null',
    ],
    [
      'empty targets',
      { target_modules: [] },
      'target_modules: expected a list of names or a pattern, found []',
    ],
    ['numbers as targets', { target_modules: [1] }, 'target_modules: expected a list of strings, found [1]'],
    ['rank zero', { r: 0 }, 'r: expected an integer from 1'],
    [
      'a rank of a pattern that is no integer',
      { rank_pattern: { q_proj: 2.5 } },
      'adapter_config.json: rank_pattern: q_proj: expected an integer from 1',
    ],
    [
      'a null in a pattern',
      { alpha_pattern: { q_proj: null } },
      'alpha_pattern: q_proj: expected a number, found null',
    ],
    [
      'dropout of everything',
      { lora_dropout: 1 },
      'lora_dropout: expected a number from 0 to below 1, found 1',
    ],
    [
      'layers beside a pattern',
      { target_modules: '.*q_proj', layers_to_transform: [0] },
      'layers_to_transform: expected nothing beside a target_modules that is a string',
    ],
    [
      'a layer pattern alone',
      { layers_pattern: 'layers' },
      'layers_pattern: expected layers_to_transform beside it, found "layers"',
    ],
  ])('refuses %s', (_, keys, message) => {
    expect(() => parse(keys)).toThrow(
      `adapter_config.json: ${message.replace(/^adapter_config\.json: /, '')}`,
    );
  });
});
