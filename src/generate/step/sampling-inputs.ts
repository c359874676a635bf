/** Inputs of the sampling op for each row. They depend on the row's request alone, never on its place. */
import type { SampleInputs } from '../../ops/sampling.js';
import { keyOfSeed, philox4x32 } from '../../random/philox.js';
import type { SamplingSettings } from '../options.js';
import type { ChoiceNode } from '../rows/choices.js';
import type { SeenTokens, TokenBiases } from '../rows/penalties.js';

/** Domain of the random numbers that draw tokens. */
const SAMPLING = 0x73616d70;

/** The Philox key of one sample, different for every seed, round, prompt and sample. The counter is the token's position. */
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
  /** Position in its sequence of the token to be drawn. */
  readonly position: number;
  /** Tokens that were drawn before it. */
  readonly drawn: number;
  /** The row's place in the trie of its choices. */
  readonly choice: ChoiceNode | undefined;
  /** The tokens that its penalties count, if it has any. */
  readonly seen?: SeenTokens | undefined;
}

/** Inputs of the sampling op; an input that no row needs is absent. */
export function sampleInputs(rows: readonly SampledRow[]): SampleInputs {
  const floats = (of: (settings: SamplingSettings) => number) =>
    Float32Array.from(rows, ({ settings }) => of(settings));
  const topK = Int32Array.from(rows, ({ settings }) => topKOf(settings));
  const [topP, minP] = [floats((settings) => settings.topP), floats((settings) => settings.minP)];
  const biases = rows.map(biasesOf);
  const biased = biases.some(({ tokens }) => tokens.length > 0);
  const allowed = rows.map(({ choice }) => (choice ? [...choice.next.keys()] : []));
  return {
    keys: Int32Array.from(rows.flatMap(({ key: [low, high], position }) => [low, high, position, 0])),
    temperature: floats((settings) => settings.temperature),
    topK: topK.some((k) => k > 0) ? topK : undefined,
    topP: topP.some((p) => p < 1) ? topP : undefined,
    minP: minP.some((p) => p > 0) ? minP : undefined,
    bias: biased ? joined(biases) : undefined,
    allowed: allowed.some((list) => list.length > 0)
      ? { offsets: offsetsOf(allowed), tokens: Int32Array.from(allowed.flat()) }
      : undefined,
  };
}

/** `topK` within the range of the op's i32. */
export const topKOf = ({ topK }: SamplingSettings): number => Math.min(topK, 2 ** 31 - 1);

/** Whether biases or penalties change the row's logits, in addition to its filters. */
export const isBiased = (row: SampledRow): boolean =>
  row.choice !== undefined || biasesOf(row).tokens.length > 0;

/** Biases of a request before and after its end is allowed. */
const known = new WeakMap<SamplingSettings, { readonly early: TokenBiases; readonly late: TokenBiases }>();

function biasesOf({ settings, drawn, seen }: SampledRow): TokenBiases {
  const made = known.get(settings) ?? allBiases(settings);
  known.set(settings, made);
  const fixed = drawn < settings.minTokens ? made.early : made.late;
  return seen?.biases(fixed) ?? fixed;
}

function allBiases({ logitBias, lateTokens }: SamplingSettings) {
  const of = (list: readonly (readonly [number, number])[]) => ({
    tokens: Int32Array.from(list, ([token]) => token),
    values: Float32Array.from(list, ([, bias]) => bias),
  });
  const given = logitBias.filter(([token]) => !lateTokens.has(token));
  const ruledOut = Array.from(lateTokens, (token) => [token, Number.NEGATIVE_INFINITY] as const);
  return { early: of([...given, ...ruledOut]), late: of(logitBias) };
}

/** The lists of all rows, one after the other. */
function joined(rows: readonly TokenBiases[]): SampleInputs['bias'] {
  const offsets = offsetsOf(rows.map(({ tokens }) => tokens));
  const size = offsets.at(-1) as number;
  const tokens = new Int32Array(size);
  const [values, factors, base] = [0, 1, 0].map((value) => new Float32Array(size).fill(value)) as Floats3;
  rows.forEach((row, r) => {
    tokens.set(row.tokens, offsets[r]);
    values.set(row.values, offsets[r]);
    factors.set(row.factors ?? [], offsets[r]);
    base.set(row.base ?? [], offsets[r]);
  });
  const repeats = factors.some((factor) => factor !== 1);
  return { offsets, tokens, values, ...(repeats ? { repetition: { factors, base } } : {}) };
}

type Floats = Float32Array<ArrayBuffer>;
type Floats3 = [Floats, Floats, Floats];

function offsetsOf(lists: readonly { readonly length: number }[]): Int32Array<ArrayBuffer> {
  let end = 0;
  return Int32Array.from([0, ...lists.map(({ length }) => (end += length))]);
}
