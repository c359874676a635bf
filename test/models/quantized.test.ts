// Bases whose linear weights stay in 4 or 8 bits: what transformers computes of them, and what the same values give in floats.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel, openSaved } from '../../src/api/model.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder } from '../../src/models/decoder.js';
import { type LoadOptions, loadDecoder, loadTrainableDecoder } from '../../src/models/load.js';
import { mergeAdapter } from '../../src/models/merge.js';
import { quantizedSummary } from '../../src/models/quantize.js';
import { readWeight, saveDecoder } from '../../src/models/save.js';
import { headLogits } from '../../src/ops/head.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { openCheckpoint, readStoredF32 } from '../../src/weights/checkpoint.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { maxDifference } from '../ops/numbers.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { changedModel } from './changed-model.js';
import { goldenDirectory } from './golden.js';

const directory = goldenDirectory('quantized/bitsandbytes');
const file = openSafetensors(goldenDirectory('quantized/logits.safetensors'));
const golden = readStoredF32(file, 'logits');
const ids = [...new Int32Array(file.read('ids').buffer)];

describe('a base in 4 bits', () => {
  let device: Device;
  beforeAll(() => {
    device = openDevice('cpu');
  });
  afterAll(() => device.dispose());

  async function logitsOf(from: string, options: LoadOptions): Promise<Float32Array> {
    const decoder = await loadDecoder(device, from, options);
    const batch = raggedBatch(device, [{ ids }], decoder.config);
    const logits = device.scope(() => headLogits(decoder.forward(batch), decoder.head()));
    const values = await logits.readFloats();
    for (const each of [logits, batch, decoder]) each.dispose();
    return values;
  }

  it('has the logits of transformers with bitsandbytes, and takes half a byte for a weight', async () => {
    const before = device.stats().liveBytes;
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const held = device.stats().liveBytes - before;
    expect(quantizedSummary(decoder.options.formats ?? new Map())).toBe(
      'quantised weights: 14 kept in nf4_double; products dequantise them',
    );
    decoder.dispose();
    const logits = await logitsOf(directory, { dtype: 'f32' });
    expect(maxDifference(logits, golden)).toBeLessThan(1e-4);
    const whole = await loadDecoder(device, directory, { dtype: 'f32', quantize: 'none' });
    const linear = 2 * 2 * (64 * 64 + 32 * 64) + 2 * 3 * 64 * 128;
    // 4 bits and scales, and 1 KiB of levels for each weight.
    expect(device.stats().liveBytes - before - held).toBeGreaterThan(4 * linear - linear - 14 * 2048);
    whole.dispose();
  });

  it('has the bits of the same values in f32', async () => {
    const [kept, none] = [
      await logitsOf(directory, { dtype: 'f32' }),
      await logitsOf(directory, { dtype: 'f32', quantize: 'none' }),
    ];
    expect(Buffer.compare(bytesOf(kept), bytesOf(none))).toBe(0);
  });

  it('is in bf16 as close to f32 as the same values', async () => {
    const [kept, none] = [
      await logitsOf(directory, { dtype: 'bf16' }),
      await logitsOf(directory, { dtype: 'bf16', quantize: 'none' }),
    ];
    const rounding = maxDifference(none, golden);
    expect(rounding).toBeGreaterThan(1e-3);
    expect(maxDifference(kept, golden)).toBeLessThan(2 * rounding);
    // Where scales multiply sums the bits differ.
    if (device.info().isa !== 'avx512bf16') expect(Buffer.compare(bytesOf(kept), bytesOf(none))).toBe(0);
  });

  it('is made NF4 as bitsandbytes makes it', async () => {
    const logits = await logitsOf(goldenDirectory('llama3'), { dtype: 'f32', quantize: 'nf4' });
    // The scales' mean has another last bit.
    expect(maxDifference(logits, golden)).toBeLessThan(2e-4);
    const exact = await logitsOf(goldenDirectory('llama3'), { dtype: 'f32' });
    expect(maxDifference(logits, exact)).toBeGreaterThan(0.01);
  });

  it('is made int8, closer to what it was', async () => {
    const [exact, nf4, int8] = await Promise.all(
      (['none', 'nf4', 'int8'] as const).map((quantize) =>
        logitsOf(goldenDirectory('llama3'), { dtype: 'f32', quantize }),
      ),
    );
    const [far, near] = [nf4, int8].map((logits) => maxDifference(logits!, exact!));
    expect(near).toBeLessThan((far as number) / 4);
    expect(near).toBeGreaterThan(0);
  });

  it.each(['nf4_head', 'int8_head'] as const)(
    'keeps embedding and head in 8 bits too: %s',
    async (quantize) => {
      for (const base of ['llama3', 'qwen2'] as const) {
        const from = goldenDirectory(base);
        const decoder = await loadDecoder(device, from, { dtype: 'f32', quantize });
        const made = [...decoder.options.formats!].filter(([name]) => /embed_tokens|lm_head/.test(name));
        const heads = decoder.config.tieWordEmbeddings ? 1 : 2;
        expect(made.map(([, format]) => format)).toEqual(Array(heads).fill({ made: 'int8' }));
        // Of the same values in floats.
        const folder = temporaryDirectory();
        await saveDecoder(decoder, folder);
        decoder.dispose();
        const [found, dequantised, plain, exact] = [
          await logitsOf(from, { dtype: 'f32', quantize }),
          await logitsOf(folder, { dtype: 'f32', quantize: 'none' }),
          await logitsOf(from, { dtype: 'f32', quantize: quantize === 'nf4_head' ? 'nf4' : 'int8' }),
          await logitsOf(from, { dtype: 'f32', quantize: 'none' }),
        ];
        expect(found).toEqual(dequantised);
        const [further, before] = [maxDifference(found, plain), maxDifference(plain, exact)];
        expect(further).toBeGreaterThan(0);
        expect(further).toBeLessThan(2 * before);
      }
    },
  );

  it('is written in floats', async () => {
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const folder = temporaryDirectory();
    await saveDecoder(decoder, folder);
    const name = 'model.layers.1.mlp.down_proj.weight';
    const values = await readWeight(decoder, name);
    decoder.dispose();
    const file = openCheckpoint(folder);
    expect(file.format?.(name)).toBeUndefined();
    expect(Buffer.compare(file.read(name), bytesOf(values))).toBe(0);
    file.close();
  });

  const adapter = join(goldenDirectory('llama3'), 'adapter');
  const configOf = (folder: string) => JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));

  it('is merged into a model in floats, with the logits of the adapter on the base', async () => {
    const output = join(temporaryDirectory(), 'merged');
    await mergeAdapter(device, directory, adapter, output);
    expect(configOf(directory)).toHaveProperty('quantization_config');
    expect(configOf(output)).not.toHaveProperty('quantization_config');
    const [apart, merged] = [
      await loadModel(device, directory, { dtype: 'f32', adapter }),
      await loadModel(device, output, { dtype: 'f32' }),
    ];
    expect(merged.decoder.options.formats).toBeUndefined();
    const [expected, found] = [await apart.score([ids]), await merged.score([ids])];
    expect(maxDifference(found[0]!.logprobs, expected[0]!.logprobs)).toBeLessThan(1e-4);
    const base = await loadModel(device, directory, { dtype: 'f32' });
    expect(maxDifference((await base.score([ids]))[0]!.logprobs, expected[0]!.logprobs)).toBeGreaterThan(
      1e-2,
    );
    for (const model of [apart, merged, base]) model.dispose();
  });

  it('is trained whole into a model in floats', async () => {
    const folder = temporaryDirectory();
    const { decoder, parameters } = loadTrainableDecoder(device, directory, { dtype: 'f32' });
    await saveDecoder(decoder, folder);
    for (const each of [decoder, parameters]) each.dispose();
    expect(configOf(folder)).not.toHaveProperty('quantization_config');
    expect(maxDifference(await logitsOf(folder, { dtype: 'f32' }), golden)).toBeLessThan(1e-4);
  });

  it.each([
    ['F32', 'nf4', Number.NaN],
    ['F32', 'int8', Number.NEGATIVE_INFINITY],
    ['BF16', 'nf4', Number.POSITIVE_INFINITY],
    ['F16', 'int8', Number.NaN],
  ] as const)(
    'is not made of weights in %s that are no finite numbers (%s, %f)',
    async (dtype, quantize, bad) => {
      const name = 'model.layers.1.mlp.up_proj.weight';
      const from = await changedModel('llama3', {
        dtype,
        remove: [name],
        add: {
          [name]: {
            shape: [128, 64],
            values: Array(128 * 64)
              .fill(0.5)
              .with(64 * 5 + 3, bad),
          },
        },
      });
      await expect(loadDecoder(device, from, { quantize })).rejects.toThrow(
        `weight '${name}': expected finite values to make ${quantize === 'nf4' ? 'nf4_double' : quantize} of, found ${bad} at [5,3]`,
      );
      (await loadDecoder(device, from, { quantize: 'none' })).dispose();
    },
  );

  it('opens an adapter that was trained on NF4 with quantize: none too', async () => {
    const saved = {
      ...{ directory: goldenDirectory('llama3'), adapter, tokenizer: 'bytes', dtype: 'f32' as const },
      card: { method: 'sft', dtype: 'f32' as const, quantize: 'nf4' as const },
    };
    for (const [quantize, formats] of [
      [undefined, 14],
      ['none', 0],
    ] as const) {
      const model = await openSaved(device, saved, { quantize });
      expect(model.decoder.options.formats?.size ?? 0).toBe(formats);
      expect(await model.score([ids])).toHaveLength(1);
      model.dispose();
    }
  });

  it('keeps the adapter that is added to it in floats', async () => {
    const model = await loadModel(device, directory, { dtype: 'f32', quantize: 'keep' });
    const added = await loadDecoder(device, directory, {
      dtype: 'f32',
      merged: join(goldenDirectory('llama3'), 'adapter'),
    });
    const formats = (decoder: Decoder) => decoder.options.formats?.size ?? 0;
    expect(formats(model.decoder)).toBe(14);
    expect(formats(added)).toBeLessThan(14);
    model.dispose();
    added.dispose();
  });

  it('is refused where features are no whole blocks', async () => {
    await expect(loadDecoder(device, goldenDirectory('stories260k'), { quantize: 'nf4' })).rejects.toThrow(
      "weight 'model.layers.0.mlp.down_proj.weight': model.quantize nf4 takes features in blocks of 64, and it has 172",
    );
  });
});

function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
