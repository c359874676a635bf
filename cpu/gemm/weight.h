// The right side of a GEMM: a matrix [N,K], packed or row-major, f32 or bf16, as panels of its outputs N with
// the sum over K (forward) or, transposed, as panels of its features K with the sum over N (backward). Packed
// panels of the right orientation and dtype are read in place; others are packed, or dequantised, into a buffer.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/gemm/decoded.h"
#include "cpu/gemm/panel.h"
#include "cpu/gemm/quantized.h"
#include "cpu/gemm/tile_amx.h"
#include "cpu/runtime/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Bytes of a weight [N,K] of any layout.
inline int64_t weight_bytes(const TensorView& w) {
  if (w.format != Format::none) return QuantizedParts(w).bytes;
  if (!w.packed) return w.bytes();
  const int64_t k = w[1];
  return panels(w[0]) * (w.dtype == DType::bf16 ? panel_stride<bf16>(k) : panel_stride<float>(k)) *
         size_of(w.dtype);
}

template <typename T>
class Panels {
 public:
  Panels(const TensorView& w, bool transposed) : w_(w), transposed_(transposed) {}

  int64_t outputs() const { return transposed_ ? w_[1] : w_[0]; }
  int64_t depth() const { return transposed_ ? w_[0] : w_[1]; }
  int64_t count() const { return panels(outputs()); }
  int64_t columns(int64_t panel) const { return std::min(kPanel, outputs() - panel * kPanel); }
  bool in_place() const {
    return w_.packed && !transposed_ && w_.dtype == (sizeof(T) == 2 ? DType::bf16 : DType::f32);
  }
  bool quantized() const { return w_.format != Format::none; }
  /// Elements that fill() writes.
  int64_t size() const { return panel_stride<T>(depth()); }

  /// The panel, in place or packed into `buffer`.
  const T* panel(int64_t panel, T* buffer) const {
    if (in_place()) return w_.as<const T>() + panel * size();
    fill(panel, buffer);
    return buffer;
  }
  void fill(int64_t panel, T* buffer) const {
    if (quantized()) {
      if (transposed_) return transpose_quantized<T>(w_, 0, depth(), panel * kPanel, buffer);
      return dequantize_panel<T>(w_, panel, 0, depth(), buffer);
    }
    if (!w_.packed) return fill(panel, 0, depth(), buffer);
    if (w_.dtype == DType::bf16) return from_packed<bf16>(panel, buffer);
    from_packed<float>(panel, buffer);
  }
  /// Whether multiply_decoded() takes so many rows: of a quantised weight. What the head rounds to bf16 and multiplies as floats
  /// is no such product.
  bool decodes(int64_t rows) const {
    return quantized() && rows <= kTileRows<T> && !(sizeof(T) == 4 && w_.dtype == DType::bf16);
  }
  /// c[rows][kTileStride] = x[rows, depth]·panelᵀ, without the panel in memory; the bits are those of a filled one.
  void multiply_decoded(int rows, const T* x, int64_t stride, int64_t panel, float* c) const {
    by_format(w_, [&](const auto& quantized) {
#if defined(__AMX_BF16__)
      // Its products need other parts of the processor than dequantising.
      if constexpr (sizeof(T) == 2) {
        if (rows <= amx_tile::kTile && depth() % amx_tile::kDepth == 0)
          return amx_tile::multiply_decoded(rows, x, stride, depth(), c, [&](const auto& place) {
            quantized.template decode<bf16>(panel, 0, depth(), place);
          });
      }
#endif
      cpu::STEPTRAIN_ISA::multiply_decoded<T>(quantized, rows, x, stride, panel, depth(), c);
    });
  }
  /// Steps [first, last) of the sum, from a row-major matrix; `first` is even.
  void fill(int64_t panel, int64_t first, int64_t last, T* buffer) const {
    if (w_.dtype == DType::bf16) return from_rows<bf16>(panel, first, last, buffer);
    from_rows<float>(panel, first, last, buffer);
  }

 private:
  template <typename S>
  void from_packed(int64_t panel, T* buffer) const {
    const S* w = w_.as<const S>();
    if (transposed_) {
      transpose_panel<T>(w, w_[0], w_[1], panel * kPanel, buffer);
    } else {
      convert_panel<T>(w + panel * panel_stride<S>(depth()), depth(), buffer);
    }
  }
  template <typename S>
  void from_rows(int64_t panel, int64_t first, int64_t last, T* buffer) const {
    const S* w = w_.as<const S>();
    if (transposed_) {
      pack_columns<T>(w + first * w_[1] + panel * kPanel, w_[1], columns(panel), last - first, buffer);
    } else {
      pack_rows<T>(w + panel * kPanel * w_[1] + first, w_[1], columns(panel), last - first, buffer);
    }
  }

  TensorView w_;
  bool transposed_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
