// The right side of a GEMM: a matrix [N,K], packed or row-major, f32 or bf16, as panels of its outputs N with
// the sum over K (forward) or, transposed, as panels of its features K with the sum over N (backward). Packed
// panels of the right orientation and dtype are read in place; others are packed, or dequantised, into a buffer.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/gemm/decoded.h"
#include "cpu/gemm/panel.h"
#include "cpu/gemm/quantized.h"
#include "cpu/gemm/scaled.h"
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
  bool in_place() const { return w_.packed && !transposed_ && w_.dtype == kDType; }
  bool quantized() const { return w_.format != Format::none; }
  /// Elements that fill() writes.
  int64_t size() const { return panel_stride<T>(depth()); }

  /// The panel, in place or packed into `buffer`.
  const T* panel(int64_t panel, T* buffer) const {
    if (in_place()) return w_.as<const T>() + panel * size();
    fill(panel, buffer);
    return buffer;
  }
  /// Of a panel that fill() transposes, parts that lie together: of each a square of kPanel outputs and features, read in place.
  int64_t squares() const {
    return w_.packed && transposed_ && !quantized() && w_.dtype == kDType ? panels(depth()) : 0;
  }
  const T* square(int64_t panel, int64_t i) const {
    return w_.as<const T>() + i * panel_stride<T>(outputs()) + panel * kPanel * kPanel;
  }
  void fill(int64_t panel, T* buffer) const { fill(panel, 0, depth(), buffer); }
  /// Steps [first, last) of the sum; `first` is a multiple of kPanel, of a row-major matrix of 2.
  void fill(int64_t panel, int64_t first, int64_t last, T* buffer) const {
    if (quantized()) {
      if (transposed_) return transpose_quantized<T>(w_, first, last - first, panel * kPanel, buffer);
      return dequantize_panel<T>(w_, panel, first, last, buffer);
    }
    if (w_.dtype == DType::bf16) return from<bf16>(panel, first, last, buffer);
    from<float>(panel, first, last, buffer);
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
  /// Whether scales multiply sums (cpu/gemm/scaled.h): multiply_scaled() takes any number of rows, in place of the products
  /// above. `sums`: each row's over its blocks, where takes_sums().
  bool scales_sums() const {
    bool scales = false;
    if (!transposed_) with_scaled_sums([&](const auto&) { scales = true; });
    return scales;
  }
  bool takes_sums() const {
    return w_.format == Format::q4_1 || w_.format == Format::q4_k;
  }
  int64_t block() const {
    return block_of(w_.format, w_[1]);
  }
  void multiply_scaled(int64_t rows, const T* x, int64_t stride, int64_t panel, const float* sums,
                       float* c) const {
    with_scaled_sums([&](const auto& quantized) {
      cpu::STEPTRAIN_ISA::multiply_scaled(quantized, rows, x, stride, panel, depth(), sums, c);
    });
  }

 private:
  static constexpr DType kDType = sizeof(T) == 2 ? DType::bf16 : DType::f32;

  /// body(Quantized<format>) of a format whose scales multiply sums.
  template <typename Body>
  void with_scaled_sums(const Body& body) const {
    by_format(w_, [&]<Format kFormat>(const Quantized<kFormat>& quantized) {
      if constexpr (kScalesSums<T, kFormat>) body(quantized);
    });
  }

  template <typename S>
  void from(int64_t panel, int64_t first, int64_t last, T* buffer) const {
    const S* w = w_.as<const S>();
    if (w_.packed && transposed_) {
      transpose_panel<T>(w + first / kPanel * panel_stride<S>(w_[1]), last - first, w_[1], panel * kPanel,
                         buffer);
    } else if (w_.packed) {
      convert_panel<T>(w + panel * panel_stride<S>(depth()) + first * kPanel, last - first, buffer);
    } else if (transposed_) {
      pack_columns<T>(w + first * w_[1] + panel * kPanel, w_[1], columns(panel), last - first, buffer);
    } else {
      pack_rows<T>(w + panel * kPanel * w_[1] + first, w_[1], columns(panel), last - first, buffer);
    }
  }

  TensorView w_;
  bool transposed_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
