// One vector type per instruction set, so that every kernel is written once and compiled for each: `vf` holds
// kLanes floats. bf16 is widened on load and rounded to nearest even on store. Arithmetic operators are the
// compiler's own. Results may differ between instruction sets, never within one.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/tensor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(STEPTRAIN_NEON)
#include <arm_neon.h>
#endif

namespace steptrain::cpu::STEPTRAIN_ISA {

inline float to_float(float x) {
  return x;
}
inline float to_float(bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}
/// Of the bits of an f16.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(half & 0x7fffu) << 13;
  uint32_t bits = rest + (112u << 23);                    // the exponent's bias: 15 to 127
  if (rest >= 0x7c00u << 13) bits = rest + (224u << 23);  // infinity, NaN
  float value;
  std::memcpy(&value, &bits, 4);
  if (rest < 1u << 23) value = static_cast<float>(half & 0x3ffu) * 0x1p-24f;  // zero, subnormal
  std::memcpy(&bits, &value, 4);
  bits |= sign;
  std::memcpy(&value, &bits, 4);
  return value;
}
template <typename T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return {static_cast<uint16_t>(bits >> 16 | 0x40)};  // keep NaN a NaN
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
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

#if defined(__AVX512F__)

constexpr int kLanes = 16;
using vf = __m512;
using vi = __m512i;

inline vf zero() {
  return _mm512_setzero_ps();
}
inline vf set1(float x) {
  return _mm512_set1_ps(x);
}
inline vf load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline vf load(const bf16* p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
inline __mmask16 lane_mask(int n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
/// The first n lanes; the others are zero and their memory is not read.
inline vf load(const float* p, int n) {
  return _mm512_maskz_loadu_ps(lane_mask(n), p);
}
inline vf load(const bf16* p, int n) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lane_mask(n), p)), 16));
}
inline __m256i round_bf16(vf x) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
#else
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
#endif
}
inline void store(float* p, vf x) {
  _mm512_storeu_ps(p, x);
}
inline void store(bf16* p, vf x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), round_bf16(x));
}
inline void store(float* p, vf x, int n) {
  _mm512_mask_storeu_ps(p, lane_mask(n), x);
}
inline void store(bf16* p, vf x, int n) {
  _mm256_mask_storeu_epi16(p, lane_mask(n), round_bf16(x));
}
inline vf fma(vf a, vf b, vf c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline vf max(vf a, vf b) {
  return _mm512_max_ps(a, b);
}
inline vf min(vf a, vf b) {
  return _mm512_min_ps(a, b);
}
inline vf sqrt(vf a) {
  return _mm512_sqrt_ps(a);
}
inline vf round(vf a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// x · 2^n for integral n.
inline vf scale2(vf x, vf n) {
  return _mm512_scalef_ps(x, n);
}
/// a where x < y, else b.
inline vf select_less(vf x, vf y, vf a, vf b) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
}

#elif defined(__AVX2__)

constexpr int kLanes = 8;
using vf = __m256;
using vi = __m256i;

inline vf zero() {
  return _mm256_setzero_ps();
}
inline vf set1(float x) {
  return _mm256_set1_ps(x);
}
inline vf load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline vf load(const bf16* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
inline vf load(const float* p, int n) {
  float t[8] = {};
  std::memcpy(t, p, static_cast<size_t>(n) * 4);
  return load(t);
}
inline vf load(const bf16* p, int n) {
  bf16 t[8] = {};
  std::memcpy(t, p, static_cast<size_t>(n) * 2);
  return load(t);
}
inline void store(float* p, vf x) {
  _mm256_storeu_ps(p, x);
}
inline void store(bf16* p, vf x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
  rounded = _mm256_srli_epi32(rounded, 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
inline void store(float* p, vf x, int n) {
  float t[8];
  store(t, x);
  std::memcpy(p, t, static_cast<size_t>(n) * 4);
}
inline void store(bf16* p, vf x, int n) {
  bf16 t[8];
  store(t, x);
  std::memcpy(p, t, static_cast<size_t>(n) * 2);
}
inline vf fma(vf a, vf b, vf c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline vf max(vf a, vf b) {
  return _mm256_max_ps(a, b);
}
inline vf min(vf a, vf b) {
  return _mm256_min_ps(a, b);
}
inline vf sqrt(vf a) {
  return _mm256_sqrt_ps(a);
}
inline vf round(vf a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline vf scale2(vf x, vf n) {
  const __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return x * _mm256_castsi256_ps(e);
}
inline vf select_less(vf x, vf y, vf a, vf b) {
  return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
}

#elif defined(STEPTRAIN_NEON)

constexpr int kLanes = 4;
using vf = float32x4_t;
using vi = int32x4_t;

inline const uint16_t* bits(const bf16* p) {
  return reinterpret_cast<const uint16_t*>(p);
}

inline vf zero() {
  return vdupq_n_f32(0);
}
inline vf set1(float x) {
  return vdupq_n_f32(x);
}
inline vf load(const float* p) {
  return vld1q_f32(p);
}
inline vf load(const bf16* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(bits(p)), 16));
}
template <typename T>
inline vf load(const T* p, int n) {
  T t[4] = {};
  std::memcpy(t, p, static_cast<size_t>(n) * sizeof(T));
  return load(t);
}
inline uint16x4_t round_bf16(vf x) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return vreinterpret_u16_bf16(vcvt_bf16_f32(x));
#else
  const uint32x4_t bits = vreinterpretq_u32_f32(x);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16);
#endif
}
inline void store(float* p, vf x) {
  vst1q_f32(p, x);
}
inline void store(bf16* p, vf x) {
  vst1_u16(reinterpret_cast<uint16_t*>(p), round_bf16(x));
}
template <typename T>
inline void store(T* p, vf x, int n) {
  T t[4];
  store(t, x);
  std::memcpy(static_cast<void*>(p), t, static_cast<size_t>(n) * sizeof(T));
}
inline vf fma(vf a, vf b, vf c) {
  return vfmaq_f32(c, a, b);
}
// Not vmaxq and vminq, which make NaN of a NaN in either place: all sets take the second operand then.
inline vf max(vf a, vf b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
inline vf min(vf a, vf b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
inline vf sqrt(vf a) {
  return vsqrtq_f32(a);
}
inline vf round(vf a) {
  return vrndnq_f32(a);
}
inline vf scale2(vf x, vf n) {
  return x * vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
inline vf select_less(vf x, vf y, vf a, vf b) {
  return vbslq_f32(vcltq_f32(x, y), a, b);
}

#else

constexpr int kLanes = 4;
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

inline vf set1(float x) {
  return vf{x, x, x, x};
}
inline vf zero() {
  return set1(0.0f);
}
inline vf load(const float* p) {
  vf x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline vf load(const bf16* p) {
  return vf{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
}
template <typename T>
inline vf load(const T* p, int n) {
  vf x = zero();
  for (int i = 0; i < n; i++) x[i] = to_float(p[i]);
  return x;
}
inline void store(float* p, vf x) {
  std::memcpy(p, &x, sizeof x);
}
inline void store(bf16* p, vf x) {
  for (int i = 0; i < 4; i++) p[i] = from_float<bf16>(x[i]);
}
template <typename T>
inline void store(T* p, vf x, int n) {
  for (int i = 0; i < n; i++) p[i] = from_float<T>(x[i]);
}
inline vf fma(vf a, vf b, vf c) {
  return a * b + c;
}
inline vf max(vf a, vf b) {
  return a > b ? a : b;
}
inline vf min(vf a, vf b) {
  return a < b ? a : b;
}
inline vf sqrt(vf a) {
  for (int i = 0; i < 4; i++) a[i] = std::sqrt(a[i]);
  return a;
}
inline vf round(vf a) {
  for (int i = 0; i < 4; i++) a[i] = std::nearbyint(a[i]);
  return a;
}
inline vf scale2(vf x, vf n) {
  vi e;
  for (int i = 0; i < 4; i++) e[i] = (static_cast<int32_t>(n[i]) + 127) << 23;
  vf f;
  std::memcpy(&f, &e, sizeof f);
  return x * f;
}
inline vf select_less(vf x, vf y, vf a, vf b) {
  return x < y ? a : b;
}

#endif

/// rows[i] lane j becomes rows[j] lane i.
inline void transpose(vf (&rows)[kLanes]) {
#if defined(__AVX512F__)
  vf t[16];
  for (int i = 0; i < 16; i += 4) {
    const vf a = _mm512_unpacklo_ps(rows[i], rows[i + 1]), b = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    const vf c = _mm512_unpacklo_ps(rows[i + 2], rows[i + 3]),
             d = _mm512_unpackhi_ps(rows[i + 2], rows[i + 3]);
    t[i] = _mm512_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
  for (int i = 0; i < 4; i++) {
    const vf a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88),
             b = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
    const vf c = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd),
             d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    rows[i] = _mm512_shuffle_f32x4(a, b, 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
    rows[i + 4] = _mm512_shuffle_f32x4(c, d, 0x88);
    rows[i + 12] = _mm512_shuffle_f32x4(c, d, 0xdd);
  }
#elif defined(__AVX2__)
  vf t[8];
  for (int i = 0; i < 8; i += 4) {
    const vf a = _mm256_unpacklo_ps(rows[i], rows[i + 1]), b = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    const vf c = _mm256_unpacklo_ps(rows[i + 2], rows[i + 3]),
             d = _mm256_unpackhi_ps(rows[i + 2], rows[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  for (int i = 0; i < 4; i++) {
    rows[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
#elif defined(STEPTRAIN_NEON)
  const auto pairs = [](vf a, vf b) { return vreinterpretq_f64_f32(vtrn1q_f32(a, b)); };
  const auto others = [](vf a, vf b) { return vreinterpretq_f64_f32(vtrn2q_f32(a, b)); };
  const float64x2_t a = pairs(rows[0], rows[1]), b = others(rows[0], rows[1]);
  const float64x2_t c = pairs(rows[2], rows[3]), d = others(rows[2], rows[3]);
  rows[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
  rows[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
  rows[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
  rows[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
#else
  float t[kLanes][kLanes];
  for (int i = 0; i < kLanes; i++) store(t[i], rows[i]);
  for (int i = 0; i < kLanes; i++) {
    float column[kLanes];
    for (int j = 0; j < kLanes; j++) column[j] = t[j][i];
    rows[i] = load(column);
  }
#endif
}

/// x with zeros past its first n lanes.
inline vf first_lanes(vf x, int n) {
  float t[kLanes] = {};
  store(t, x, n);
  return load(t);
}

/// Sum and maximum over the lanes, always in the same tree.
inline float sum(vf x) {
  float t[kLanes];
  store(t, x);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) t[i] += t[i + half];
  }
  return t[0];
}
inline float max(vf x) {
  float t[kLanes];
  store(t, x);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) t[i] = t[i] > t[i + half] ? t[i] : t[i + half];
  }
  return t[0];
}

/// e^x to about 2 ulp; 0 below -87.3, finite up to 88.3; NaN stays NaN.
inline vf exp(vf x) {
  const vf low = set1(-87.33654f);
  const vf clamped = min(set1(88.37626f), max(low, x));  // in this order, which keeps NaN
  const vf n = round(clamped * set1(1.44269504f));
  vf r = fma(n, set1(-0.693359375f), clamped);
  r = fma(n, set1(2.12194440e-4f), r);
  vf p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = fma(p, r * r, r + set1(1.0f));
  return select_less(x, low, zero(), scale2(p, n));
}
/// x · 2^n for integral n ≤ 127; 0 far below -150, where finite. Exact unless what comes out is below 2^-126.
inline vf scale2_down(vf x, vf n) {
#if !defined(__AVX512F__)
  n = max(set1(-127.0f), n);  // scale2 turns -127 into 0
#endif
  return scale2(x, n);
}
/// 2^x / 2^m for integral m ≥ x - 127: a power of two times 2^x, so its digits do not depend on m.
/// 2^x = 2^round(x) · (1 + r·terms[last] + r²·…). 2^0 = 1 exactly.
template <int N>
inline vf exp2(vf x, vf m, const float (&terms)[N]) {
  const vf n = round(x);
  const vf r = x - n;
  vf p = set1(terms[0]);
#pragma GCC unroll 8
  for (int i = 1; i < N; i++) p = fma(p, r, set1(terms[i]));
  return scale2_down(fma(p, r, set1(1.0f)), n - m);
}
/// 2^x / 2^m to about 1 ulp.
inline vf exp2(vf x, vf m = zero()) {
  return exp2(x, m,
              {1.326472614891827e-3f, 9.671512991189957e-3f, 5.550733581185341e-2f, 2.4022242426872253e-1f,
               6.931470036506653e-1f});
}
/// 2^x / 2^m to 2^-18, for what is rounded to bf16.
inline vf exp2_to_bf16(vf x, vf m = zero()) {
  return exp2(x, m,
              {9.58285316891255e-3f, 5.5906425036458915e-2f, 2.4024098611259426e-1f, 6.931241933678403e-1f});
}
/// ln x to about 1 ulp, for finite x ≥ 2^-126.
inline vf log(vf x) {
  typedef int32_t integers __attribute__((vector_size(4 * kLanes)));
  const auto bits = reinterpret_cast<integers>(x);
  const integers n = (bits - 0x3f3504f3) >> 23;  // x = 2^n · (1 + f), √½ ≤ 1 + f < √2
  const vf f = reinterpret_cast<vf>(bits - (n << 23)) - set1(1.0f), e = __builtin_convertvector(n, vf);
  vf p = set1(-7.63450015e-2f);
  for (const float term : {1.27615795e-1f, -1.31601822e-1f, 1.42017577e-1f, -1.66233573e-1f, 2.00012269e-1f,
                           -2.50008210e-1f, 3.33333317e-1f})
    p = fma(p, f, set1(term));
  const vf low = fma(f * f, fma(p, f, set1(-0.5f)), e * set1(-2.12194440e-4f));  // ln 2 in two parts
  return fma(e, set1(0.693359375f), f + low);
}
/// 1 / (1 + e^-x).
inline vf sigmoid(vf x) {
  return set1(1.0f) / (set1(1.0f) + exp(zero() - x));
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
