import type { Parameter } from '../autograd/parameters.js';
import { tapeFor } from '../autograd/tape.js';
import type { DType, Tensor } from '../runtime/tensor.js';

/** Rows `first` + `ids` (i32 [T]) of weight [V, H], as `dtype`. Only a weight in rows can begin at another than row 0. */
export function embedding(ids: Tensor, weight: Parameter, dtype: DType, first = 0): Tensor {
  const { device } = ids;
  const { ops } = device;
  const from = (table: Tensor) => (first === 0 ? table : table.slice(first, table.shape[0] as number));
  return device.scope(() => {
    const { y } = ops.embedding({ ids, weight: from(weight.value), dtype });
    tapeFor(weight)?.record(y, { ids }, (dy, saved) => {
      ops.embedding_backward({ ...saved, dy, dweight: from(weight.grad as Tensor) });
    });
    return y;
  });
}
