// Qwen3.5 as llama.cpp stores it: heads in its order, decays as -exp, norms with their 1, convolutions of two extents; experts.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { readModelConfig } from '../../src/architectures/table.js';
import { baseDirectory } from '../../src/models/base.js';
import { openDecoderWeights } from '../../src/models/load.js';
import { ggufKeys, saveGguf } from '../../src/models/save-gguf.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { openCheckpoint, readStoredF32 } from '../../src/weights/checkpoint.js';
import { openGgufCheckpoint } from '../../src/weights/gguf/checkpoint.js';
import { openGguf } from '../../src/weights/gguf/file.js';
import { type GgufSource, type Typed, writeGguf } from '../../src/weights/gguf/writer.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { maxDifference, random } from '../ops/numbers.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { changedModel } from './changed-model.js';
import { writeTokenizer } from './gguf-tokenizer.js';
import { goldenDirectory } from './golden.js';

const IDS = [
  [5, 9, 12, 30, 31, 32, 33, 36, 200, 301],
  [7, 8],
];

/** A tiny model with the tokens of the tokenizer. */
async function tinyModel(
  golden = 'qwen3_5-a',
  keys: Readonly<Record<string, unknown>> = {},
  without: readonly string[] = [],
): Promise<string> {
  const names = ['model.embed_tokens.weight', 'lm_head.weight'];
  const { hiddenSize: width } = readModelConfig(goldenDirectory(golden));
  const values = [...random(320 * width, 5)].map((value) => value / 4);
  const directory = await changedModel(golden, {
    remove: [...names, ...without],
    add: Object.fromEntries(names.map((each) => [each, { shape: [320, width], values }])),
    config: (config) => ({
      ...config,
      ...{ vocab_size: 320, eos_token_id: 300, bos_token_id: null, pad_token_id: null, ...keys },
    }),
  });
  writeTokenizer(directory, 'qwen35');
  return directory;
}

const floats = (bytes: Uint8Array) => new Float32Array(bytes.slice().buffer);

describe('qwen35 as GGUF', () => {
  let device: Device;
  beforeAll(() => {
    device = openDevice('cpu');
  });
  afterAll(() => device.dispose());

  // Two value heads for each key head, so that their order matters.
  it('a model with as many value heads as twice its key heads is stored in llama.cpp order, and read back', async () => {
    const directory = await tinyModel();
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F32');
    const file = openGguf(path);
    const { metadata, tensors } = file;
    expect(Object.fromEntries([...metadata].filter(([key]) => /^qwen35\.(ssm|full|rope)/.test(key)))).toEqual(
      {
        'qwen35.full_attention_interval': 4,
        'qwen35.rope.dimension_count': 8,
        'qwen35.rope.dimension_sections': [2, 1, 1, 0],
        'qwen35.rope.freq_base': 10_000,
        'qwen35.ssm.conv_kernel': 4,
        'qwen35.ssm.group_count': 2,
        'qwen35.ssm.inner_size': 64,
        'qwen35.ssm.state_size': 16,
        'qwen35.ssm.time_step_rank': 4,
      },
    );
    expect(metadata.get('tokenizer.ggml.pre')).toBe('qwen35');
    // The names of llama.cpp's loader for qwen35.
    const linear = ['attn_qkv.weight', 'attn_gate.weight', 'ssm_conv1d.weight', 'ssm_dt.bias', 'ssm_a'];
    linear.push('ssm_beta.weight', 'ssm_alpha.weight', 'ssm_norm.weight', 'ssm_out.weight');
    const full = ['attn_q', 'attn_k', 'attn_v', 'attn_output', 'attn_q_norm', 'attn_k_norm'];
    const every = ['attn_norm', 'post_attention_norm', 'ffn_gate', 'ffn_up', 'ffn_down'];
    const names = [0, 1, 2, 3].flatMap((layer) =>
      [
        ...(layer === 3 ? full.map((name) => `${name}.weight`) : linear),
        ...every.map((name) => `${name}.weight`),
      ].map((name) => `blk.${layer}.${name}`),
    );
    expect([...tensors.keys()].sort()).toEqual(
      [...names, 'token_embd.weight', 'output_norm.weight', 'output.weight'].sort(),
    );
    const weights = openDecoderWeights(directory, readModelConfig(directory));
    const own = (name: string) => readStoredF32(weights, `model.layers.1.linear_attn.${name}`);
    // The heads k0v0 k0v1 k1v0 k1v1 of the checkpoint are k0v0 k1v0 k0v1 k1v1 in the file.
    const order = [0, 2, 1, 3];
    expect([...floats(file.read('blk.1.ssm_a'))]).toEqual(
      order.map((head) => Math.fround(-Math.exp(own('A_log')[head]!))),
    );
    expect([...floats(file.read('blk.1.ssm_dt.bias'))]).toEqual(order.map((head) => own('dt_bias')[head]));
    const hidden = tensors.get('blk.1.ssm_out.weight')!.shape[0]!;
    const rowsOf = (values: Float32Array, width: number, heads: number[], each: number) =>
      heads.flatMap((head) => [...values.slice(head * each * width, (head + 1) * each * width)]);
    expect([...floats(file.read('blk.1.ssm_beta.weight'))]).toEqual(
      rowsOf(own('in_proj_b.weight'), hidden, order, 1),
    );
    expect([...floats(file.read('blk.1.attn_gate.weight'))]).toEqual(
      rowsOf(own('in_proj_z.weight'), hidden, order, 16),
    );
    // q and k (2 · 2 · 16 rows) stay.
    const [stays, moves] = [
      own('in_proj_qkv.weight').slice(0, 64 * hidden),
      own('in_proj_qkv.weight').slice(64 * hidden),
    ];
    expect([...floats(file.read('blk.1.attn_qkv.weight'))]).toEqual([
      ...stays,
      ...rowsOf(moves, hidden, order, 16),
    ]);
    expect(tensors.get('blk.1.ssm_conv1d.weight')!.shape).toEqual([128, 4]);
    const out = own('out_proj.weight');
    expect([...floats(file.read('blk.1.ssm_out.weight')).slice(64, 128)]).toEqual(
      order.flatMap((head) => [...out.slice(64 + head * 16, 64 + (head + 1) * 16)]),
    );
    expect([...floats(file.read('blk.1.ssm_norm.weight'))]).toEqual([...own('norm.weight')]);
    expect(floats(file.read('blk.1.attn_norm.weight'))[3]).toBe(
      Math.fround(readStoredF32(weights, 'model.layers.1.input_layernorm.weight')[3]! + 1),
    );
    weights.close();
    file.close();
  });

  it.each(['F32', 'BF16'] as const)('the model is the same again in %s', async (type) => {
    const directory = await tinyModel();
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, type);
    const [want, got] = [
      await loadModel(device, directory, { dtype: 'f32' }),
      await loadModel(device, path, { dtype: 'f32' }),
    ];
    const { source: _, dtype: __, ...config } = readModelConfig(baseDirectory(path));
    expect(readModelConfig(directory)).toMatchObject(config);
    const [a, b] = [await want.score(IDS), await got.score(IDS)];
    // log(exp(x)) rounds; BF16 more so.
    const limit = type === 'F32' ? 2e-6 : 0.05;
    a.forEach(({ logprobs }, row) => {
      expect(maxDifference(b[row]!.logprobs, logprobs)).toBeLessThan(limit);
    });
    for (const model of [want, got]) model.dispose();
  });

  it('blocks that predict tokens further on are not read', async () => {
    const directory = await tinyModel();
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F32');
    const { longer } = await withBlock(path, 5, 1);
    expect(readModelConfig(baseDirectory(longer)).numLayers).toBe(4);
    const [want, got] = [openCheckpoint(baseDirectory(path)), openGgufCheckpoint(longer, 'longer')];
    expect([...got.tensors.keys()].sort()).toEqual([...want.tensors.keys()].sort());
    for (const checkpoint of [want, got]) checkpoint.close();
    // Without the key it is a layer of the model, which lacks its other tensors.
    const { longer: refused } = await withBlock(path, 4, 0);
    await expect(loadModel(device, refused)).rejects.toThrow(/eh_proj|blk\.4/);
  });

  it('decays that are not below 0 are refused', async () => {
    const directory = await tinyModel();
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F32');
    const broken = join(temporaryDirectory(), 'broken.gguf');
    await copied(path, broken, (tensor) =>
      tensor.name === 'blk.1.ssm_a' ? { ...tensor, data: () => new Uint8Array(16) } : tensor,
    );
    await expect(loadModel(device, broken)).rejects.toThrow(/blk\.1\.ssm_a.*expected values below 0/);
  });

  it.each([
    [{ linear_key_head_dim: 8 }, /linear_key_head_dim 8 and linear_value_head_dim 16/],
    [
      { layer_types: ['linear_attention', 'full_attention', 'linear_attention', 'linear_attention'] },
      /full_attention is not each so many layers/,
    ],
    [{ layer_types: Array(4).fill('linear_attention') }, /full_attention is not each so many layers/],
  ])('%o is not written', async (change, message) => {
    const directory = await changedModel('qwen3_5-a', { config: (config) => ({ ...config, ...change }) });
    await expect(ggufKeys(directory)).rejects.toThrow(message);
  });
});

describe('qwen35moe as GGUF', () => {
  let device: Device;
  beforeAll(() => {
    device = openDevice('cpu');
  });
  afterAll(() => device.dispose());

  /** Layers 0 and 1 of the golden model, of which the second attends, and the file of it. */
  async function written() {
    const golden = openSafetensors(join(goldenDirectory('variants/qwen3_5-moe'), 'model.safetensors'));
    const third = [...golden.tensors.keys()].filter((name) => name.startsWith('model.layers.2.'));
    golden.close();
    const layers = { num_hidden_layers: 2, layer_types: ['linear_attention', 'full_attention'] };
    const directory = await tinyModel('variants/qwen3_5-moe', layers, third);
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F32');
    return { directory, path };
  }

  const scored = async (path: string) => {
    const model = await loadModel(device, path, { dtype: 'f32' });
    const scores = (await model.score(IDS)).map(({ logprobs }) => logprobs);
    model.dispose();
    return scores;
  };

  it('has the names and keys of llama.cpp, and is the same again', async () => {
    const { directory, path } = await written();
    const file = openGguf(path);
    expect(
      Object.fromEntries([...file.metadata].filter(([key]) => /expert|feed_forward|architecture/.test(key))),
    ).toEqual({
      'general.architecture': 'qwen35moe',
      'qwen35moe.expert_count': 5,
      'qwen35moe.expert_used_count': 2,
      'qwen35moe.expert_feed_forward_length': 10,
      'qwen35moe.expert_shared_feed_forward_length': 14,
    });
    const shapes = Object.fromEntries(
      [...file.tensors.values()].flatMap(({ name, shape }) =>
        name.startsWith('blk.1.ffn') ? [[name.slice(6), shape]] : [],
      ),
    );
    expect(shapes).toEqual({
      'ffn_gate_inp.weight': [5, 24],
      'ffn_gate_exps.weight': [5, 10, 24],
      'ffn_up_exps.weight': [5, 10, 24],
      'ffn_down_exps.weight': [5, 24, 10],
      'ffn_gate_inp_shexp.weight': [24],
      'ffn_gate_shexp.weight': [14, 24],
      'ffn_up_shexp.weight': [14, 24],
      'ffn_down_shexp.weight': [24, 14],
    });
    file.close();
    // A file has no range of first values.
    const { source: _, dtype: __, initializerRange: ___, ...config } = readModelConfig(baseDirectory(path));
    expect(readModelConfig(directory)).toMatchObject(config);
    const [want, got] = [await scored(directory), await scored(path)];
    want.forEach((row, i) => {
      expect(maxDifference(got[i]!, row)).toBeLessThan(2e-6);
    });
  });

  it('is read where gates and ups are one tensor, and the gate of the shared expert a matrix', async () => {
    const { path } = await written();
    const joint = join(temporaryDirectory(), 'joint.gguf');
    const file = openGguf(path);
    const read = (layer: number, kind: string) => file.read(`blk.${layer}.ffn_${kind}_exps.weight`);
    const pairs = [0, 1].map((layer) => ({
      name: `blk.${layer}.ffn_gate_up_exps.weight`,
      type: 'F32',
      shape: [5, 20, 24],
      data: () => {
        const [gates, ups] = [read(layer, 'gate'), read(layer, 'up')];
        const size = gates.length / 5;
        const of = (bytes: Uint8Array, expert: number) => bytes.subarray(expert * size, (expert + 1) * size);
        return Buffer.concat(
          Array.from({ length: 5 }, (_, expert) => [of(gates, expert), of(ups, expert)]).flat(),
        );
      },
    }));
    await copied(
      path,
      joint,
      (tensor) => (tensor.name.endsWith('gate_inp_shexp.weight') ? { ...tensor, shape: [1, 24] } : tensor),
      pairs,
      { 'qwen35moe.feed_forward_length': { u32: 0 } },
      (name) => !/ffn_(gate|up)_exps/.test(name),
    );
    file.close();
    expect(await scored(joint)).toEqual(await scored(path));
  });

  it('is refused with other experts than its keys say', async () => {
    const { path } = await written();
    for (const [keys, message] of [
      [{ expert_count: 4 }, /expected the weights of 4 experts \(expert_count\), found \[5,10,24\]/],
      [{ expert_shared_feed_forward_length: 16 }, /shared_expert.*expected shape \[16,24\], found \[14,24\]/],
    ] as const) {
      const other = join(temporaryDirectory(), 'other.gguf');
      const typed = Object.entries(keys).map(([key, u32]) => [`qwen35moe.${key}`, { u32 }]);
      await copied(path, other, (tensor) => tensor, [], Object.fromEntries(typed));
      await expect(loadModel(device, other)).rejects.toThrow(message);
    }
  });
});

type Sources = (tensor: GgufSource) => GgufSource;

/** A copy of a GGUF file with other tensors or keys. */
async function copied(
  from: string,
  to: string,
  change: Sources,
  more: readonly GgufSource[] = [],
  keys: Readonly<Record<string, Typed>> = {},
  isKept: (name: string) => boolean = () => true,
): Promise<void> {
  const file = openGguf(from);
  const typed = ([key, value]: [string, unknown]): [string, Typed] => {
    if (typeof value === 'string') return [key, { text: value }];
    if (typeof value === 'boolean') return [key, { flag: value }];
    if (Array.isArray(value))
      return [key, typeof value[0] === 'string' ? { texts: value } : { i32s: value as number[] }];
    return [
      key,
      Number.isInteger(value) && !/freq_base/.test(key) ? { u32: value as number } : { f32: value as number },
    ];
  };
  const metadata = new Map([...file.metadata].map(typed));
  for (const [key, value] of Object.entries(keys)) metadata.set(key, value);
  const tensors = [...file.tensors.values()].flatMap(({ name, type, shape }) =>
    isKept(name) ? [change({ name, type: type.name, shape, data: () => file.read(name) })] : [],
  );
  await writeGguf(to, metadata, [...tensors, ...more]);
  file.close();
}

async function withBlock(path: string, count: number, nextn: number) {
  const longer = join(temporaryDirectory(), 'longer.gguf');
  const block = {
    name: 'blk.4.nextn.eh_proj.weight',
    type: 'F32',
    shape: [4, 8],
    data: () => new Uint8Array(128),
  };
  await copied(path, longer, (tensor) => tensor, [block], {
    'qwen35.block_count': { u32: count },
    'qwen35.nextn_predict_layers': { u32: nextn },
  });
  return { longer };
}
