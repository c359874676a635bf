// The formats of quantised weights: what a block of neighbouring features of an output row shares, and the bytes of a weight
// [N,K] as files have them, which pack_quantized reads. A value is code·scale or code·scale + least, in f32, rounded after
// each operation, then rounded to the dtype of the product: what is multiplied has the bits of a dequantised weight, but where
// scales multiply the sums over blocks (cpu/gemm/scaled.h).
//
//   nf4         bitsandbytes: codes of 16 levels, two in a byte, the first one above; f32 absmax by 64
//   nf4_double  the same, whose absmax is level[u8]·f32 + offset: codes, u8 by 64, f32 by 256 of these, 256 levels, offset
//   int8        codes, then f32 by row
//   e4m3        likewise, codes of fp8 (no infinities)
//   e4m3_128    likewise, f32 by square of 128 × 128
//   q4_0 … q8_0 ggml's blocks of 32 (q4_k: of 256, in eight of 32; q6_k: in sixteen of 16)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/host_device.h"

namespace steptrain {

enum class Format : uint8_t { none, nf4, nf4_double, int8, e4m3, e4m3_128, q4_0, q4_1, q4_k, q6_k, q8_0 };

constexpr std::array<const char*, 11> kFormatNames = {
    "none", "nf4", "nf4_double", "int8", "e4m3", "e4m3_128", "q4_0", "q4_1", "q4_k", "q6_k", "q8_0"};

constexpr const char* name_of(Format format) {
  return kFormatNames[static_cast<size_t>(format)];
}

constexpr bool is_nf4(Format format) {
  return format == Format::nf4 || format == Format::nf4_double;
}

/// Of a code on a CPU; files and GPUs have q6_k in six.
constexpr int bits_of(Format format) {
  switch (format) {
    case Format::int8:
    case Format::e4m3:
    case Format::e4m3_128:
    case Format::q6_k:
    case Format::q8_0:
      return 8;
    default:
      return 4;
  }
}

/// Features that share a scale, in a row of k.
constexpr int64_t block_of(Format format, int64_t k) {
  switch (format) {
    case Format::nf4:
    case Format::nf4_double:
      return 64;
    case Format::int8:
    case Format::e4m3:
      return k;
    case Format::e4m3_128:
      return 128;
    case Format::q6_k:
      return 16;
    default:
      return 32;
  }
}

/// What the features of a row must be a multiple of.
constexpr int64_t multiple_of(Format format) {
  switch (format) {
    case Format::int8:
    case Format::e4m3:
    case Format::e4m3_128:
      return 4;
    case Format::q4_k:
    case Format::q6_k:
      return 256;
    default:
      return block_of(format, 0);
  }
}

constexpr int64_t blocks_of(Format format, int64_t k) {
  const int64_t block = block_of(format, k);
  return block ? (k + block - 1) / block : 0;
}

/// Second-level blocks of nf4_double.
constexpr int64_t kNestedBlock = 256;
/// Levels of its first-level scales.
constexpr int64_t kNestedLevels = 256;

/// Bytes of a weight [n, k] as files have it.
constexpr int64_t stored_bytes(Format format, int64_t n, int64_t k) {
  const int64_t blocks = n * blocks_of(format, k);
  switch (format) {
    case Format::nf4:
      return n * k / 2 + 4 * blocks;
    case Format::nf4_double:
      return n * k / 2 + blocks + 4 * ((blocks + kNestedBlock - 1) / kNestedBlock + kNestedLevels + 1);
    case Format::e4m3_128:
      return n * k + 4 * ((n + 127) / 128) * blocks_of(format, k);
    case Format::q4_0:
      return 18 * blocks;
    case Format::q4_1:
      return 20 * blocks;
    case Format::q4_k:
      return 18 * blocks;  // 144 for eight
    case Format::q6_k:
      return 210 * (blocks / 16);
    case Format::q8_0:
      return 34 * blocks;
    default:
      return n * k + 4 * blocks;
  }
}

/// Refuses a row that is not of whole blocks, and another number of bytes than stored_bytes.
void check_quantized(const char* op, Format kind, int64_t n, int64_t k, int64_t bytes);

/// bitsandbytes' levels: quantiles of a normal distribution, with 0 among them, scaled to [-1, 1] (arXiv 2305.14314).
constexpr std::array<float, 16> kNf4 = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/// Of ascending levels the nearest one to x; halfway the lower.
STEPTRAIN_HOST_DEVICE inline unsigned nearest_level(const float* levels, int64_t count, float x) {
  int64_t low = 0, high = count - 1;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (x >= levels[middle] ? low : high) = middle;
  }
  return static_cast<unsigned>(x > (levels[low] + levels[high]) / 2 ? high : low);
}

/// bitsandbytes' "dynamic" levels of first-level scales (arXiv 1511.04561), ascending: a sign, a power of ten whose number
/// of digits leaves the rest of the bits to a linear fraction; 0 and 1 besides.
void dynamic_levels(float* levels);

}  // namespace steptrain
