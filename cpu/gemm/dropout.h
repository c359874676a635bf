// Inverted dropout by Philox (core/philox.h), a vector of blocks at a time: factor 0 where the mask drops,
// 1 / (1 - rate) where it keeps, as torch.nn.Dropout before LoRA's A.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/gemm/units.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

typedef uint64_t vq __attribute__((vector_size(4 * kLanes)));

/// Low and high words of the 64-bit products a·b, lane by lane.
inline void multiply_words(vu a, uint32_t b, vu& low, vu& high) {
  const vq even = reinterpret_cast<vq>(a), odd = even >> 32;
#if defined(__AVX512F__)
  const __m512i factor = _mm512_set1_epi64(b);
  const vq p = reinterpret_cast<vq>(_mm512_mul_epu32(reinterpret_cast<__m512i>(even), factor));
  const vq q = reinterpret_cast<vq>(_mm512_mul_epu32(reinterpret_cast<__m512i>(odd), factor));
#elif defined(__AVX2__)
  const __m256i factor = _mm256_set1_epi64x(b);
  const vq p = reinterpret_cast<vq>(_mm256_mul_epu32(reinterpret_cast<__m256i>(even), factor));
  const vq q = reinterpret_cast<vq>(_mm256_mul_epu32(reinterpret_cast<__m256i>(odd), factor));
#elif defined(STEPTRAIN_NEON)
  const uint32x2_t factor = vdup_n_u32(b);
  const vq p = reinterpret_cast<vq>(vmull_u32(vmovn_u64(reinterpret_cast<uint64x2_t>(even)), factor));
  const vq q = reinterpret_cast<vq>(vmull_u32(vmovn_u64(reinterpret_cast<uint64x2_t>(odd)), factor));
#else
  const vq p = (even & 0xffffffffu) * b, q = odd * b;
#endif
  low = reinterpret_cast<vu>((p & 0xffffffffu) | q << 32);
  high = reinterpret_cast<vu>(p >> 32 | (q & 0xffffffff00000000u));
}

struct Dropout {
  const int32_t* row_ids = nullptr;
  const int32_t* positions = nullptr;
  float rate = 0;
  uint32_t key0 = 0, key1 = 0;

  explicit operator bool() const { return rate > 0; }

  /// out[k] is the factor of element k < count of one token. Writes whole vectors, row_floats(count) floats.
  void row(int64_t token, int64_t count, float* out) const {
    const vu position = vu{} + static_cast<uint32_t>(positions[token]);
    const vu row_id = vu{} + static_cast<uint32_t>(row_ids[token]);
    for (int64_t k = 0; k < count; k += 4 * kLanes) {
      draw(lane_indices() + static_cast<uint32_t>(k / 4), position, row_id, out + k);
    }
  }
  static int64_t row_floats(int64_t count) { return (count + 4 * kLanes - 1) / (4 * kLanes) * (4 * kLanes); }

  /// out[t][kPanel] for `tokens` tokens from `token` and the kPanel elements from `first`, a multiple of
  /// kPanel. `out` must hold an even number of rows.
  void window(int64_t token, int64_t tokens, int64_t first, float* out) const {
    const vu upper_half = reinterpret_cast<vu>(lane_indices() >= kLanes / 2u);
    const vu block = (lane_indices() & (kLanes / 2 - 1)) + static_cast<uint32_t>(first / 4);
    for (int64_t t = 0; t < tokens; t += 2) {
      const int64_t a = token + t, b = token + std::min(t + 1, tokens - 1);
      const uint32_t position = static_cast<uint32_t>(positions[a]),
                     row_id = static_cast<uint32_t>(row_ids[a]);
      draw(block, position ^ (upper_half & (position ^ static_cast<uint32_t>(positions[b]))),
           row_id ^ (upper_half & (row_id ^ static_cast<uint32_t>(row_ids[b]))), out + t * kPanel);
    }
  }

 private:
  static vu lane_indices() {
    vu lanes;
    for (int i = 0; i < kLanes; i++) lanes[i] = static_cast<uint32_t>(i);
    return lanes;
  }

  void draw(vu c0, vu c1, vu c2, float* kept) const {
    vu c3 = {};
    uint32_t k0 = key0, k1 = key1;
    for (int round = 0; round < 10; round++) {
      vu low0, high0, low1, high1;
      multiply_words(c0, 0xD2511F53u, low0, high0);
      multiply_words(c2, 0xCD9E8D57u, low1, high1);
      c0 = high1 ^ c1 ^ k0;
      c1 = low1;
      c2 = high0 ^ c3 ^ k1;
      c3 = low0;
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    // uniform(bits) ≥ rate, compared as the 24-bit integers that `uniform` scales.
    const uint32_t threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(rate) * 0x1p24));
    const float value = 1.0f / (1.0f - rate);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    vu keep[4] = {c0, c1, c2, c3};
    for (auto& word : keep) word = reinterpret_cast<vu>(word >> 8 >= threshold) & bits;
    // Block by block: interleave c0 with c2 and c1 with c3, then both.
    vu zip[2];
    for (int i = 0; i < kLanes; i++) {
      zip[0][i] = static_cast<uint32_t>(i / 2 + i % 2 * kLanes);
      zip[1][i] = static_cast<uint32_t>(zip[0][i] + kLanes / 2);
    }
    for (int half = 0; half < 2; half++) {
      const vu even = __builtin_shuffle(keep[0], keep[2], zip[half]);
      const vu odd = __builtin_shuffle(keep[1], keep[3], zip[half]);
      store_units(kept + 2 * half * kLanes, __builtin_shuffle(even, odd, zip[0]));
      store_units(kept + (2 * half + 1) * kLanes, __builtin_shuffle(even, odd, zip[1]));
    }
  }
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
