/**
 * Rotary position embeddings: the settings of a `config.json` (both spellings), inverse frequencies, and cos/sin tables, in the float32
 * arithmetic of transformers' `modeling_rope_utils.py`: every tensor operation there is one rounding to float32 here, so that the
 * frequencies are the same bits as PyTorch's (its vectorised `powf` may differ in the last bit).
 */
import { cos, log, power, sin } from '../native/elementary.js';
import { show, WeightsError } from '../weights/error.js';
import type { Fields } from '../weights/fields.js';
import type { JsonObject, JsonValue } from '../weights/json.js';

type RopeScaling =
  | { readonly type: 'default' }
  | { readonly type: 'linear'; readonly factor: number }
  /** Equal to `default` up to `maxPositions`. Beyond, frequencies depend on the longest sequence of a batch, which is refused. */
  | { readonly type: 'dynamic'; readonly factor: number; readonly maxPositions: number }
  | {
      readonly type: 'llama3';
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalMaxPositions: number;
    }
  | {
      readonly type: 'yarn';
      readonly factor: number;
      readonly originalMaxPositions: number;
      /** Multiplies cos and sin. */
      readonly attentionFactor: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      readonly truncate: boolean;
    };

export interface RopeConfig {
  readonly headDim: number;
  readonly theta: number;
  readonly scaling: RopeScaling;
}

export interface RopeFrequencies {
  /** [headDim / 2], radians per position */
  readonly inverse: Float32Array<ArrayBuffer>;
  /** Multiplies cos and sin; 1 except for yarn. */
  readonly attentionScaling: number;
}

export interface RopeTable {
  /** [positions, headDim / 2] */
  readonly cos: Float32Array<ArrayBuffer>;
  /** [positions, headDim / 2] */
  readonly sin: Float32Array<ArrayBuffer>;
}

const DEFAULT_THETA = 10_000;
const round = Math.fround;

/** Inverse frequencies; the pair (i, i + headDim / 2) of a head turns by `inverse[i]` radians per position. */
export function ropeFrequencies({ headDim, theta, scaling }: RopeConfig): RopeFrequencies {
  const powers = basePowers(theta, headDim);
  const plain = powers.map((power) => 1 / power);
  switch (scaling.type) {
    case 'default':
    case 'dynamic':
      return { inverse: plain, attentionScaling: 1 };
    case 'linear':
      return { inverse: plain.map((frequency) => frequency / round(scaling.factor)), attentionScaling: 1 };
    case 'llama3':
      return { inverse: plain.map((frequency) => llama3Frequency(frequency, scaling)), attentionScaling: 1 };
    case 'yarn':
      return {
        inverse: yarnFrequencies(powers, theta, headDim, scaling),
        attentionScaling: scaling.attentionFactor,
      };
  }
}

/**
 * cos and sin for positions 0 … `positions` − 1.
 *
 * @throws WeightsError for `dynamic` scaling beyond `max_position_embeddings`
 */
export function ropeTable(rope: RopeConfig, positions: number): RopeTable {
  const { scaling } = rope;
  if (scaling.type === 'dynamic' && positions > scaling.maxPositions) {
    throw new WeightsError(
      `rope_type 'dynamic' beyond max_position_embeddings makes every token depend on the rest of the batch and is not supported: ` +
        `expected at most ${scaling.maxPositions} positions, found ${positions}`,
    );
  }
  const { inverse, attentionScaling } = ropeFrequencies(rope);
  const scale = round(attentionScaling);
  const half = inverse.length;
  const cosines = new Float32Array(positions * half);
  const sines = new Float32Array(positions * half);
  for (let position = 0; position < positions; position++) {
    for (let i = 0; i < half; i++) {
      const angle = round(position * inverse[i]!);
      cosines[position * half + i] = round(cos(angle)) * scale;
      sines[position * half + i] = round(sin(angle)) * scale;
    }
  }
  return { cos: cosines, sin: sines };
}

/** base^(2i / headDim). The stores into a Float32Array are the roundings here and in the callers. */
function basePowers(base: number, headDim: number): Float32Array<ArrayBuffer> {
  const rounded = round(base);
  return Float32Array.from({ length: headDim / 2 }, (_, i) => power(rounded, round((2 * i) / headDim)));
}

function llama3Frequency(frequency: number, scaling: RopeScaling & { type: 'llama3' }): number {
  const { lowFreqFactor, highFreqFactor, originalMaxPositions } = scaling;
  const factor = round(scaling.factor);
  // PyTorch divides a number by a tensor as reciprocal × number.
  const wavelength = round(round(1 / frequency) * round(2 * Math.PI));
  const divided = round(frequency / factor);
  if (wavelength > round(originalMaxPositions / lowFreqFactor)) return divided;
  if (wavelength < round(originalMaxPositions / highFreqFactor)) return frequency;
  const turns = round(round(1 / wavelength) * round(originalMaxPositions));
  const smooth = round(round(turns - round(lowFreqFactor)) / round(highFreqFactor - lowFreqFactor));
  return round(round(round(round(1 - smooth) * frequency) / factor) + round(smooth * frequency));
}

function yarnFrequencies(
  powers: Float32Array,
  theta: number,
  headDim: number,
  scaling: RopeScaling & { type: 'yarn' },
): Float32Array<ArrayBuffer> {
  const [low, high] = yarnRange(theta, headDim, scaling);
  const width = round(low === high ? high + 0.001 - low : high - low);
  return Float32Array.from(powers, (power, i) => {
    const extrapolated = round(1 / power);
    const interpolated = round(1 / round(round(scaling.factor) * power));
    const ramp = Math.min(Math.max(round(round(i - round(low)) / width), 0), 1);
    const keep = round(1 - ramp);
    return round(round(interpolated * round(1 - keep)) + round(extrapolated * keep));
  });
}

/** First and last dimension between which yarn goes over from extrapolation to interpolation. */
function yarnRange(
  theta: number,
  headDim: number,
  scaling: RopeScaling & { type: 'yarn' },
): [number, number] {
  const dimension = (rotations: number) =>
    (headDim * log(scaling.originalMaxPositions / (rotations * 2 * Math.PI))) / (2 * log(theta));
  const [low, high] = [dimension(scaling.betaFast), dimension(scaling.betaSlow)];
  return scaling.truncate
    ? [Math.max(Math.floor(low), 0), Math.min(Math.ceil(high), headDim - 1)]
    : [Math.max(low, 0), Math.min(high, headDim - 1)];
}

/**
 * Reads the rotary settings of a model's `config.json`: `rope_parameters`, or the older `rope_scaling` (with `type` or
 * `rope_type`) together with `rope_theta`.
 *
 * @param config the whole file; `rope_parameters`, `rope_scaling`, `rope_theta` and `original_max_position_embeddings`
 * are read
 * @throws WeightsError for an unsupported type or key, a value out of range, or two spellings that disagree
 */
export function parseRope(
  config: Fields,
  headDim: number,
  maxPositions: number,
  absentTheta: number = DEFAULT_THETA,
): RopeConfig {
  const outer = {
    theta: config.number('rope_theta', 0),
    original: config.integer('original_max_position_embeddings', 1),
  };
  const [modern, legacy] = [config.nested('rope_parameters'), config.nested('rope_scaling')].map(
    (settings) =>
      settings === undefined || Object.keys(settings.object).length === 0
        ? undefined
        : parseSettings(settings, headDim, maxPositions, { ...outer, absentTheta }),
  );
  if (modern !== undefined && legacy !== undefined && JSON.stringify(modern) !== JSON.stringify(legacy)) {
    throw new WeightsError(
      `${config.where}: rope_parameters ${show(config.object.rope_parameters)} and rope_scaling ${show(config.object.rope_scaling)} disagree; remove one of them`,
    );
  }
  const rope = modern ??
    legacy ?? { headDim, theta: outer.theta ?? absentTheta, scaling: { type: 'default' } };
  return usable(rope, config.where);
}

/** Settings of one kind of layer, where a model has several. */
export function parseRopeSettings(
  settings: Fields,
  headDim: number,
  maxPositions: number,
  absentTheta: number,
): RopeConfig {
  const outer = { theta: undefined, original: undefined, absentTheta };
  return usable(parseSettings(settings, headDim, maxPositions, outer), settings.where);
}

function usable(rope: RopeConfig, where: string): RopeConfig {
  const { inverse, attentionScaling } = ropeFrequencies(rope);
  if (!inverse.every(Number.isFinite) || !Number.isFinite(round(attentionScaling))) {
    throw new WeightsError(
      `${where}: the rotary settings ${show(ropeJson(rope))} give frequencies that are not finite`,
    );
  }
  return rope;
}

/**
 * Max tokens that a model with this scaling reads. If `max_position_embeddings` is left at the length before
 * scaling, as Qwen2.5's instructions write it, a length is multiplied by the factor, as in vLLM: the file's for
 * `linear`, the original one for `yarn`. Llama 3's files have the scaled length already, and `dynamic` is refused
 * beyond the file's.
 */
export function scaledPositions({ scaling }: RopeConfig, maxPositions: number): number {
  switch (scaling.type) {
    case 'linear':
      return Math.max(maxPositions, Math.floor(maxPositions * scaling.factor));
    case 'yarn':
      return Math.max(maxPositions, Math.floor(scaling.originalMaxPositions * scaling.factor));
    default:
      return maxPositions;
  }
}

/** The settings in the spelling of transformers 4, which transformers 5 reads too. */
export function ropeKeys(rope: RopeConfig): {
  readonly rope_theta: number;
  readonly rope_scaling: JsonValue;
} {
  const { rope_theta, ...scaling } = ropeJson(rope);
  return { rope_theta, rope_scaling: rope.scaling.type === 'default' ? null : scaling };
}

/** The settings in the spelling of `rope_parameters`. */
export function ropeJson({ theta, scaling }: RopeConfig): JsonObject & { readonly rope_theta: number } {
  const base = { rope_type: scaling.type, rope_theta: theta };
  switch (scaling.type) {
    case 'default':
      return base;
    case 'linear':
    case 'dynamic':
      return { ...base, factor: scaling.factor };
    case 'llama3':
      return {
        ...base,
        factor: scaling.factor,
        low_freq_factor: scaling.lowFreqFactor,
        high_freq_factor: scaling.highFreqFactor,
        original_max_position_embeddings: scaling.originalMaxPositions,
      };
    case 'yarn':
      return {
        ...base,
        factor: scaling.factor,
        original_max_position_embeddings: scaling.originalMaxPositions,
        attention_factor: scaling.attentionFactor,
        beta_fast: scaling.betaFast,
        beta_slow: scaling.betaSlow,
        truncate: scaling.truncate,
      };
  }
}

function parseSettings(
  settings: Fields,
  headDim: number,
  maxPositions: number,
  outer: {
    readonly theta: number | undefined;
    readonly original: number | undefined;
    readonly absentTheta: number;
  },
): RopeConfig {
  const type = settings.string('rope_type') ?? settings.string('type') ?? 'default';
  const alias = settings.string('type');
  if (alias !== undefined && alias !== type) settings.fail('type', `the value of rope_type, '${type}'`);
  const inner = settings.number('rope_theta', 0);
  if (inner !== undefined && outer.theta !== undefined && inner !== outer.theta) {
    settings.fail('rope_theta', `the value of rope_theta beside it, ${outer.theta}`);
  }
  const theta = inner ?? outer.theta ?? outer.absentTheta;
  const partial = settings.number('partial_rotary_factor');
  if (partial !== undefined && partial !== 1)
    settings.fail('partial_rotary_factor', '1 (partial rotation is not supported)');

  const inside = settings.integer('original_max_position_embeddings', 1);
  const scaling = parseScaling(settings, type, maxPositions, outer.original ?? inside ?? maxPositions);
  if (scaling.type === 'default' || scaling.type === 'linear' || scaling.type === 'dynamic') {
    if (inside !== undefined && inside !== maxPositions) {
      settings.fail('original_max_position_embeddings', `nothing for rope_type '${type}'`);
    }
  }
  for (const [key, value] of settings.unread()) {
    if (value !== null) settings.fail(key, `only the keys of rope_type '${type}'`);
  }
  return { headDim, theta, scaling };
}

function parseScaling(
  settings: Fields,
  type: string,
  maxPositions: number,
  originalMaxPositions: number,
): RopeScaling {
  const factor = () => settings.number('factor', 0) ?? settings.fail('factor', 'a number above 0');
  switch (type) {
    case 'default':
      return { type };
    case 'linear':
      return { type, factor: factor() };
    case 'dynamic':
      return { type, factor: factor(), maxPositions };
    case 'llama3': {
      const lowFreqFactor =
        settings.number('low_freq_factor', 0) ?? settings.fail('low_freq_factor', 'a number above 0');
      const highFreqFactor =
        settings.number('high_freq_factor', lowFreqFactor) ?? settings.fail('high_freq_factor', 'a number');
      return { type, factor: factor(), lowFreqFactor, highFreqFactor, originalMaxPositions };
    }
    case 'yarn':
      return parseYarn(settings, maxPositions, originalMaxPositions);
    default:
      throw new WeightsError(
        `${settings.where}: rope_type: expected one of default, linear, dynamic, llama3, yarn, found ${show(type)}; this type is not supported`,
      );
  }
}

function parseYarn(settings: Fields, maxPositions: number, originalMaxPositions: number): RopeScaling {
  const factor = settings.number('factor', 0) ?? maxPositions / originalMaxPositions;
  const [mscale, mscaleAllDim] = [settings.number('mscale'), settings.number('mscale_all_dim')];
  const logScale = (weight: number) => (factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1);
  const inferred = mscale && mscaleAllDim ? logScale(mscale) / logScale(mscaleAllDim) : logScale(1);
  return {
    type: 'yarn',
    factor,
    originalMaxPositions,
    attentionFactor: settings.number('attention_factor', 0) ?? inferred,
    // transformers takes the default for 0 as for an absent value.
    betaFast: settings.number('beta_fast', -1) || 32,
    betaSlow: settings.number('beta_slow', -1) || 1,
    truncate: settings.boolean('truncate') ?? true,
  };
}
