import type { Parameter } from '../autograd/parameters.js';
import { openTape } from '../autograd/tape.js';
import type { DType, Tensor } from '../runtime/tensor.js';

/** Rows `ids` (i32 [T]) of weight [V, H], as `dtype`. */
export function embedding(ids: Tensor, weight: Parameter, dtype: DType): Tensor {
  const { device } = ids;
  const op = device.signature('embedding');
  const y = device.enqueue(op, [ids, weight.value], [dtype === 'bf16' ? 1 : 0])[0] as Tensor;
  const tape = openTape();
  if (!tape || !weight.grad) return y;
  const savedIds = tape.save(ids);
  tape.record([y], [savedIds], ([dy]) => {
    device.enqueue(device.signature('embedding_backward'), [dy, savedIds, weight.grad]);
  });
  return y;
}
