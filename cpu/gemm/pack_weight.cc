// pack_weight and unpack_weight: a row-major [N,K] to panels (cpu/gemm/packed.h) and back, in the dtype of y,
// which is =.
#include "cpu/gemm/panel.h"
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

void pack_weight(Stream& stream, const Args& args) {
  const auto [w, y] = args.tensors<2>();
  const bool from_bf16 = w.dtype == DType::bf16, to_bf16 = y.dtype == DType::bf16;
  auto run = to_bf16 ? (from_bf16 ? pack<bf16, bf16> : pack<bf16, float>)
                     : (from_bf16 ? pack<float, bf16> : pack<float, float>);
  run(stream, w, y);
}

void unpack_weight(Stream& stream, const Args& args) {
  const auto [w, y] = args.tensors<2>();
  const bool from_bf16 = w.dtype == DType::bf16, to_bf16 = y.dtype == DType::bf16;
  auto run = from_bf16 ? (to_bf16 ? unpack<bf16, bf16> : unpack<bf16, float>)
                       : (to_bf16 ? unpack<float, bf16> : unpack<float, float>);
  run(stream, w, y);
}

int64_t packed_bytes(DType dtype, int64_t n, int64_t k) {
  const int64_t elements =
      panels(n) * (dtype == DType::bf16 ? panel_stride<bf16>(k) : panel_stride<float>(k));
  return elements * size_of(dtype);
}

}  // namespace

void register_pack_weight(KernelTable& table) {
  table.packed_bytes = packed_bytes;
  table.set("pack_weight", pack_weight);
  table.set("unpack_weight", unpack_weight);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
