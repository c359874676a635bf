// Eight neighbouring features of a row of a quantised weight, in f32, with the operations of the CPU: code·scale, rounded,
// and code·scale + least, rounded again. What a lane needs from memory comes first (load), so that several such loads are
// under way before the first is used (values).
#pragma once

#include "cuda/convert.h"
#include "cuda/gemm/quantized.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {

/// The levels of NF4, by which a block fills its table in shared memory.
struct Nf4Levels {
  float v[16];
};
inline Nf4Levels nf4_levels() {
  Nf4Levels levels;
  for (int i = 0; i < 16; i++) levels.v[i] = kNf4[static_cast<size_t>(i)];
  return levels;
}

/// Eight features as they lie in memory: codes in x and y, their scale in z and least value in w, before they are f32.
using QuantizedEight = uint4;

__device__ inline uint32_t two_bytes(const uint8_t* p) {
  return *reinterpret_cast<const uint16_t*>(p);
}
/// Four bytes at an even address.
__device__ inline uint32_t four_bytes(const uint8_t* p) {
  return two_bytes(p) | two_bytes(p + 2) << 16;
}
__device__ inline uint32_t word_of(const uint8_t* p) {
  return *reinterpret_cast<const uint32_t*>(p);
}

/// Features `column` to `column + 7` of a row within the matrix; `column` is a multiple of 8.
__device__ inline QuantizedEight load_quantized(const Factor& w, int64_t row, int64_t column) {
  QuantizedEight e = make_uint4(0, 0, 0, 0);
  const int64_t at = row * w.columns + column;
  const auto* const data = static_cast<const uint8_t*>(w.data);
  const uint8_t* const scales = data + w.parts.scales;
  switch (w.format) {
    case Format::nf4:
      e.x = word_of(data + at / 2);
      e.z = word_of(scales + at / 64 * 4);
      break;
    case Format::nf4_double:
      e.x = word_of(data + at / 2);
      e.z = scales[at / 64];
      e.w = word_of(data + w.parts.nested + at / (64 * kNestedBlock) * 4);
      break;
    case Format::int8:
    case Format::e4m3:
      // Rows are of whole fours.
      e.x = word_of(data + at), e.y = column + 4 < w.columns ? word_of(data + at + 4) : 0;
      e.z = word_of(scales + row * 4);
      break;
    case Format::e4m3_128:
      e.x = word_of(data + at), e.y = column + 4 < w.columns ? word_of(data + at + 4) : 0;
      e.z = word_of(scales + (row / 128 * ((w.columns + 127) / 128) + column / 128) * 4);
      break;
    case Format::q4_0:
    case Format::q4_1: {
      const bool has_least = w.format == Format::q4_1;
      const uint8_t* const block = data + at / 32 * (has_least ? 20 : 18);
      const uint8_t* const codes = block + (has_least ? 4 : 2) + at % 16;
      const int shift = at % 32 < 16 ? 0 : 4;
      e.x = four_bytes(codes) >> shift, e.y = four_bytes(codes + 4) >> shift;
      e.z = two_bytes(block);
      e.w = has_least ? two_bytes(block + 2) : 0;
      break;
    }
    case Format::q4_k: {
      const uint8_t* const block = data + at / 256 * 144;
      const int i = static_cast<int>(at % 256), j = i / 32;
      const uint8_t* const codes = block + 16 + i / 64 * 32 + i % 32;
      const int shift = j % 2 * 4;
      e.x = word_of(codes) >> shift, e.y = word_of(codes + 4) >> shift;
      // Halves below, six bits each of scale and least value above.
      const uint8_t* const packed = block + 4;
      const uint32_t scale = j < 4 ? packed[j] & 63u : (packed[j + 4] & 15u) | packed[j - 4] >> 6 << 4;
      const uint32_t least = j < 4 ? packed[j + 4] & 63u : packed[j + 4] >> 4 | packed[j] >> 6 << 4;
      e.z = two_bytes(block) | scale << 16, e.w = two_bytes(block + 2) | least << 16;
      break;
    }
    case Format::q6_k: {
      const uint8_t* const block = data + at / 256 * 210;
      const int i = static_cast<int>(at % 256), half = i / 128, quarter = i / 32 % 4;
      const uint8_t* const low = block + 64 * half + 32 * (quarter % 2) + i % 32;
      const uint8_t* const high = block + 128 + 32 * half + i % 32;
      const auto code = [&](int part) {
        return (four_bytes(low + part) >> (quarter / 2 * 4) & 0x0f0f0f0fu) |
               (four_bytes(high + part) >> (quarter * 2) & 0x03030303u) << 4;
      };
      e.x = code(0), e.y = code(4);
      e.z = two_bytes(block + 208) | uint32_t{block[192 + i / 16]} << 16;
      break;
    }
    case Format::q8_0: {
      const uint8_t* const block = data + at / 32 * 34;
      e.x = four_bytes(block + 2 + at % 32), e.y = four_bytes(block + 2 + at % 32 + 4);
      e.z = two_bytes(block);
      break;
    }
    case Format::none:
      break;
  }
  return e;
}

/// `levels`: NF4's.
__device__ inline void quantized_values(const Factor& w, const QuantizedEight& e, const float* levels,
                                        float (&v)[kEight]) {
  float scale = __uint_as_float(e.z), least = 0;
  switch (w.format) {
    case Format::nf4_double: {
      const auto* const first =
          reinterpret_cast<const float*>(static_cast<const uint8_t*>(w.data) + w.parts.levels);
      scale = first[e.z] * __uint_as_float(e.w) + first[kNestedLevels];
      break;
    }
    case Format::q4_0:
    case Format::q8_0:
      scale = half_to_float(e.z);
      break;
    case Format::q4_1:
      scale = half_to_float(e.z), least = half_to_float(e.w);
      break;
    case Format::q6_k:
      scale = half_to_float(e.z & 0xffffu) * static_cast<float>(static_cast<int8_t>(e.z >> 16));
      break;
    case Format::q4_k:
      scale = half_to_float(e.z & 0xffffu) * static_cast<float>(e.z >> 16);
      least = half_to_float(e.w & 0xffffu) * static_cast<float>(e.w >> 16);
      break;
    default:
      break;
  }
#pragma unroll
  for (int i = 0; i < kEight; i++) {
    const uint32_t byte = (i < 4 ? e.x : e.y) >> (8 * (i % 4));
    switch (w.format) {
      case Format::nf4:
      case Format::nf4_double:
        // The first of two is above.
        v[i] = levels[e.x >> (8 * (i / 2) + (i % 2 ? 0 : 4)) & 15u] * scale;
        break;
      case Format::int8:
      case Format::q8_0:
        v[i] = static_cast<float>(static_cast<int8_t>(byte & 255u)) * scale;
        break;
      case Format::e4m3:
      case Format::e4m3_128:
        v[i] = __uint_as_float((byte & 0x80u) << 24 | (byte & 0x7fu) << 20) * 0x1p120f * scale;
        break;
      case Format::q6_k:
        v[i] = (static_cast<float>(byte & 63u) - 32.0f) * scale;
        break;
      case Format::q4_0:
        v[i] = (static_cast<float>(byte & 15u) - 8.0f) * scale;
        break;
      case Format::q4_1:
        v[i] = static_cast<float>(byte & 15u) * scale + least;
        break;
      case Format::q4_k:
        v[i] = static_cast<float>(byte & 15u) * scale - least;
        break;
      case Format::none:
        v[i] = 0;
        break;
    }
  }
}

/// The same rounded to bf16.
__device__ inline uint4 quantized_bf16(const Factor& w, const QuantizedEight& e, const float* levels) {
  float v[kEight];
  quantized_values(w, e, levels, v);
  return make_uint4(round_to_bf16_pair(v[0], v[1]), round_to_bf16_pair(v[2], v[3]),
                    round_to_bf16_pair(v[4], v[5]), round_to_bf16_pair(v[6], v[7]));
}

}  // namespace steptrain::cuda
