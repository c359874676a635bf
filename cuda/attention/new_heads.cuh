// The heads of new tokens as attention reads them, which cache_write and attention_step share: with the RMSNorm of a
// head where it has a weight, and rotated as rope does. Neighbouring lanes of a warp take a head, eight neighbouring elements each.
#pragma once

#include "cuda/reduce.cuh"
#include "cuda/storage.cuh"

namespace steptrain::cuda {

/// rope's tables; without any, `cosines` is null.
struct Rotary {
  const float *cosines, *sines;

  /// Element d of a head rotated by the angles from `at` on. head(e) is the head's element e.
  template <typename F>
  __device__ float of(F head, int64_t half, int64_t at, int64_t d) const {
    const int64_t e = d < half ? d : d - half;
    const float a = head(e), b = head(e + half);
    const float cosine = cosines[at + e], sine = sines[at + e];
    return d < half ? fmaf(a, cosine, 0.0f - b * sine) : fmaf(b, cosine, a * sine);
  }
};

/// Heads of tokens, with the weight of their norm, null without one.
template <typename T>
struct Heads {
  const T* data;
  const void* weight;
  DType weight_dtype;
  int64_t count;  // of a token

  __device__ float weight_of(int64_t d) const {
    return weight_dtype == DType::bf16 ? to_float(static_cast<const bf16*>(weight)[d])
                                       : static_cast<const float*>(weight)[d];
  }
};

struct HeadShape {
  int64_t size;
  int lanes;  // of a head, a power of two within a warp
  float eps;
  bool wide;
};

/// Lanes for heads of `size` elements, eight elements each, as far as a warp has them.
inline int lanes_for(int64_t size) {
  int lanes = 1;
  while (lanes < kWarp && lanes * kEight < size) lanes *= 2;
  return lanes;
}

/// What its norm multiplies the head at `at` with. All lanes of a warp call it; `inside` is false where there is no head.
template <typename T>
__device__ float head_scale(const Heads<T>& heads, const HeadShape& shape, int64_t at, bool inside) {
  float squares = 0;
  for (int64_t d = threadIdx.x % shape.lanes * kEight; inside && heads.weight && d < shape.size;
       d += shape.lanes * kEight) {
    float x[kEight];
    load8(heads.data + at + d, in_group(d, shape.size), shape.wide, x);
#pragma unroll
    for (int i = 0; i < kEight; i++) squares = fmaf(x[i], x[i], squares);
  }
  for (int distance = shape.lanes / 2; distance > 0; distance /= 2)
    squares += __shfl_xor_sync(0xffffffffu, squares, distance);
  return 1.0f / sqrtf(squares / static_cast<float>(shape.size) + shape.eps);
}

/// x = elements d … d+7 of the head at `at`, normed by `scale` and rotated by the angles from `angles` on.
template <typename T>
__device__ void new_group(const Heads<T>& heads, const HeadShape& shape, const Rotary& rotary, int64_t at,
                          float scale, int64_t angles, int64_t d, float (&x)[kEight]) {
  const auto element = [&](int64_t e) {
    const float value = to_float(heads.data[at + e]);
    return heads.weight ? stored<T>(value * scale * heads.weight_of(e)) : value;
  };
  const int count = in_group(d, shape.size);
#pragma unroll
  for (int i = 0; i < kEight; i++) {
    x[i] = 0;
    if (i < count) x[i] = rotary.cosines ? rotary.of(element, shape.size / 2, angles, d + i) : element(d + i);
  }
}

}  // namespace steptrain::cuda
