// pack_weight and unpack_weight: a row-major [N,K] to panels (cpu/gemm/packed.h) and back, in the dtype of y,
// which is overwritten; back from a quantised weight, too. stack_lora: puts the pair of one adapter into a stack (cpu/gemm/stack.h), in place: the outputs of a
// become whole panels of stack_a, the ranks of b neighbouring steps of the sum in every panel of stack_b. stack_weight: copies
// a weight into its place among E.
#include "cpu/gemm/panel.h"
#include "cpu/gemm/quantized.h"
#include "cpu/gemm/stack.h"
#include "cpu/gemm/weight.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

template <typename T, typename S>
void pack(Stream& stream, const TensorView& w, const TensorView& y) {
  const int64_t n = w[0], k = w[1];
  stream.pool.run(panels(n), [&](int64_t panel) {
    const int64_t first = panel * kPanel;
    pack_rows(w.as<const S>() + first * k, k, std::min(kPanel, n - first), k,
              y.as<T>() + panel * panel_stride<T>(k));
  });
}

template <typename T, typename S>
void unpack(Stream& stream, const TensorView& w, const TensorView& y) {
  const int64_t n = w[0], k = w[1];
  stream.pool.run(panels(n), [&](int64_t panel) {
    const int64_t first = panel * kPanel, columns = std::min(kPanel, n - first);
    S* rows = y.as<S>() + first * k;
    if (w.packed) {
      unpack_rows(w.as<const T>() + panel * panel_stride<T>(k), k, columns, k, rows);
    } else {
      const T* source = w.as<const T>() + first * k;
      for (int64_t i = 0; i < columns * k; i++) rows[i] = from_float<S>(to_float(source[i]));
    }
  });
}

template <typename S>
void unpack_quantized(Stream& stream, const TensorView& w, const TensorView& y) {
  const int64_t n = w[0], k = w[1], size = panel_stride<float>(k);
  float* const buffers = stream.scratch.take<float>(stream.pool.threads() * size);
  stream.pool.region([&](Worker& worker) {
    float* const buffer = buffers + worker.index * size;
    for (int64_t panel; (panel = worker.next()) < panels(n);) {
      const int64_t first = panel * kPanel;
      dequantize_panel<float>(w, panel, 0, k, buffer);
      unpack_rows(buffer, k, std::min(kPanel, n - first), k, y.as<S>() + first * k);
    }
  });
}

void pack_weight(Stream& stream, const Args& args) {
  const auto [w, y] = args.tensors<2>();
  const bool from_bf16 = w.dtype == DType::bf16, to_bf16 = y.dtype == DType::bf16;
  auto run = to_bf16 ? (from_bf16 ? pack<bf16, bf16> : pack<bf16, float>)
                     : (from_bf16 ? pack<float, bf16> : pack<float, float>);
  run(stream, w, y);
}

void unpack_weight(Stream& stream, const Args& args) {
  const auto [w, y] = args.tensors<2>();
  if (w.format != Format::none)
    return y.dtype == DType::bf16 ? unpack_quantized<bf16>(stream, w, y)
                                  : unpack_quantized<float>(stream, w, y);
  const bool from_bf16 = w.dtype == DType::bf16, to_bf16 = y.dtype == DType::bf16;
  auto run = from_bf16 ? (to_bf16 ? unpack<bf16, bf16> : unpack<bf16, float>)
                       : (to_bf16 ? unpack<float, bf16> : unpack<float, float>);
  run(stream, w, y);
}

template <typename T>
void place(Stream& stream, const TensorView& a, const TensorView& b, const TensorView& stack_a,
           const TensorView& stack_b, int64_t first) {
  const int64_t rank = a[0], features = a[1], outputs = b[0];
  T* const to_a = stack_a.as<T>() + first / kPanel * panel_stride<T>(features);
  stream.pool.run(panels(rank), [&](int64_t p) {
    pack_rows(a.as<const float>() + p * kPanel * features, features, std::min(kPanel, rank - p * kPanel),
              features, to_a + p * panel_stride<T>(features));
  });
  T* const to_b = stack_b.as<T>() + first * kPanel;
  stream.pool.run(panels(outputs), [&](int64_t p) {
    pack_rows(b.as<const float>() + p * kPanel * rank, rank, std::min(kPanel, outputs - p * kPanel), rank,
              to_b + p * panel_stride<T>(stack_b[1]));
  });
}

void stack_lora(Stream& stream, const Args& args) {
  const auto [a, b, stack_a, stack_b] = args.tensors<4>();
  const int64_t first = args.i(0);
  if (first < 0 || first % kStackStep != 0 || first + a[0] > stack_a[0])
    throw Error("E_RANGE",
                format("stack_lora: first is %lld, expected a multiple of %lld with room for %lld of "
                       "the stack's %lld ranks",
                       static_cast<long long>(first), static_cast<long long>(kStackStep),
                       static_cast<long long>(a[0]), static_cast<long long>(stack_a[0])));
  if (!stack_a.packed || !stack_b.packed || stack_a.dtype != stack_b.dtype)
    throw Error("E_DTYPE", "stack_lora: stack_a and stack_b must be packed, in one dtype");
  stack_a.dtype == DType::bf16 ? place<bf16>(stream, a, b, stack_a, stack_b, first)
                               : place<float>(stream, a, b, stack_a, stack_b, first);
}

void stack_weight(Stream& stream, const Args& args) {
  const auto [w, stack] = args.tensors<2>();
  const int64_t expert = args.i(1), bytes = weight_bytes(w);
  if (expert < 0 || expert >= stack[0])
    throw Error("E_RANGE", format("stack_weight: expert is %lld, outside 0..%lld",
                                  static_cast<long long>(expert), static_cast<long long>(stack[0] - 1)));
  constexpr int64_t part = int64_t{1} << 20;
  stream.pool.run((bytes + part - 1) / part, [&, &w = w, &stack = stack](int64_t task) {
    const int64_t first = task * part, count = std::min(part, bytes - first);
    std::memcpy(stack.as<char>() + expert * bytes + first, w.as<const char>() + first,
                static_cast<size_t>(count));
  });
}

}  // namespace

void register_pack_weight(KernelTable& table) {
  table.packed_bytes = weight_bytes;
  table.set("pack_weight", pack_weight);
  table.set("unpack_weight", unpack_weight);
  table.set("stack_lora", stack_lora);
  table.set("stack_weight", stack_weight);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
