// Qwen3.5 against transformers' torch path: log-probabilities, adapters, greedy tokens, branches, sampling under pressure, files.
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { modelWeights, parseModelConfig, readModelConfig } from '../../src/architectures/table.js';
import { cacheShape } from '../../src/generate/cache/keys-values.js';
import { Generator } from '../../src/generate/generator.js';
import { raggedBatch, type Sequence } from '../../src/models/batch.js';
import { draw } from '../../src/models/initial-values.js';
import { loadDecoder, trainableDecoder } from '../../src/models/load.js';
import { saveDecoder } from '../../src/models/save.js';
import { headLogits } from '../../src/ops/head.js';
import { isas, openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { goldenDirectory } from './golden.js';

interface Golden {
  readonly rows: readonly {
    readonly ids: number[];
    readonly logprobs: number[];
    readonly logprobs_adapter: number[];
  }[];
  readonly greedy: readonly { readonly prompt: number[]; readonly new: number[] }[];
}

const MODELS = ['qwen3_5-a', 'qwen3_5-b'];
const goldenOf = (name: string): Golden =>
  JSON.parse(readFileSync(join(goldenDirectory(name), 'expected.json'), 'utf8'));

describe.each(isas)('%s', (isa) => {
  const device = openTest(isa);
  afterAll(() => device.dispose());

  describe.each(MODELS)('%s', (name) => {
    const directory = goldenDirectory(name);
    const { rows, greedy } = goldenOf(name);
    const sequences = rows.map(({ ids }) => ids);

    it('scores as transformers does, with and without the adapter', async () => {
      for (const [key, adapter] of [
        ['logprobs', undefined],
        ['logprobs_adapter', join(directory, 'adapter')],
      ] as const) {
        const model = await loadModel(device, directory, { dtype: 'f32', adapter });
        const scores = await model.score(sequences);
        scores.forEach(({ logprobs }, i) => {
          expect(maxDifference(logprobs, rows[i]?.[key] as number[])).toBeLessThan(1e-4);
        });
        const [alone] = await model.score([sequences[3] as number[]]);
        expect(alone?.logprobs).toEqual(scores[3]?.logprobs);
        model.dispose();
      }
    });

    it('writes the greedy tokens, and scores what it writes alike', async () => {
      const model = await loadModel(device, directory, { dtype: 'f32' });
      const prompts = greedy.map(({ prompt }) => prompt);
      const options = { temperature: 0, maxNewTokens: greedy[0]?.new.length as number, ignoreEos: true };
      const samples = await model.generate(prompts, options);
      expect(samples.map(([sample]) => sample?.tokens)).toEqual(greedy.map(({ new: tokens }) => tokens));
      for (const [i, [sample]] of samples.entries()) {
        const prompt = prompts[i] as number[];
        const [scored] = await model.score([[...prompt, ...(sample?.tokens ?? [])]]);
        const wanted = [...(scored?.logprobs ?? [])].slice(prompt.length - 1);
        expect(maxDifference([...(sample?.logprobs ?? [])], wanted)).toBeLessThan(1e-5);
      }
      model.dispose();
    });

    it('draws the same tokens alone, with others, in pieces, and after pages ran out', async () => {
      const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
      const prompts = [sequences[3], sequences[2], sequences[4], sequences[1]] as number[][];
      const options = { n: 2, seed: 7, maxNewTokens: 80, ignoreEos: true };
      const draw = async (limits: ConstructorParameters<typeof Generator>[1]) => {
        const generator = new Generator(decoder, limits);
        const samples = await generator.generate(prompts, options).samples;
        generator.dispose();
        return samples.map((all) => all.map(({ tokens }) => [...tokens]));
      };
      const together = await draw({});
      expect(await draw({ maxRows: 1 })).toEqual(together);
      expect(await draw({ maxTokens: 8, maxRows: 5 })).toEqual(together);
      const { pageBytes } = cacheShape(decoder);
      expect(await draw({ cacheBytes: 5 * pageBytes })).toEqual(together);
      decoder.dispose();
    });

    it('computes branches as sequences of their own', async () => {
      const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
      const trunk = sequences[2] as number[];
      const branches = [
        { at: 4, ids: [7, 9] },
        { at: 4, ids: [11] },
        { at: 9, ids: [3, 5, 8, 13, 21] },
        { at: trunk.length, ids: [6] },
      ];
      const [ids, positions, branch]: number[][] = [[], [], []];
      trunk.forEach((token, t) => {
        const place = (id: number, position: number, own: number) => {
          ids?.push(id);
          positions?.push(position);
          branch?.push(own);
        };
        place(token, t, 0);
        branches.forEach(({ at, ids: own }, b) => {
          if (at === t + 1) for (const [i, id] of own.entries()) place(id, at + i, b + 1);
        });
      });
      const logitsOf = async (sequence: Sequence) => {
        const batch = raggedBatch(device, [{ ids: [1, 2] }, sequence], decoder.config);
        const logits = device.scope(() => headLogits(decoder.forward(batch), decoder.head()));
        const values = await logits.readFloats();
        logits.dispose();
        batch.dispose();
        const size = decoder.config.vocabSize;
        return (t: number) => values.subarray((2 + t) * size, (3 + t) * size);
      };
      const found = await logitsOf({
        ids: ids as number[],
        positions: positions as number[],
        branch: branch as number[],
      });
      for (const [b, own] of branches.entries()) {
        const alone = await logitsOf({ ids: [...trunk.slice(0, own.at), ...own.ids] });
        own.ids.forEach((_, i) => {
          const at = (branch as number[]).indexOf(b + 1) + i;
          expect(maxDifference(found(at), alone(own.at + i))).toBeLessThan(1e-5);
        });
      }
      decoder.dispose();
    });
  });

  it.each(['nf4', 'int8'] as const)(
    'keeps linear weights of both kinds of layers in %s',
    async (quantize) => {
      // Blocks of NF4 are of 64 features.
      const json = JSON.parse(readFileSync(join(goldenDirectory('qwen3_5-a'), 'config.json'), 'utf8'));
      const config = parseModelConfig({ ...json, intermediate_size: 128 }, 'config.json');
      const specs = modelWeights(config).map(({ name, shape, init }, i) => ({
        name,
        shape,
        init: draw(init, shape, 1, i),
      }));
      const made = trainableDecoder(device, config, specs, { dtype: 'f32' });
      const [exact, floats] = [join(temporaryDirectory(), 'exact'), join(temporaryDirectory(), 'floats')];
      await saveDecoder(made.decoder, exact);
      made.decoder.dispose();
      made.parameters.dispose();

      const decoder = await loadDecoder(device, exact, { dtype: 'f32', quantize });
      const modules = [...(decoder.options.formats ?? [])].map(([name]) => name.split('.').at(-2));
      expect([...new Set(modules)].sort()).toEqual(
        [
          'in_proj_qkv',
          'in_proj_z',
          'in_proj_b',
          'in_proj_a',
          'out_proj',
          'q_proj',
          'k_proj',
          'v_proj',
          'o_proj',
        ]
          .concat('gate_proj', 'up_proj', 'down_proj')
          .sort(),
      );
      await saveDecoder(decoder, floats);
      decoder.dispose();
      const scores = async (directory: string, kept: 'nf4' | 'int8' | 'none') => {
        const model = await loadModel(device, directory, { dtype: 'f32', quantize: kept });
        const [score] = await model.score([goldenOf('qwen3_5-a').rows[3]?.ids as number[]]);
        model.dispose();
        return score?.logprobs as Float32Array;
      };
      const found = await scores(exact, quantize);
      expect(found).toEqual(await scores(floats, 'none'));
      expect(maxDifference(found, await scores(exact, 'none'))).toBeGreaterThan(1e-5);
    },
  );

  it('reads the layout of models that see, without the part that sees, and saves the text model', async () => {
    const source = goldenDirectory('qwen3_5-b');
    const folder = temporaryDirectory();
    cpSync(source, folder, { recursive: true });
    const {
      architectures: _,
      model_type: _type,
      tie_word_embeddings,
      ...text
    } = JSON.parse(readFileSync(join(source, 'config.json'), 'utf8'));
    const config = {
      model_type: 'qwen3_5',
      architectures: ['Qwen3_5ForConditionalGeneration'],
      tie_word_embeddings,
      image_token_id: 90,
      vision_config: { model_type: 'qwen3_5_vision', depth: 1 },
      text_config: { ...text, model_type: 'qwen3_5_text', mtp_num_hidden_layers: 1, attn_output_gate: true },
    };
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
    const path = join(folder, 'model.safetensors');
    const bytes = readFileSync(path);
    const length = Number(bytes.readBigUInt64LE(0));
    const header = JSON.parse(bytes.subarray(8, 8 + length).toString());
    const renamed = Object.fromEntries(
      Object.entries(header).map(([key, value]) => [key.replace(/^model\./, 'model.language_model.'), value]),
    );
    const data = bytes.subarray(8 + length);
    const more = { dtype: 'F32', shape: [1], data_offsets: [data.length, data.length + 4] };
    const last = { dtype: 'F32', shape: [1], data_offsets: [data.length + 4, data.length + 8] };
    let json = JSON.stringify({ ...renamed, 'model.visual.pos_embed.weight': more, 'mtp.fc.weight': last });
    json = json.padEnd(Math.ceil(json.length / 8) * 8);
    const size = Buffer.alloc(8);
    size.writeBigUInt64LE(BigInt(json.length));
    writeFileSync(path, Buffer.concat([size, Buffer.from(json), data, Buffer.alloc(8)]));

    expect(readModelConfig(folder)).toMatchObject({ modelType: 'qwen3_5_text', tieWordEmbeddings: true });
    const decoder = await loadDecoder(device, folder, { dtype: 'f32' });
    const saved = join(temporaryDirectory(), 'saved');
    await saveDecoder(decoder, saved);
    decoder.dispose();
    const { rows } = goldenOf('qwen3_5-b');
    for (const each of [folder, saved]) {
      const model = await loadModel(device, each, { dtype: 'f32' });
      const [score] = await model.score([rows[3]?.ids as number[]]);
      expect(maxDifference(score?.logprobs as Float32Array, rows[3]?.logprobs as number[])).toBeLessThan(
        1e-4,
      );
      model.dispose();
    }
    expect(JSON.parse(readFileSync(join(saved, 'config.json'), 'utf8'))).toMatchObject({
      model_type: 'qwen3_5_text',
      architectures: ['Qwen3_5ForCausalLM'],
      rope_parameters: { partial_rotary_factor: 0.5, rope_theta: 5_000_000 },
    });
  });
});
