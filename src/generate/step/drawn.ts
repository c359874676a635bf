/** The draws of a step, as the host reads them. */
import type { SampledRow } from './sampling-inputs.js';

/** A sampled token. Log-probabilities in nats. */
export interface Drawn {
  readonly token: number;
  /** Under the model, temperature 1. */
  readonly logprob: number;
  /** Log-probability at the temperature, before any filter. */
  readonly temperedLogprob: number;
  /** Under the distribution that it was drawn from. */
  readonly samplingLogprob: number;
  /** Whether no token was drawn, because a logit was NaN or no token was left. */
  readonly failed: boolean;
  /** The requested number of most likely tokens under the model. */
  readonly likeliest?: readonly TokenLogprob[];
}

/** An alternative token. */
export interface TokenLogprob {
  readonly token: number;
  /** Under the model, temperature 1, in nats. */
  readonly logprob: number;
}

/**
 * The device's output for R rows or more; `alternatives` holds the logits of the rows that ask for them, one after the
 * other.
 */
export interface RawDraws {
  readonly tokens: ArrayLike<number>;
  /** Not 0 where there is no token. */
  readonly status: ArrayLike<number>;
  readonly logprobs: ArrayLike<number>;
  readonly tempered: ArrayLike<number>;
  readonly sampling: ArrayLike<number>;
  readonly alternatives: Float32Array | undefined;
}

export function drawnOf(rows: readonly SampledRow[], raw: RawDraws): Drawn[] {
  const { alternatives } = raw;
  const asking = rows.filter(({ settings }) => settings.topLogprobs > 0).length;
  const size = alternatives ? alternatives.length / asking : 0;
  let asked = 0;
  return rows.map(({ settings }, i) => {
    const token = raw.tokens[i] as number;
    const logprob = raw.logprobs[i] as number;
    const failed = raw.status[i] !== 0;
    let likeliest: readonly TokenLogprob[] | undefined;
    if (alternatives && settings.topLogprobs > 0) {
      const own = alternatives.subarray(asked * size, ++asked * size);
      // log p = logit − log Σ exp(logit); the sum follows from the sampled token.
      const shift = logprob - (own[token] as number);
      if (!failed) likeliest = likeliestTokens(own, settings.topLogprobs, shift);
    }
    return {
      token,
      logprob,
      temperedLogprob: raw.tempered[i] as number,
      samplingLogprob: raw.sampling[i] as number,
      failed,
      ...(likeliest ? { likeliest } : {}),
    };
  });
}

/**
 * The `count` tokens with the largest logits, in descending order; equal ones by id.
 *
 * @param shift is added to a logit to give its log-probability
 */
export function likeliestTokens(logits: Float32Array, count: number, shift: number): TokenLogprob[] {
  const best: number[] = [];
  for (let token = 0; token < logits.length; token++) {
    const logit = logits[token] as number;
    if (best.length === count && logit <= (logits[best.at(-1) as number] as number)) continue;
    let at = best.length;
    while (at > 0 && logit > (logits[best[at - 1] as number] as number)) at--;
    best.splice(at, 0, token);
    if (best.length > count) best.pop();
  }
  return best.map((token) => ({ token, logprob: Math.fround((logits[token] as number) + shift) }));
}
