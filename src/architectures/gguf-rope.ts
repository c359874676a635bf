/** The scaling of positions in a GGUF file, in the keys and the arithmetic of llama.cpp: read and written. */
import { log, power } from '../native/elementary.js';
import { StepTrainError } from '../native/errors.js';
import { toF32 } from '../weights/convert.js';
import { isFloatDtype } from '../weights/dtype.js';
import { WeightsError } from '../weights/error.js';
import { dequantize } from '../weights/gguf/dequantize.js';
import type { GgufFile } from '../weights/gguf/file.js';
import type { Metadata } from '../weights/gguf/metadata.js';
import type { Typed } from '../weights/gguf/writer.js';
import type { JsonObject } from '../weights/json.js';
import { type RopeConfig, ropeJson } from './rope.js';

/** Llama 3's scalings: the file has the divisors of the frequencies, but not the parameters that gave them. */
const LLAMA3 = [8, 32].map((factor) => ({
  rope_type: 'llama3',
  factor,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
}));

/** Settings of yarn that llama.cpp takes for these architectures, whatever a file says. */
const YARN = { beta_fast: 32, beta_slow: 1, truncate: true };

/** The factor of cos and sin under yarn where nothing else is said. */
const yarnScale = (factor: number) => (factor <= 1 ? 1 : 0.1 * log(factor) + 1);

/**
 * The scaling as keys of `rope_parameters`, or undefined where there is none.
 *
 * @throws WeightsError for one that is not supported, with its key
 */
export function ggufScaling(
  file: GgufFile,
  of: Metadata,
  theta: number,
  headDim: number,
): JsonObject | undefined {
  const key = (name: string) => of.of(`rope.scaling.${name}`);
  const divisors = file.tensors.get('rope_freqs.weight');
  const factor = of.number(key('factor')) ?? of.number(of.of('rope.scale_linear')) ?? 0;
  // llama.cpp's rule for files from before there was a type.
  const type = of.text(key('type')) ?? 'linear';
  const isNone = type === 'none' || (type === 'linear' && (factor === 0 || factor === 1));
  const original = of.integer(key('original_context_length'));
  const attention = of.number(key('attn_factor')) ?? 1;
  if (type !== 'yarn' && attention !== 1) of.fail(key('attn_factor'), `1 without yarn, as type is ${type}`);
  if (isNone) return divisors && llama3Scaling(file, divisors.name, theta, headDim);
  if (divisors)
    throw new WeightsError(
      `${file.path}: has both ${key('type')} ${type} and the divisors rope_freqs.weight`,
    );
  if (type === 'linear') return { rope_type: 'linear', factor };
  if (type !== 'yarn') return of.fail(key('type'), 'none, linear or yarn');
  if (factor <= 0) of.fail(key('factor'), 'a number above 0');
  // llama.cpp reads these keys of other architectures alone.
  const own = { yarn_beta_fast: YARN.beta_fast, yarn_beta_slow: YARN.beta_slow, yarn_ext_factor: 1 };
  for (const [name, value] of Object.entries({ ...own, yarn_attn_factor: 1 }))
    if ((of.number(key(name)) ?? value) !== value)
      of.fail(key(name), `${value}, which llama.cpp takes of ${of.architecture}`);
  return {
    rope_type: 'yarn',
    factor,
    ...(original === undefined ? {} : { original_max_position_embeddings: original }),
    ...(attention === 1 ? {} : { attention_factor: shortest(attention * yarnScale(factor)) }),
  };
}

/**
 * The published scaling that gives the divisors in the tensor.
 *
 * @throws WeightsError where none does
 */
function llama3Scaling(file: GgufFile, name: string, theta: number, headDim: number): JsonObject {
  const { type } = file.tensors.get(name) as { type: Parameters<typeof dequantize>[1] };
  const bytes = file.read(name);
  const stored = isFloatDtype(type.name) ? toF32(bytes, type.name) : dequantize(bytes, type);
  const found = publishedLlama3(stored, theta, headDim);
  if (found) return found;
  throw new WeightsError(
    `${file.path}: ${name} holds a scaling of positions that is none of Llama 3's (factor ${LLAMA3.map(({ factor }) => factor).join(' or ')}); take the model's safetensors`,
  );
}

function publishedLlama3(divisors: ArrayLike<number>, theta: number, headDim: number) {
  return LLAMA3.find((scaling) => {
    const wanted = llama3Divisors(scaling, theta, headDim);
    const same = (value: number, i: number) => Math.abs(value - (divisors[i] ?? Number.NaN)) < 1e-4 * value;
    return wanted.length === divisors.length && wanted.every(same);
  });
}

/** The divisors of the frequencies under Llama 3's scaling. */
function llama3Divisors(
  scaling: Readonly<
    Record<'factor' | 'low_freq_factor' | 'high_freq_factor' | 'original_max_position_embeddings', number>
  >,
  theta: number,
  headDim: number,
): number[] {
  const { factor, low_freq_factor: low, high_freq_factor: high } = scaling;
  const original = scaling.original_max_position_embeddings;
  return Array.from({ length: headDim / 2 }, (_, i) => {
    const wavelength = 2 * Math.PI * power(theta, (2 * i) / headDim);
    if (wavelength < original / high) return 1;
    if (wavelength > original / low) return factor;
    const smooth = (original / wavelength - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  });
}

/**
 * The scaling as a file has it: keys behind the architecture's name; for Llama 3's the tensor `rope_freqs.weight`, [headDim / 2].
 *
 * @throws StepTrainError for one that llama.cpp cannot compute, or that could not be read again
 */
export function scalingAsGguf({ headDim, theta, scaling }: RopeConfig): {
  readonly keys: [string, Typed][];
  readonly divisors?: readonly number[];
} {
  const keys = (factor: number): [string, Typed][] => [
    ['rope.scaling.type', { text: scaling.type }],
    ['rope.scaling.factor', { f32: factor }],
  ];
  switch (scaling.type) {
    case 'default':
      return { keys: [] };
    case 'linear':
      return { keys: keys(scaling.factor) };
    case 'dynamic':
      throw unsupported(
        'positions scaled as dynamic are not written as GGUF; linear, yarn, llama3 and none are',
      );
    case 'llama3': {
      const divisors = llama3Divisors(ropeJson({ headDim, theta, scaling }) as never, theta, headDim);
      if (!publishedLlama3(divisors, theta, headDim))
        throw unsupported(
          `positions scaled as llama3 are written as GGUF with ${LLAMA3.map(({ factor }) => factor).join(' or ')} times 8192 original ones, found ` +
            `${scaling.factor} times ${scaling.originalMaxPositions}`,
        );
      return { keys: [], divisors };
    }
    case 'yarn': {
      const { factor, betaFast, betaSlow, truncate } = scaling;
      const found = { beta_fast: betaFast, beta_slow: betaSlow, truncate };
      for (const [key, value] of Object.entries(YARN))
        if (found[key as keyof typeof YARN] !== value)
          throw unsupported(
            `positions scaled by yarn with ${key} ${found[key as keyof typeof YARN]} are not written as GGUF: llama.cpp takes ${value}`,
          );
      const attention = scaling.attentionFactor / yarnScale(factor);
      const isUsual = Math.abs(attention - 1) < 1e-7;
      return {
        keys: [
          ...keys(factor),
          ['rope.scaling.original_context_length', { u32: scaling.originalMaxPositions }],
          ...(isUsual ? [] : [['rope.scaling.attn_factor', { f32: attention }] as [string, Typed]]),
        ],
      };
    }
  }
}

/** The decimal that a single was written from: 1e-5, not 9.99999974e-6. */
export const shortest = (value: number) => Number(value.toPrecision(7));

const unsupported = (message: string) => new StepTrainError('E_UNSUPPORTED', message);
