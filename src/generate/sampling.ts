/** Inputs of the sampling op for each row. They depend on the row's request alone, never on its place. */
import type { SampleInputs } from '../ops/sampling.js';
import { keyOfSeed, philox4x32 } from '../random/philox.js';
import type { ChoiceNode } from './choices.js';
import type { SamplingSettings } from './options.js';

/** Domain of the random numbers that draw tokens. */
const SAMPLING = 0x73616d70;

/** The Philox key of one sample: it differs for every seed, round, prompt and sample. The counter is the token's position. */
export function sampleKey(
  { seed, iteration }: Pick<SamplingSettings, 'seed' | 'iteration'>,
  promptId: number,
  sample: number,
): readonly [number, number] {
  const [low, high] = philox4x32([iteration, promptId, sample, SAMPLING], keyOfSeed(seed));
  return [low, high];
}

/** One row of logits to draw a token from. */
export interface SampledRow {
  readonly settings: SamplingSettings;
  readonly key: readonly [number, number];
  /** Of the token to be drawn, in its sequence. */
  readonly position: number;
  /** Tokens that were drawn before it. */
  readonly drawn: number;
  /** The row's place in the trie of its choices. */
  readonly choice: ChoiceNode | undefined;
}

/** Inputs of the sampling op; an input that no row needs is absent. */
export function sampleInputs(rows: readonly SampledRow[]): SampleInputs {
  const floats = (of: (settings: SamplingSettings) => number) =>
    Float32Array.from(rows, ({ settings }) => of(settings));
  const topK = Int32Array.from(rows, ({ settings }) => topKOf(settings));
  const [topP, minP] = [floats((settings) => settings.topP), floats((settings) => settings.minP)];
  const biases = rows.map(biasesOf);
  const allowed = rows.map(({ choice }) => (choice ? [...choice.next.keys()] : []));
  return {
    keys: Int32Array.from(rows.flatMap(({ key: [low, high], position }) => [low, high, position, 0])),
    temperature: floats((settings) => settings.temperature),
    topK: topK.some((k) => k > 0) ? topK : undefined,
    topP: topP.some((p) => p < 1) ? topP : undefined,
    minP: minP.some((p) => p > 0) ? minP : undefined,
    bias: biases.some((list) => list.length > 0)
      ? {
          offsets: offsetsOf(biases),
          tokens: Int32Array.from(biases.flatMap((list) => list.map(([token]) => token))),
          values: Float32Array.from(biases.flatMap((list) => list.map(([, bias]) => bias))),
        }
      : undefined,
    allowed: allowed.some((list) => list.length > 0)
      ? { offsets: offsetsOf(allowed), tokens: Int32Array.from(allowed.flat()) }
      : undefined,
  };
}

/** As the op takes it. */
export const topKOf = ({ topK }: SamplingSettings): number => Math.min(topK, 2 ** 31 - 1);

/** Whether tokens are pushed or ruled out beside its filters. */
export const isBiased = (row: SampledRow): boolean => row.choice !== undefined || biasesOf(row).length > 0;

/** By token once, as the op adds every entry. */
function biasesOf({ settings, drawn }: SampledRow): readonly (readonly [number, number])[] {
  const { logitBias, stopTokens, minTokens } = settings;
  if (drawn >= minTokens || stopTokens.size === 0) return logitBias;
  const given = logitBias.filter(([token]) => !stopTokens.has(token));
  return [...given, ...Array.from(stopTokens, (token) => [token, Number.NEGATIVE_INFINITY] as const)];
}

function offsetsOf(lists: readonly (readonly unknown[])[]): Int32Array<ArrayBuffer> {
  let end = 0;
  return Int32Array.from([0, ...lists.map(({ length }) => (end += length))]);
}
