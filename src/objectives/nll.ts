import { openTape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

/** −Σ weights · logprobs, f32 [1]; `weights` (f32 [R]) carry mask and normaliser. The loss of SFT and of masked SFT. */
export function nll(logprobs: Tensor, weights: Tensor): Tensor {
  const { loss, dlogprobs } = logprobs.device.ops.nll({ logprobs, weights });
  openTape()?.recordLoss(loss, [[logprobs, dlogprobs]]);
  return loss;
}
