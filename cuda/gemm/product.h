// The one product that every op of the gemm family is made of:
//   out[m,n] (=|+=) scale · (Σ_k a(m,k)·b(n,k) + lora_scale · mask(m,n) · Σ_j lora_a(m,j)·lora_b(n,j)) +
//   bias[n]
// The depth of a product is its sum over k. The LoRA pair is more depth for the same kernel. It comes first,
// since its scale and mask apply to the accumulators before the frozen product is added to them.
#pragma once

#include <cstdint>

#include "cuda/gemm/quantized_parts.h"
#include "cuda/runtime/stream.h"

namespace steptrain::cuda {

/// A row-major matrix in memory. A false one is absent.
struct Factor {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0, columns = 0;
  /// Of a quantised weight (cuda/gemm/quantized.h), which only products of few rows take.
  Format format = Format::none;
  QuantizedParts parts{};
};

inline Factor factor(const TensorView& t) {
  Factor f{t.data, t.dtype, t[0], t[1]};
  if (t.format != Format::none) f.format = t.format, f.parts = QuantizedParts(t.format, t[0], t[1]);
  return f;
}

/// Whether cp.async and TMA can read it: bf16, with addresses and rows of whole 16 bytes.
inline bool readable_async(const Factor& f) {
  return f.dtype == DType::bf16 && f.columns % 8 == 0 && reinterpret_cast<uintptr_t>(f.data) % 16 == 0;
}

/// The same once it is bf16. `padded`: its rows may be.
inline bool readable_once_bf16(const Factor& f, bool padded = false) {
  if (f.format != Format::none) return f.columns % 8 == 0;
  return f.dtype == DType::bf16 ? readable_async(f) : padded || f.columns % 8 == 0;
}
/// The columns of a row once zeros fill its last 16 bytes of bf16.
constexpr int64_t whole_chunks(int64_t columns) {
  return (columns + 7) / 8 * 8;
}
/// f in bf16: itself, or a copy of scale·f in workspace with rows of whole_chunks, which takes one launch.
Factor as_bf16(Stream& stream, const Factor& f, float scale = 1);

/// The layout of the factors: a is [m][k] or [k][m], b is [n][k] or [k][n]; the LoRA pair follows them.
enum class Layout : uint8_t {
  forward,  // a [m][k], b [n][k]: x·Wᵀ
  input,    // a [m][k], b [k][n]: dy·W
  weight,   // a [k][m], b [k][n]: dyᵀ·x
};

/// What dropout multiplies: element (t, k) by 0 or 1/(1-rate), where t is a token and k a feature.
enum class Dropped : uint8_t { nothing, a, b, lora };

struct Dropout {
  const int32_t* row_ids = nullptr;
  const int32_t* positions = nullptr;
  float rate = 0, kept = 1;  // kept = 1/(1-rate)
  uint32_t key0 = 0, key1 = 0;
};

struct Product {
  int64_t rows = 0, columns = 0, depth = 0;
  Factor a, b;
  float scale = 1;
  int64_t rank = 0;
  Factor lora_a, lora_b;  // may have zeros beyond the rank
  float lora_scale = 1;
  Dropped dropped = Dropped::nothing;
  Dropout dropout;
  const void* bias = nullptr;
  DType bias_dtype = DType::f32;
  void* out = nullptr;  // [rows, columns]
  DType out_dtype = DType::f32;
  bool accumulate = false;
  /// [rows, columns] like `out`, not with `accumulate`: is added to the output as it would be stored.
  const void* residual = nullptr;
};

inline void set_output(Product& p, void* out, DType dtype, bool accumulate) {
  p.out = out;
  p.out_dtype = dtype;
  p.accumulate = accumulate;
}

/// How the factors of a bf16 product reach shared memory.
enum class Loading : uint8_t {
  registers,  // any dtype, size and address
  cp_async,   // bf16, addresses and rows of whole 16 bytes
  tma,        // the same, on sm_90
};
/// The fastest that p allows once its factors are rounded.
Loading loading_of(const Stream& stream, const Product& p);
/// Rounds f32 factors into workspace where `loading` reads bf16 alone, the LoRA pair's first one with its scale.
void round_factors(Stream& stream, Loading loading, Product& p);

/// Tensor cores: factors are rounded to bf16, accumulated in f32.
void multiply_bf16(Stream& stream, Layout layout, Product product);
/// The same on sm_90, for bf16 factors with addresses and rows of whole 16 bytes, without dropout on a or b, and with a
/// LoRA pair whose scale is 1 (cuda/gemm/sm90_tiles.cuh).
void multiply_sm90(Stream& stream, Layout layout, const Product& product);
/// f32 throughout.
void multiply_f32(Stream& stream, Layout layout, const Product& product);
/// multiply_bf16 or multiply_f32, by the dtype of the activations.
inline void multiply(Stream& stream, DType activations, Layout layout, const Product& product) {
  activations == DType::bf16 ? multiply_bf16(stream, layout, product) : multiply_f32(stream, layout, product);
}

}  // namespace steptrain::cuda
