// Elements as floats: f32 as they are, bf16 widened on load and rounded to nearest even on store. Kernels
// move eight neighbouring elements at a time, with 16-byte accesses where the address allows. The elements
// that a thread takes do not depend on the address, so neither do the bits of a sum.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/tensor.h"
#include "cuda/instructions.cuh"

namespace steptrain::cuda {

constexpr int kEight = 8;

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

template <typename T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 from_float<bf16>(float x) {
  return {round_to_bf16(x)};
}

/// x as a tensor of T would hold it.
template <typename T>
__device__ float stored(float x) {
  return to_float(from_float<T>(x));
}

/// The lower of two neighbouring bf16 comes first.
__device__ inline float lower(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ inline float upper(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

/// v = p[0..7], zero from p[n] on, which is not read. wide: p is a multiple of 16 bytes.
__device__ inline void load8(const float* p, int n, bool wide, float (&v)[kEight]) {
  if (wide && n >= kEight) {
    const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else {
#pragma unroll
    for (int i = 0; i < kEight; i++) v[i] = i < n ? p[i] : 0.0f;
  }
}
__device__ inline void load8(const bf16* p, int n, bool wide, float (&v)[kEight]) {
  if (wide && n >= kEight) {
    const uint4 a = *reinterpret_cast<const uint4*>(p);
    v[0] = lower(a.x), v[1] = upper(a.x), v[2] = lower(a.y), v[3] = upper(a.y);
    v[4] = lower(a.z), v[5] = upper(a.z), v[6] = lower(a.w), v[7] = upper(a.w);
  } else {
#pragma unroll
    for (int i = 0; i < kEight; i++) v[i] = i < n ? to_float(p[i]) : 0.0f;
  }
}

/// p[0..n-1] = v.
__device__ inline void store8(float* p, int n, bool wide, const float (&v)[kEight]) {
  if (wide && n >= kEight) {
    reinterpret_cast<float4*>(p)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4*>(p)[1] = make_float4(v[4], v[5], v[6], v[7]);
  } else {
#pragma unroll
    for (int i = 0; i < kEight; i++)
      if (i < n) p[i] = v[i];
  }
}
__device__ inline void store8(bf16* p, int n, bool wide, const float (&v)[kEight]) {
  if (wide && n >= kEight) {
    *reinterpret_cast<uint4*>(p) = make_uint4(round_to_bf16_pair(v[0], v[1]), round_to_bf16_pair(v[2], v[3]),
                                              round_to_bf16_pair(v[4], v[5]), round_to_bf16_pair(v[6], v[7]));
  } else {
#pragma unroll
    for (int i = 0; i < kEight; i++)
      if (i < n) p[i] = from_float<bf16>(v[i]);
  }
}

/// How many elements of the group of eight that starts at `at` are within `size`.
__device__ inline int in_group(int64_t at, int64_t size) {
  return static_cast<int>(size - at < kEight ? size - at : kEight);
}

/// Whether every group of eight may be accessed wide: addresses are multiples of 16 bytes and, for rows,
/// `stride` is one of eight elements. Absent tensors are ignored.
inline bool all_wide(std::initializer_list<TensorView> tensors, int64_t stride = kEight) {
  if (stride % kEight != 0) return false;
  for (const TensorView& t : tensors)
    if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0) return false;
  return true;
}

/// Calls body(float{}) or body(bf16{}), by the storage type of a tensor.
template <typename F>
void by_storage(DType dtype, F body) {
  if (dtype == DType::bf16) {
    body(bf16{});
  } else {
    body(float{});
  }
}

}  // namespace steptrain::cuda
