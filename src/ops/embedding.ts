import type { Parameter } from '../autograd/parameters.js';
import { openTape } from '../autograd/tape.js';
import type { DType, Tensor } from '../runtime/tensor.js';

/** Rows `first` + `ids` (i32 [T]) of weight [V, H], as `dtype`. Only a weight in rows can begin at another than row 0. */
export function embedding(ids: Tensor, weight: Parameter, dtype: DType, first = 0): Tensor {
  const { device } = ids;
  const from = (table: Tensor) => (first === 0 ? table : table.slice(first, table.shape[0] as number));
  return device.scope(() => {
    const op = device.signature('embedding');
    const y = device.enqueue(op, [ids, from(weight.value)], [dtype === 'bf16' ? 1 : 0])[0] as Tensor;
    const tape = openTape();
    if (!tape || !weight.grad) return y;
    const grad = weight.grad;
    const savedIds = tape.save(ids);
    tape.record([y], [savedIds], ([dy]) => {
      device.enqueue(device.signature('embedding_backward'), [dy, savedIds, from(grad)]);
    });
    return y;
  });
}
