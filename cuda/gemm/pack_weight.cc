// pack_weight and unpack_weight: a packed weight is row-major on a GPU,
// so both convert or copy; y is overwritten. One launch. stack_lora copies the pair of one adapter into a stack
// (cuda/gemm/stack.h), in place; two launches. stack_weight copies a weight into its place among those of experts.
#include "core/error.h"
#include "cuda/convert.h"
#include "cuda/gemm/quantized.h"
#include "cuda/gemm/stack.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

void pack_weight(Stream& stream, const Args& args) {
  const auto [w, y] = args.tensors<2>();
  convert(stream, w, y);
}

void unpack_weight(Stream& stream, const Args& args) {
  const auto [w, y] = args.tensors<2>();
  if (w.format != Format::none) return dequantize(stream, w, y);
  convert(stream, w, y);
}

void stack_lora(Stream& stream, const Args& args) {
  const auto [a, b, stack_a, stack_b] = args.tensors<4>();
  const int64_t first = args.i(0);
  if (first < 0 || first % 32 != 0 || first + a[0] > stack_a[0])
    throw Error("E_RANGE",
                format("stack_lora: first is %lld, expected a multiple of 32 with room for %lld of "
                       "the stack's %lld ranks",
                       static_cast<long long>(first), static_cast<long long>(a[0]),
                       static_cast<long long>(stack_a[0])));
  if (stack_a.dtype != stack_b.dtype)
    throw Error("E_DTYPE", "stack_lora: stack_a and stack_b must be packed, in one dtype");
  place_pair(stream, a, b, stack_a, stack_b, first);
}

void stack_weight(Stream& stream, const Args& args) {
  const auto [w, stack] = args.tensors<2>();
  const int64_t expert = args.i(1);
  if (expert < 0 || expert >= stack[0])
    throw Error("E_RANGE", format("stack_weight: expert is %lld, outside 0..%lld",
                                  static_cast<long long>(expert), static_cast<long long>(stack[0] - 1)));
  const int64_t bytes = w.format == Format::none ? w.bytes() : QuantizedParts(w.format, w[0], w[1]).bytes;
  stream.copy(stack.as<char>() + expert * bytes, w.data, bytes);
}

}  // namespace

void register_pack_weight(KernelTable& table) {
  table.set("pack_weight", pack_weight);
  table.set("unpack_weight", unpack_weight);
  table.set("stack_lora", stack_lora);
  table.set("stack_weight", stack_weight);
}

}  // namespace steptrain::cuda
