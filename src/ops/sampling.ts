import type { Tensor, TypedArray } from '../runtime/tensor.js';
import { gatherRows } from './memory.js';

/** Settings of R rows, in host memory. An absent setting is off in every row. */
export interface SampleInputs {
  /** [R, 4]: Philox key low and high, counter low and high. */
  readonly keys: Int32Array<ArrayBuffer>;
  /** [R]; 0 takes the most likely token. */
  readonly temperature: Float32Array<ArrayBuffer>;
  /** [R]; 0 is off, as is 1 for `topP` and 0 for `minP`. */
  readonly topK?: Int32Array<ArrayBuffer> | undefined;
  readonly topP?: Float32Array<ArrayBuffer> | undefined;
  readonly minP?: Float32Array<ArrayBuffer> | undefined;
  /** values[i] is added to the logit of tokens[i], for i from offsets[r] to offsets[r + 1] − 1. */
  readonly bias?:
    | {
        readonly offsets: Int32Array<ArrayBuffer>;
        readonly tokens: Int32Array<ArrayBuffer>;
        readonly values: Float32Array<ArrayBuffer>;
        /**
         * Repetition penalties by entry: x = logit + base[i] becomes x / factors[i] where it is positive, else x ·
         * factors[i], as if before `values`.
         */
        readonly repetition?: {
          readonly factors: Float32Array<ArrayBuffer>;
          readonly base: Float32Array<ArrayBuffer>;
        };
      }
    | undefined;
  /** The allowed tokens of row r, from offsets[r] to offsets[r + 1] − 1; all tokens if the range is empty. */
  readonly allowed?:
    | { readonly offsets: Int32Array<ArrayBuffer>; readonly tokens: Int32Array<ArrayBuffer> }
    | undefined;
}

/** Each [R]; log-probabilities f32, in nats. */
export interface SampledTokens {
  /** i32 */
  readonly tokens: Tensor;
  /** Under the model, temperature 1, as `headLogprobs` gives them. */
  readonly logprobs: Tensor;
  /** Log-probs at the temperature, before bias and filters, as `headLogprobs` gives them. */
  readonly temperedLogprobs: Tensor;
  /** Under the distribution that is drawn from. */
  readonly samplingLogprobs: Tensor;
  /** i32: 0, or 1 where a logit is NaN or +∞ or no token is left; the row's other outputs are then 0. */
  readonly status: Tensor;
}

/** Draws a token for each row of logits [R, V]. A row depends on its own logits and inputs alone. Not differentiable. */
export function sample(logits: Tensor, inputs: SampleInputs): SampledTokens {
  const { device } = logits;
  const { keys, temperature, topK, topP, minP, bias, allowed } = inputs;
  const upload = (values: TypedArray | undefined) => values && device.tensor(values);
  return device.scope(() => {
    const { tokens, logprobs, sampling_logprobs, tempered_logprobs, status } = device.ops.sample({
      logits,
      keys: device.tensor(keys, [keys.length / 4, 4]),
      temperature: upload(temperature),
      top_k: upload(topK),
      top_p: upload(topP),
      min_p: upload(minP),
      bias_offsets: upload(bias?.offsets),
      bias_tokens: upload(bias?.tokens),
      bias: bias?.repetition ? repeated(logits, bias, bias.repetition) : upload(bias?.values),
      allowed_offsets: upload(allowed?.offsets),
      allowed: upload(allowed?.tokens),
      tempered_logprobs: true,
    });
    return {
      tokens,
      logprobs,
      temperedLogprobs: tempered_logprobs,
      samplingLogprobs: sampling_logprobs,
      status,
    };
  });
}

/** f32 [b]: values + f(x) − x. */
function repeated(
  logits: Tensor,
  { offsets, tokens, values }: NonNullable<SampleInputs['bias']>,
  { factors, base }: NonNullable<NonNullable<SampleInputs['bias']>['repetition']>,
): Tensor {
  const { device, shape } = logits;
  const [rows, vocab] = shape as [number, number];
  const entries = tokens.length;
  const at = new Int32Array(entries);
  for (let row = 0; row < rows; row++)
    for (let i = offsets[row] as number; i < (offsets[row + 1] as number); i++)
      at[i] = row * vocab + (tokens[i] as number);
  const ruledOut = (i: number) => base[i] === Number.NEGATIVE_INFINITY;
  const own = gatherRows(logits.reshape([rows * vocab, 1]), device.tensor(at)).reshape([entries]);
  const x = device.ops.add({ x: own, y: device.tensor(base.map((b, i) => (ruledOut(i) ? 0 : b))) }).z;
  const weighted = (part: Tensor, weight: (factor: number) => number) =>
    device.ops.span_sum({
      x: device.ops.relu({ x: part }).y,
      spans: device.tensor(
        Int32Array.from({ length: 2 * entries }, (_, i) => (i + 1) >> 1),
        [entries, 2],
      ),
      weights: device.tensor(factors.map((factor, i) => (ruledOut(i) ? 0 : weight(factor)))),
    }).y;
  const up = weighted(x, (factor) => 1 / factor - 1);
  const down = weighted(device.ops.scale({ x, factor: -1 }).y, (factor) => 1 - factor);
  return device.ops.add({ x: device.tensor(values), y: device.ops.add({ x: up, y: down }).z }).z;
}
