import type { Parameter } from '../autograd/parameters.js';
import { tapeFor } from '../autograd/tape.js';
import type { DType, Tensor } from '../runtime/tensor.js';
import { unpackWeight } from './gemm.js';

/** Rows `first` + `ids` (i32 [T]) of weight [V, H], which may be quantised, as `dtype`. */
export function embedding(ids: Tensor, weight: Parameter, dtype: DType, first = 0): Tensor {
  const { device } = ids;
  const { ops } = device;
  // Only rows of floats have views.
  const rows = (table: Tensor) => (table.dtype === 'u8' ? unpackWeight(table, dtype) : table);
  const from = (table: Tensor) => (first === 0 ? table : rows(table).slice(first, table.shape[0] as number));
  return device.scope(() => {
    const { y } = ops.embedding({ ids, weight: from(weight.value), dtype });
    tapeFor(weight)?.record(y, { ids }, (dy, saved) => {
      ops.embedding_backward({ ...saved, dy, dweight: from(weight.grad as Tensor) });
    });
    return y;
  });
}
