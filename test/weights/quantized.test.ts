import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint, readStoredF32 } from '../../src/weights/checkpoint.js';
import { dequantizedValues, quantizedBytes } from '../../src/weights/quantized/format.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { writeSafetensors } from '../../src/weights/safetensors-writer.js';
import { goldenWeights } from '../ops/quantized-weights.js';
import { goldenPath } from './golden.js';
import { temporaryDirectory } from './temporary-directory.js';

type Parts = Map<string, { dtype: string; shape: readonly number[]; bytes: Uint8Array }>;

/** Tensors of `name` in the golden file. */
function partsOf(name: string): Parts {
  const file = openSafetensors(goldenPath('quantized/weights.safetensors'));
  const parts: Parts = new Map();
  for (const [tensor, { dtype, shape }] of file.tensors)
    if (tensor.startsWith(`${name}.weight`)) parts.set(tensor, { dtype, shape, bytes: file.read(tensor) });
  file.close();
  return parts;
}

/** @param quantization what config.json says of it */
async function opened(parts: Parts, quantization?: object) {
  const directory = temporaryDirectory();
  if (quantization)
    writeFileSync(join(directory, 'config.json'), JSON.stringify({ quantization_config: quantization }));
  await writeSafetensors(
    join(directory, 'model.safetensors'),
    [...parts].map(([name, { dtype, shape, bytes }]) => ({
      name,
      dtype: dtype as 'U8',
      shape,
      data: () => bytes as Uint8Array<ArrayBuffer>,
    })),
  );
  return openCheckpoint(directory);
}

/** The same with bytes of its own. */
function changed(
  parts: Parts,
  name: string,
  change: (part: { dtype: string; shape: readonly number[]; bytes: Uint8Array }) => void,
): Parts {
  const part = { ...parts.get(name)! };
  part.bytes = part.bytes.slice();
  change(part);
  return new Map([...parts, [name, part]]);
}

const STATE = '.quant_state.bitsandbytes__nf4';

function stateOf(parts: Parts, name: string, change: (state: Record<string, unknown>) => void): Parts {
  return changed(parts, `${name}.weight${STATE}`, (part) => {
    const state = JSON.parse(Buffer.from(part.bytes).toString());
    change(state);
    part.bytes = Buffer.from(JSON.stringify(state));
    part.shape = [part.bytes.length];
  });
}

describe('quantised weights of a checkpoint', () => {
  it.each(goldenWeights().weights)(
    'have the values of their library ($name)',
    ({ format, bytes, shape, values }) => {
      expect(bytes.length).toBe(quantizedBytes(format, shape));
      expect(
        dequantizedValues({ format, bytes }, shape).every((value, i) => Object.is(value, values[i])),
      ).toBe(true);
    },
  );

  it('are one tensor in f32, and as they are stored', async () => {
    const file = await opened(partsOf('double'));
    expect([...file.tensors.keys()]).toEqual(['double.weight']);
    expect(file.tensors.get('double.weight')).toMatchObject({ dtype: 'F32', shape: [80, 256] });
    expect(file.format?.('double.weight')).toBe('nf4_double');
    expect(file.read('double.weight').length).toBe(4 * 80 * 256);
    expect(file.quantized?.('double.weight')?.bytes.length).toBe(quantizedBytes('nf4_double', [80, 256]));
    file.close();
  });

  const double = partsOf('double');
  const fp8 = partsOf('fp8');
  const without = (parts: Parts, name: string) => new Map([...parts].filter(([key]) => key !== name));
  it.each([
    [
      'another kind',
      rename(double, STATE, '.quant_state.bitsandbytes__fp4'),
      'expected quant_type nf4, found "fp4"',
    ],
    [
      '8 bits of bitsandbytes',
      new Map([...double, ['other.SCB', fp8.get('fp8.weight_scale')!]]),
      "found its 8-bit ones ('other.SCB')",
    ],
    [
      'scales that bitsandbytes transposed for a CPU',
      changed(double, 'double.weight.absmax', (part) => {
        part.dtype = 'BF16';
        part.bytes = Buffer.alloc(2 * part.bytes.length);
      }),
      "expected 320 bytes of U8 in 'double.weight.absmax' for [80,256], found 640 of BF16; at its first forward on a CPU with AVX-512-BF16 bitsandbytes transposes scales",
    ],
    [
      'another block size',
      stateOf(double, 'double', (state) => {
        state.blocksize = 128;
      }),
      'blocksize: expected 64',
    ],
    [
      'another second block size',
      stateOf(double, 'double', (state) => {
        state.nested_blocksize = 64;
      }),
      'nested_blocksize: expected 256',
    ],
    ...[
      // Infinite in f32 alone.
      ['1e39', 'nested_offset: expected a finite number in f32; the file is damaged, found 1e+39'],
      // As Python writes them, which is no JSON.
      ['NaN', 'expected a JSON value, found "NaN'],
      ['-Infinity', 'expected a JSON value, found "-Infinity'],
    ].map(([offset, said]): [string, Parts, string] => [
      `an offset of ${offset}`,
      changed(double, `double.weight${STATE}`, (part) => {
        const state = Buffer.from(part.bytes).toString();
        part.bytes = Buffer.from(state.replace(/(?<="nested_offset": ?)[^,}]+/, offset as string));
        part.shape = [part.bytes.length];
      }),
      said as string,
    ]),
    [
      'a shape of three',
      stateOf(double, 'double', (state) => {
        state.shape = [8, 10, 256];
      }),
      'shape: expected [outputs, features]',
    ],
    [
      'a shape that is larger',
      stateOf(double, 'double', (state) => {
        state.shape = [81, 256];
      }),
      "expected 10368 bytes in 'double.weight' for [81,256], found 10240",
    ],
    [
      'rows that share blocks',
      stateOf(double, 'double', (state) => {
        state.shape = [640, 32];
      }),
      'a multiple of 64 features',
    ],
    [
      'a state that is no JSON',
      changed(double, `double.weight${STATE}`, ({ bytes }) => bytes.fill(7)),
      'double.weight',
    ],
    [
      'no scales',
      without(double, 'double.weight.nested_absmax'),
      "expected a tensor 'double.weight.nested_absmax' beside it, found none",
    ],
    [
      'a second scale too many',
      changed(double, 'double.weight.nested_absmax', (part) => {
        part.bytes = new Uint8Array(12);
        part.shape = [3];
      }),
      "in 'double.weight.nested_absmax'",
    ],
    [
      'no fp8 scale',
      without(fp8, 'fp8.weight_scale'),
      "expected 'fp8.weight_scale' beside its F8_E4M3 values, found none",
    ],
    [
      'no scale of squares',
      new Map([
        ...without(fp8, 'fp8.weight_scale'),
        ['other.weight_scale_inv', fp8.get('fp8.weight_scale')!],
      ]),
      "expected 'fp8.weight_scale_inv' beside its F8_E4M3 values, found none",
    ],
    [
      'fewer fp8 scales',
      changed(fp8, 'fp8.weight_scale', (part) => {
        part.bytes = part.bytes.slice(4);
        part.shape = [36, 1];
      }),
      'expected a scale for each of 37 outputs, or each of [1,2] squares of 128',
    ],
    [
      'zero points',
      new Map([...fp8, ['fp8.weight_zero_point', fp8.get('fp8.weight_scale')!]]),
      "found 'fp8.weight_zero_point'",
    ],
  ] as const)('are refused in one sentence: %s', async (_, parts, message) => {
    const error = await opened(parts).then(
      (file) => {
        file.close();
        return undefined;
      },
      (thrown: Error) => thrown,
    );
    expect(error?.message).toContain(message);
    expect(error?.message.split('\n')).toHaveLength(1);
  });

  /** A weight of fp8, all ones, with scales 1, 2, 3… of this shape. */
  const scaled = (shape: readonly number[], scales: readonly number[], dtype = 'F8_E4M3'): Parts => {
    const [count, scaleCount] = [shape, scales].map((each) =>
      each.reduce((product, size) => product * size, 1),
    );
    const bytes = new Uint8Array(count as number).fill(dtype === 'I8' ? 1 : 0x38);
    const values = Float32Array.from({ length: scaleCount as number }, (_, i) => i + 1);
    return new Map([
      ['w.weight', { dtype, shape, bytes }],
      ['w.weight_scale', { dtype: 'F32', shape: scales, bytes: new Uint8Array(values.buffer) }],
    ]);
  };
  it.each([
    ['by square', [256, 384], [2, 3], 'e4m3_128', { 0: 1, 128: 2, 383: 3, [128 * 384]: 4 }],
    ['by square of narrow weights', [256, 100], [2, 1], 'e4m3_128', { 0: 1, [128 * 100]: 2 }],
    ['by output', [256, 384], [256, 1], 'e4m3', { 0: 1, 384: 2, [255 * 384]: 256 }],
    ['by output, in one dimension', [256, 384], [256], 'e4m3', { 0: 1, 384: 2 }],
    ['of the whole weight', [256, 384], [], 'e4m3', { 0: 1, [255 * 384]: 1 }],
    ['of the whole weight, as a list', [256, 384], [1], 'e4m3', { 0: 1, [255 * 384]: 1 }],
  ] as const)('have scales %s', async (_, shape, scales, format, values) => {
    const file = await opened(scaled(shape, scales), { weight_block_size: [128, 128] });
    expect(file.format?.('w.weight')).toBe(format);
    const read = readStoredF32(file, 'w.weight');
    for (const [at, value] of Object.entries(values)) expect(read[Number(at)]).toBe(value);
    file.close();
  });

  it.each([
    ['turned', 'F8_E4M3', [3, 2]],
    ['in one row', 'F8_E4M3', [1, 6]],
    ['in one dimension', 'F8_E4M3', [6]],
    ['by square of half that', 'F8_E4M3', [4, 6]],
    ['by output in a row', 'F8_E4M3', [1, 256]],
    ['by square of int8', 'I8', [2, 3]],
  ] as const)('are refused with scales %s', async (_, dtype, scales) => {
    await expect(opened(scaled([256, 384], scales, dtype))).rejects.toThrow(
      /weight 'w\.weight': expected a scale for each of 256 outputs(, or each of \[2,3\] squares of 128)?, found 'w\.weight_scale' of shape/,
    );
  });

  it('are refused in other blocks than config.json says, whose scales have the same shape', async () => {
    const sizes = (key: string, size: unknown) =>
      `config.json: quantization_config: ${key}: expected [128,128], or nothing where scales are by output or of a whole weight, found ${JSON.stringify(size)}`;
    await expect(opened(scaled([150, 150], [2, 2]), { weight_block_size: [100, 100] })).rejects.toThrow(
      sizes('weight_block_size', [100, 100]),
    );
    const group = (size: readonly number[]) => ({
      config_groups: { group_0: { weights: { strategy: 'block', block_structure: size } } },
    });
    await expect(opened(scaled([150, 150], [2, 2]), group([64, 256]))).rejects.toThrow(
      sizes('config_groups: group_0: weights: block_structure', [64, 256]),
    );
    for (const fine of [group([128, 128]), { weight_block_size: null }, { quant_method: 'fp8' }])
      (await opened(scaled([150, 150], [2, 2]), fine)).close();
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])(
    'are refused with a scale of %f as they are read',
    async (bad) => {
      const first = (part: { bytes: Uint8Array }) =>
        part.bytes.set(new Uint8Array(Float32Array.of(bad).buffer));
      for (const [parts, name, scale] of [
        [fp8, 'fp8', 'weight_scale'],
        [partsOf('int8'), 'int8', 'weight_scale'],
        [partsOf('square'), 'square', 'weight_scale_inv'],
        [double, 'double', 'weight.nested_absmax'],
        [partsOf('plain'), 'plain', 'weight.absmax'],
      ] as const) {
        const file = await opened(changed(parts, `${name}.${scale}`, first));
        expect(() => file.quantized?.(`${name}.weight`)).toThrow(
          `weight '${name}.weight': expected finite scales in '${name}.${scale}', found ${bad}`,
        );
        file.close();
      }
    },
  );

  it.each([
    ['I8', 1],
    ['F8_E4M3', 1],
    ['BF16', 2],
    ['F16', 2],
    ['F32', 4],
  ] as const)('of bitsandbytes are the same bytes, stored as %s', async (dtype, size) => {
    const part = double.get('double.weight')!;
    const file = await opened(
      new Map([...double, ['double.weight', { ...part, dtype, shape: [part.bytes.length / size, 1] }]]),
    );
    const known = await opened(double);
    expect([...file.tensors.keys()]).toEqual(['double.weight']);
    expect(file.read('double.weight')).toEqual(known.read('double.weight'));
    for (const each of [file, known]) each.close();
  });

  it('are refused as they are read: other levels, and values that are no numbers', async () => {
    const levels = await opened(
      changed(double, 'double.weight.quant_map', ({ bytes }) => bytes.fill(1, 0, 4)),
    );
    expect(() => levels.read('double.weight')).toThrow(
      "expected the levels of NF4 in 'double.weight.quant_map'",
    );
    levels.close();
    const nan = await opened(changed(fp8, 'fp8.weight', ({ bytes }) => bytes.fill(0xff, 9, 10)));
    expect(() => nan.quantized?.('fp8.weight')).toThrow('expected numbers, found NaN');
    nan.close();
  });
});

function rename(parts: Parts, from: string, to: string): Parts {
  return new Map([...parts].map(([name, part]) => [name.replace(from, to), part]));
}
