#include "cpu/gemm/stack.h"

#include "core/error.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

void check_stack(const char* op, const char* side, const Stack& stack, DType dtype, const TensorView& a,
                 const TensorView& b) {
  const bool all = a && b && stack && stack.ranks && stack.scales;
  if (!all && (a || b || stack || stack.ranks || stack.scales))
    throw Error("E_SHAPE", format("%s: %sstack_a, %sstack_b, adapter, %sranks and %sscales come together", op,
                                  side, side, side, side));
  if (!all) return;
  if (!a.packed || !b.packed || a.dtype != dtype || b.dtype != dtype)
    throw Error("E_DTYPE", format("%s: a stack is packed, in the dtype of x (%s)", op, name_of(dtype)));
  const int64_t adapters = stack.ranks[0];
  for (int32_t g = 0; g < adapters; g++) {
    const int64_t first = stack.first(g), last = first + stack.rank(g);
    if (first >= 0 && first % kStackStep == 0 && last >= first && last <= a[0]) continue;
    throw Error("E_RANGE", format("%s: %sranks[%d] is %lld..%lld, expected an ascending pair in 0..%lld that "
                                  "begins at a multiple of %lld",
                                  op, side, g, static_cast<long long>(first), static_cast<long long>(last),
                                  static_cast<long long>(a[0]), static_cast<long long>(kStackStep)));
  }
  for (int64_t t = 0; t < stack.adapter[0]; t++) {
    if (stack.of(t) >= -1 && stack.of(t) < adapters) continue;
    throw Error("E_RANGE", format("%s: adapter[%lld] is %d, outside -1..%lld", op, static_cast<long long>(t),
                                  stack.of(t), static_cast<long long>(adapters - 1)));
  }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
