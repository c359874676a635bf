import type { Precision } from './precision.js';

type Numbers = ArrayLike<number>;

/** x [R, H], W [V, H], targets and settings of the head. */
export interface HeadInputs {
  readonly rows: number;
  readonly size: number;
  readonly vocabulary: number;
  readonly x: Numbers;
  readonly w: Numbers;
  readonly targets: Int32Array;
  readonly temperature: number;
}

export interface HeadForward {
  readonly logits: Float64Array;
  readonly logprobs: number[];
  readonly entropy: number[];
  readonly lse: number[];
  readonly argmax: number[];
  readonly expectation: Float64Array;
}

/** The head by its definition, with all logits in memory. */
export function headForward(inputs: HeadInputs, p: Precision): HeadForward {
  const { rows, size, vocabulary, x, w, targets, temperature } = inputs;
  const result: HeadForward = {
    logits: new Float64Array(rows * vocabulary),
    logprobs: [],
    entropy: [],
    lse: [],
    argmax: [],
    expectation: new Float64Array(rows * size),
  };
  for (let r = 0; r < rows; r++) {
    const z = result.logits.subarray(r * vocabulary, (r + 1) * vocabulary);
    for (let v = 0; v < vocabulary; v++) {
      let dot = 0;
      for (let h = 0; h < size; h++) dot = p.sum(dot + p.sum(x[r * size + h]! * w[v * size + h]!));
      z[v] = p.store(p.store(dot) / temperature);
    }
    const largest = z.reduce((a, b) => Math.max(a, b));
    const lse = p.sum(largest + Math.log(z.reduce((a, b) => p.sum(a + p.sum(Math.exp(b - largest))), 0)));
    let entropy = 0;
    for (let v = 0; v < vocabulary; v++) {
      const logprob = p.store(z[v]! - lse);
      const weight = p.store(Math.exp(logprob));
      entropy = p.sum(entropy - p.sum(weight * logprob));
      for (let h = 0; h < size; h++) {
        const at = r * size + h;
        result.expectation[at] = p.sum(result.expectation[at]! + p.sum(weight * w[v * size + h]!));
      }
    }
    for (let h = r * size; h < (r + 1) * size; h++)
      result.expectation[h] = p.store(result.expectation[h]! / temperature);
    result.logprobs.push(p.store(z[targets[r]!]! - lse));
    result.entropy.push(entropy);
    result.lse.push(lse);
    result.argmax.push(z.indexOf(largest));
  }
  return result;
}

export interface HeadGradients {
  readonly dx: Float64Array;
  readonly dw: Float64Array;
}

/** Gradients of Σ dlogprobs·logprobs + Σ dentropy·entropy. */
export function headBackward(
  inputs: HeadInputs,
  forward: HeadForward,
  dlogprobs: Numbers,
  dentropy: Numbers | undefined,
  p: Precision,
): HeadGradients {
  const { rows, size, vocabulary, x, w, targets, temperature } = inputs;
  const dx = new Float64Array(rows * size);
  const dw = new Float64Array(vocabulary * size);
  for (let r = 0; r < rows; r++) {
    for (let v = 0; v < vocabulary; v++) {
      const logprob = p.store(forward.logits[r * vocabulary + v]! - forward.lse[r]!);
      const weight = p.store(Math.exp(logprob));
      const hit = v === targets[r] ? 1 : 0;
      const dz = p.store(
        (dlogprobs[r]! * (hit - weight) - (dentropy?.[r] ?? 0) * weight * (logprob + forward.entropy[r]!)) /
          temperature,
      );
      for (let h = 0; h < size; h++) {
        dx[r * size + h] = p.sum(dx[r * size + h]! + p.sum(dz * w[v * size + h]!));
        dw[v * size + h] = p.sum(dw[v * size + h]! + p.sum(dz * x[r * size + h]!));
      }
    }
  }
  return { dx: dx.map(p.store), dw };
}
