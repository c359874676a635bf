import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../src/weights/checkpoint.js';
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

async function opened(parts: Parts) {
  const directory = temporaryDirectory();
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
  change: (part: { shape: readonly number[]; bytes: Uint8Array }) => void,
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
      'fewer fp8 scales',
      changed(fp8, 'fp8.weight_scale', (part) => {
        part.bytes = part.bytes.slice(4);
        part.shape = [36, 1];
      }),
      'expected a scale for each of 37 outputs, or each of 2 squares of 128',
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
