// Models written as GGUF and read again: the same log-probabilities, ids and end of text.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { ggufConfig } from '../../src/architectures/gguf-config.js';
import { readModelConfig } from '../../src/architectures/table.js';
import { baseDirectory } from '../../src/models/base.js';
import { openDecoderWeights } from '../../src/models/load.js';
import { ggufKeys, saveGguf } from '../../src/models/save-gguf.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { judgeSteps } from '../../src/scoring/judge.js';
import { ggufTokens } from '../../src/tokenizer/gguf-tokens.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { readTokenizerFiles } from '../../src/tokenizer/tokenizer-files.js';
import { matchWeights, openCheckpoint, readStoredF32 } from '../../src/weights/checkpoint.js';
import { openGgufCheckpoint } from '../../src/weights/gguf/checkpoint.js';
import { openGguf } from '../../src/weights/gguf/file.js';
import { type Typed, writeGguf } from '../../src/weights/gguf/writer.js';
import { random } from '../ops/numbers.js';
import { sharedPath } from '../shared.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { changedModel } from './changed-model.js';
import { writeTokenizer } from './gguf-tokenizer.js';
import { expectedOf } from './golden.js';

const TEXT = "Tom's 12 apples, 3.5 kg (naïve): $x^2 = 144$\n\n  Answer: 12";

/** SentencePiece's BPE, with a token for each byte, as Llama 2 has it, or Gemma: without a space before a text, and cut where none is. */
function writePieces(directory: string, of: 'llama' | 'gemma'): void {
  const bytes = Array.from(
    { length: 256 },
    (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`,
  );
  const merges = [
    ...[
      ['a', 'n'],
      ['▁', 'b'],
      ['an', 'an'],
      ['▁b', 'an'],
      ['▁', '▁'],
      ['▁ban', 'an'],
    ],
    ...[
      ['▁b', 'anan'],
      ['▁banan', 'a'],
      ['n', 'a'],
    ],
  ] as [string, string][];
  const pieces = ['▁', 'a', 'b', 'n', 's', ...new Set(merges.map((pair) => pair.join('')))];
  const tokens = ['<unk>', '<s>', '</s>', ...bytes, ...pieces];
  const special = { single_word: false, lstrip: false, rstrip: false, normalized: false };
  const space = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
  const back = { type: 'Replace', pattern: { String: '▁' }, content: ' ' };
  const strip = { type: 'Strip', content: ' ', start: 1, stop: 0 };
  const isLlama = of === 'llama';
  const json = {
    added_tokens: [
      ...['<unk>', '<s>', '</s>'].map((content, id) => ({ id, content, ...special, special: true })),
      { id: 310, content: '<turn>', ...special, special: false },
    ],
    normalizer: isLlama
      ? { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }, space] }
      : space,
    pre_tokenizer: isLlama
      ? null
      : { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious', invert: false },
    post_processor: null,
    decoder: {
      type: 'Sequence',
      decoders: [back, { type: 'ByteFallback' }, { type: 'Fuse' }, ...(isLlama ? [strip] : [])],
    },
    model: {
      ...{ type: 'BPE', unk_token: '<unk>', fuse_unk: true, byte_fallback: true },
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges,
    },
  };
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(json));
  writeFileSync(
    join(directory, 'tokenizer_config.json'),
    JSON.stringify({ bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>' }),
  );
}

const WAYS = [
  ['qwen2', 'qwen2', {}],
  ['qwen3', 'smollm', {}],
  ['mistral', 'gpt-2', { sliding_window: null }],
  // Of Llama 3's own lengths, as the file has divisors alone.
  ['llama3', 'llama-bpe', { rope_parameters: { factor: 8, original_max_position_embeddings: 8192 } }],
  [
    'qwen2',
    'tekken',
    { rope_parameters: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 128 } },
  ],
  ['llama3', 'qwen2', { rope_parameters: { rope_type: 'linear', factor: 2 } }],
  [
    'qwen2',
    'qwen2',
    {
      rope_parameters: {
        ...{ rope_type: 'yarn', factor: 4, original_max_position_embeddings: 128 },
        attention_factor: 2,
      },
    },
  ],
] as const;

describe('models as GGUF', () => {
  let device: Device;
  beforeAll(() => {
    device = openDevice('cpu');
  });
  afterAll(() => device.dispose());

  /** The tiny Gemma with as many tokens as the tokenizer has, and windows as llama.cpp knows them: here in all three layers. */
  const gemma = (change: object = {}) =>
    changedModel('variants/gemma3-windows', {
      remove: ['model.embed_tokens.weight'],
      add: {
        'model.embed_tokens.weight': { shape: [320, 24], values: [...random(320 * 24, 5)].map((v) => v / 4) },
      },
      config: (config) => ({
        ...config,
        ...{
          vocab_size: 320,
          eos_token_id: 300,
          bos_token_id: null,
          pad_token_id: null,
          initializer_range: 0.02,
        },
        layer_types: Array(3).fill('sliding_attention'),
        ...change,
      }),
    });

  it.each(['llama', 'gemma'] as const)('pieces of %s are the same tokenizer again', async (of) => {
    const directory = await gemma();
    writePieces(directory, of);
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F32');
    const file = openGguf(path);
    expect(file.metadata.get('tokenizer.ggml.model')).toBe('llama');
    expect(file.metadata.get('tokenizer.ggml.add_space_prefix')).toBe(of === 'llama');
    // llama.cpp's kinds: unknown, control, byte, normal, of the user, unused.
    const kinds = file.metadata.get('tokenizer.ggml.token_type') as readonly number[];
    expect([0, 1, 2, 3, 258, 259, 310, 311].map((id) => kinds[id])).toEqual([2, 3, 3, 6, 6, 1, 4, 5]);
    file.close();
    const [want, got] = await Promise.all(
      [directory, path].map(async (from) => (await loadModel(device, from, { dtype: 'f32' })).tokenizer()),
    );
    const texts = ['banana bananas', '  ban an', 'nana<turn>ban', 'naïve 😀\n', ' b', ''];
    for (const text of texts) {
      const ids = want!.encode(text);
      expect(got!.encode(text), text).toEqual(ids);
      expect(got!.decode(ids)).toBe(want!.decode(ids));
    }
    expect(want!.encode('banana bananas').length).toBeLessThan(8);
  });

  it('gemma3 has its norms, names and windows as llama.cpp stores them, and is the same model again', async () => {
    const directory = await gemma();
    writeTokenizer(directory, 'qwen2');
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F32');
    const file = openGguf(path);
    const { metadata } = file;
    expect(metadata.get('general.architecture')).toBe('gemma3');
    expect(metadata.get('gemma3.attention.sliding_window')).toBe(5);
    expect(metadata.get('gemma3.rope.scaling.factor')).toBe(8);
    // The names of gguf-py's table for gemma3.
    const layer = [
      ...['attn_norm', 'attn_q', 'attn_k', 'attn_v', 'attn_output', 'attn_q_norm', 'attn_k_norm'],
      ...['post_attention_norm', 'ffn_norm', 'ffn_gate', 'ffn_up', 'ffn_down', 'post_ffw_norm'],
    ];
    const names = [0, 1, 2].flatMap((index) => layer.map((name) => `blk.${index}.${name}.weight`));
    expect([...file.tensors.keys()].sort()).toEqual(
      [...names, 'token_embd.weight', 'output_norm.weight'].sort(),
    );
    const weights = openDecoderWeights(directory, readModelConfig(directory));
    const stored = new Float32Array(file.read('blk.1.ffn_norm.weight').buffer);
    const name = 'model.layers.1.pre_feedforward_layernorm.weight';
    expect([...stored]).toEqual(Array.from(readStoredF32(weights, name), (v) => Math.fround(v + 1)));
    weights.close();
    file.close();
    const [want, got] = [
      await loadModel(device, directory, { dtype: 'f32' }),
      await loadModel(device, path, { dtype: 'f32' }),
    ];
    const ids = [
      [5, 9, 12, 30, 31, 32, 33, 36, 200, 301],
      [7, 8],
    ];
    expect(await got.score(ids)).toEqual(await want.score(ids));
    const { source: _, dtype: __, ...config } = readModelConfig(baseDirectory(path));
    expect(readModelConfig(directory)).toMatchObject(config);
    for (const model of [want, got]) model.dispose();
  });

  it('gemma3 with windows in other layers is refused', async () => {
    const directory = await gemma({ layer_types: ['full_attention', ...Array(2).fill('sliding_attention')] });
    writeTokenizer(directory, 'qwen2');
    await expect(saveGguf(directory, join(temporaryDirectory(), 'model.gguf'), 'F32')).rejects.toThrow(
      /has windows in other layers than five of six/,
    );
  });

  it('qwen3moe has its experts in joint tensors, and is the same model again, also in 8 bits', async () => {
    const vocabulary = (name: string) => ({
      [name]: { shape: [320, 32], values: [...random(320 * 32, 5)].map((v) => v / 4) },
    });
    const change = {
      remove: ['model.embed_tokens.weight', 'lm_head.weight'],
      add: { ...vocabulary('model.embed_tokens.weight'), ...vocabulary('lm_head.weight') },
      config: (config: object) => ({
        ...config,
        ...{ vocab_size: 320, eos_token_id: 300, bos_token_id: null, pad_token_id: null },
        initializer_range: 0.02,
      }),
    };
    const directory = await changedModel('variants/qwen3-moe', change);
    writeTokenizer(directory, 'qwen2');
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F32');
    const file = openGguf(path);
    const { metadata, tensors } = file;
    expect(metadata.get('general.architecture')).toBe('qwen3moe');
    expect(metadata.get('qwen3moe.expert_count')).toBe(6);
    expect(metadata.get('qwen3moe.expert_used_count')).toBe(2);
    expect(metadata.get('qwen3moe.expert_feed_forward_length')).toBe(16);
    // The names of gguf-py's table for qwen3moe.
    const layer = [
      ...['attn_norm', 'attn_q', 'attn_k', 'attn_v', 'attn_output', 'attn_q_norm', 'attn_k_norm', 'ffn_norm'],
      ...['ffn_gate_inp', 'ffn_gate_exps', 'ffn_up_exps', 'ffn_down_exps'],
    ];
    const names = [0, 1].flatMap((index) => layer.map((name) => `blk.${index}.${name}.weight`));
    expect([...tensors.keys()].sort()).toEqual(
      [...names, 'token_embd.weight', 'output.weight', 'output_norm.weight'].sort(),
    );
    expect(tensors.get('blk.1.ffn_down_exps.weight')?.shape).toEqual([6, 32, 16]);
    const weights = openDecoderWeights(directory, readModelConfig(directory));
    const part = file.read('blk.1.ffn_down_exps.weight', { index: 4, of: 6 });
    const own = readStoredF32(weights, 'model.layers.1.mlp.experts.4.down_proj.weight');
    expect([...new Float32Array(part.buffer)]).toEqual([...own]);
    weights.close();
    file.close();
    const ids = [[5, 9, 12, 30, 31, 32, 33, 36, 200, 301]];
    const [want, got] = [
      await loadModel(device, directory, { dtype: 'f32' }),
      await loadModel(device, path, { dtype: 'f32' }),
    ];
    expect(await got.score(ids)).toEqual(await want.score(ids));
    for (const model of [want, got]) model.dispose();
  });

  it.each([
    ['without values', [4096, 0, 0], 4096, /ffn_gate_exps.*weights of 4096 experts.*found \[4096,0,0\]/],
    ['of more experts', [10_000_000, 0, 0], 8, /ffn_gate_exps.*weights of 8 experts/],
    ['of a large number', [2, 1, 32], 5000, /qwen3moe\.expert_count: expected at most 4096 experts/],
  ])(
    'qwen3moe with a joint tensor %s is refused before it is taken apart',
    async (_, shape, count, message) => {
      const path = join(temporaryDirectory(), 'x.gguf');
      const key = (name: string, u32: number): [string, Typed] => [`qwen3moe.${name}`, { u32 }];
      const metadata = new Map<string, Typed>([
        ['general.architecture', { text: 'qwen3moe' }],
        ...[key('attention.key_length', 16), key('expert_count', count)],
      ]);
      const data = () => new Uint8Array(4 * shape.reduce((product, extent) => product * extent, 1));
      await writeGguf(path, metadata, [{ name: 'blk.0.ffn_gate_exps.weight', type: 'F32', shape, data }]);
      expect(() => openGgufCheckpoint(path, 'here')).toThrow(message);
    },
  );

  it.each([
    [{ norm_topk_prob: false }, /has norm_topk_prob: false, which llama\.cpp does not know/],
    [{ mlp_only_layers: [0] }, /has layers without experts, which llama\.cpp does not know/],
  ])('qwen3moe with %o is not written', async (keys, message) => {
    const directory = await changedModel('variants/qwen3-moe', {
      config: (config) => ({ ...config, ...keys }),
    });
    await expect(ggufKeys(directory)).rejects.toThrow(message);
  });

  it('biases of attention are not written outside of Llama, where llama.cpp would count too many tensors', async () => {
    const attention_bias = true;
    const config = (given: object) => ({ ...given, attention_bias });
    for (const directory of [
      await changedModel('qwen3', { config }),
      await changedModel('variants/qwen3-moe', { config }),
      await gemma({ attention_bias }),
    ])
      await expect(ggufKeys(directory)).rejects.toThrow(
        /has attention_bias: true, whose biases of o_proj llama\.cpp does not read/,
      );
  });

  it.each([
    [{ rope_type: 'yarn', factor: 4, beta_fast: 16 }, /yarn with beta_fast 16 .* llama\.cpp takes 32/],
    [{ rope_type: 'yarn', factor: 4, beta_slow: 2 }, /yarn with beta_slow 2 .* llama\.cpp takes 1/],
    [{ rope_type: 'yarn', factor: 4, truncate: false }, /yarn with truncate false .* takes true/],
    [{ rope_type: 'dynamic', factor: 2 }, /scaled as dynamic are not written/],
    [
      {
        ...{ rope_type: 'llama3', factor: 8, original_max_position_embeddings: 128 },
        ...{ low_freq_factor: 1, high_freq_factor: 4 },
      },
      /with 8 or 32 times 8192 original ones, found 8 times 128/,
    ],
  ])('positions scaled by %o are not written', async (rope, message) => {
    const directory = await changedModel('qwen2', {
      config: (config) => ({ ...config, rope_parameters: { rope_theta: 10_000, ...rope } }),
    });
    writeTokenizer(directory, 'qwen2');
    const path = join(temporaryDirectory(), 'model.gguf');
    await expect(saveGguf(directory, path, 'F32')).rejects.toThrow(message);
    expect(existsSync(path)).toBe(false);
  });

  it.each([
    [{ 'rope.scaling.factor': { f32: 2 } }, { rope_type: 'linear', factor: 2 }],
    [{ 'rope.scale_linear': { f32: 4 } }, { rope_type: 'linear', factor: 4 }],
    [{ 'rope.scaling.type': { text: 'none' }, 'rope.scaling.factor': { f32: 2 } }, { rope_type: 'default' }],
    [{ 'rope.scaling.finetuned': { flag: true } }, { rope_type: 'default' }],
    [{ 'rope.scaling.attn_factor': { f32: 1.5 } }, /rope\.scaling\.attn_factor: expected 1 without yarn/],
    [{ 'rope.scaling.type': { text: 'longrope' } }, /scaling\.type: expected none, linear or yarn/],
    [
      {
        ...{ 'rope.scaling.type': { text: 'yarn' }, 'rope.scaling.factor': { f32: 4 } },
        'rope.scaling.yarn_beta_fast': { f32: 16 },
      },
      /yarn_beta_fast: expected 32, which llama\.cpp takes of qwen2/,
    ],
    [{ 'attention.value_length': { u32: 7 } }, /value_length: expected 16, the width of a head/],
    [{ 'rope.dimension_sections': { i32s: [1] } }, /qwen2\.rope\.dimension_sections: expected only keys/],
    [{ logit_scale: { f32: 2 } }, /qwen2\.logit_scale: expected only keys that are known here of qwen2/],
  ] as const)('%o is what llama.cpp makes of it, or refused', async (keys, expected) => {
    const directory = await changedModel('qwen2', {});
    writeTokenizer(directory, 'qwen2');
    const { architecture, shape, tokens } = await ggufKeys(directory);
    const path = join(temporaryDirectory(), 'model.gguf');
    const own = Object.entries(keys).map(([key, value]) => [`qwen2.${key}`, value as Typed] as const);
    const metadata = new Map<string, Typed>([
      ['general.architecture', { text: architecture }],
      ...shape,
      ...tokens,
      ...own,
    ]);
    await writeGguf(path, metadata, []);
    const file = openGguf(path);
    const read = () => ggufConfig(file).rope_parameters;
    if (expected instanceof RegExp) expect(read).toThrow(expected);
    else expect(read()).toEqual({ rope_theta: expect.any(Number), ...expected });
    file.close();
  });

  it('a part of a split model says so', async () => {
    const path = join(temporaryDirectory(), 'model-00002-of-00003.gguf');
    const metadata = new Map<string, Typed>([
      ['split.no', { u32: 1 }],
      ['split.count', { u32: 3 }],
    ]);
    await writeGguf(path, metadata, []);
    expect(() => openGguf(path)).toThrow(
      /is part 2 of 3 of a split model; join them first: llama-gguf-split/,
    );
  });

  it.each(['lstrip', 'rstrip', 'single_word'])('a token with %s is not written', async (way) => {
    const directory = await changedModel('qwen2', {});
    writeTokenizer(directory, 'qwen2');
    const path = join(directory, 'tokenizer.json');
    const json = JSON.parse(readFileSync(path, 'utf8'));
    json.added_tokens.at(-1)[way] = true;
    writeFileSync(path, JSON.stringify(json));
    await expect(ggufKeys(directory)).rejects.toThrow(new RegExp(`has the token .* with ${way}, for which`));
  });

  it.each(WAYS)('%s cut as %s is the same model: %o', async (name, pre, change) => {
    const directory = await changedModel(name, {
      config: (config) => {
        const { rope_parameters: rope, ...rest } = change as { rope_parameters?: object };
        const given = config.rope_parameters as Record<string, unknown>;
        const theta = given.rope_theta;
        const kept = rope && 'rope_type' in rope ? { rope_theta: theta } : given;
        return { ...config, ...rest, eos_token_id: 300, rope_parameters: { ...kept, ...rope } };
      },
    });
    writeTokenizer(directory, pre);
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F32');
    const [want, got] = [directory, path].map((model) => loadModel(device, model, { dtype: 'f32' }));
    const [one, other] = [await (want as typeof got), await got] as const;
    try {
      const ids = expectedOf(name).sequences.map((sequence: readonly number[]) => sequence);
      expect(await other?.score(ids)).toEqual(await one?.score(ids));
      expect(other?.eosTokenIds).toEqual([300]);
    } finally {
      one?.dispose();
      other?.dispose();
    }
    const [a, b] = await Promise.all([directory, baseDirectory(path)].map(loadTokenizer));
    expect(b?.encode(TEXT)).toEqual(a?.encode(TEXT));
    const chat = [{ role: 'user', content: 'Hi<|end|>' }];
    expect(b?.encode(b.applyChatTemplate(chat))).toEqual(a?.encode(a.applyChatTemplate(chat)));
  });

  it.each([
    ['qwen2', 'tied', 1],
    ['qwen3', 'apart', 2],
  ] as const)(
    '%s, whose embedding and head are %s, is scored and continued as it is kept',
    async (name, _, heads) => {
      const directory = await changedModel(name, { config: (config) => ({ ...config, eos_token_id: 300 }) });
      writeTokenizer(directory, 'qwen2');
      const path = join(temporaryDirectory(), 'model.gguf');
      await saveGguf(directory, path, 'Q8_0');
      const ids = expectedOf(name).sequences.map((sequence: readonly number[]) => sequence);
      for (const dtype of ['f32', 'bf16'] as const) {
        const results = [];
        for (const quantize of ['keep', 'none'] as const) {
          const model = await loadModel(device, path, { dtype, quantize });
          const { formats } = model.decoder.options;
          const kept = [...(formats?.keys() ?? [])].filter((weight) => !weight.includes('layers.'));
          expect(kept.length).toBe(quantize === 'keep' ? heads : 0);
          const samples = await model.generate(ids.slice(0, 1), {
            maxNewTokens: 8,
            temperature: 0,
            ignoreEos: true,
          });
          results.push([await model.score(ids), samples[0]?.map(({ tokens }) => [...tokens])]);
          model.dispose();
        }
        expect(results[0]).toEqual(results[1]);
      }
    },
  );

  it('keeps the configuration in the cache for as long as the file is the same', async () => {
    const directory = await changedModel('qwen3', {});
    writeTokenizer(directory, 'gpt-2');
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F16');
    const first = baseDirectory(path);
    expect(baseDirectory(path)).toBe(first);
    expect(readModelConfig(first).numLayers).toBe(readModelConfig(directory).numLayers);
    // Messages name the file, not the cache.
    const model = await loadModel(device, path);
    await expect(judgeSteps(model, '1 + 1', ['2'])).rejects.toThrow(`${path} judges no steps`);
    model.dispose();
    const weights = openCheckpoint(first);
    expect(() => matchWeights(weights, [])).toThrow(`${path}: the weights do not fit`);
    weights.close();
    await saveGguf(directory, path, 'Q8_0');
    expect(baseDirectory(path)).not.toBe(first);
  });

  it('reads a model with another tokenizer where its own is not read', async () => {
    const directory = await changedModel('qwen2', {});
    writeTokenizer(directory, 'gpt-2');
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F32');
    // As files of before 2024 have it.
    const bytes = readFileSync(path);
    bytes.write('tokenizer.ggml.prx', bytes.indexOf('tokenizer.ggml.pre'));
    writeFileSync(path, bytes);
    await expect(loadTokenizer(baseDirectory(path))).rejects.toThrow(/tokenizer.ggml.pre: .*found nothing/);
    const model = await loadModel(device, path);
    expect(await model.score([[1, 2, 3]])).toHaveLength(1);
    model.dispose();
  });

  const qwen = sharedPath('data/tokenizers/qwen2_5');
  it.skipIf(qwen === undefined)(
    `Qwen2.5's own way of cutting is known${qwen ? '' : ' (skipped: ../shared/data is absent)'}`,
    async () => {
      const tokens = ggufTokens(await readTokenizerFiles(qwen as string), 151_936);
      expect(tokens.get('tokenizer.ggml.pre')).toEqual({ text: 'qwen2' });
    },
  );
});
