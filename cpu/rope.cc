// Rotary position embedding of x[T,heads,D] by tables cos, sin f32[P,D/2], indexed by positions[T]. The
// halves of a head rotate as in Hugging Face models: y[e] = x[e]·cos - x[e+E]·sin, y[e+E] = x[e+E]·cos +
// x[e]·sin with E = D/2; inverse rotates by the negative angle, which is also the gradient. y = and may be x;
// arithmetic in f32, rounded once to storage.
#include <algorithm>

#include "cpu/runtime/families.h"
#include "cpu/simd.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kRows = 16;  // tokens per task

void check_tables(const TensorView& x, const TensorView& cosines, const TensorView& positions) {
  if (x[2] != 2 * cosines[1])
    throw Error("E_SHAPE", format("rope: head size %lld needs tables of width %lld with two halves, got %lld",
                                  static_cast<long long>(x[2]), static_cast<long long>(x[2] / 2),
                                  static_cast<long long>(cosines[1])));
  const int32_t* position = positions.as<int32_t>();
  for (int64_t t = 0; t < positions[0]; t++) {
    if (position[t] < 0 || position[t] >= cosines[0])
      throw Error("E_RANGE", format("rope: positions[%lld] is %d, outside 0..%lld", static_cast<long long>(t),
                                    position[t], static_cast<long long>(cosines[0] - 1)));
  }
}

template <typename T>
void rotate_head(const T* x, T* y, const float* cosine, const float* sine, int64_t half, float sign) {
  const vf direction = set1(sign);
  int64_t e = 0;
  for (; e + kLanes <= half; e += kLanes) {
    const vf a = load(x + e), b = load(x + half + e), c = load(cosine + e), s = load(sine + e) * direction;
    store(y + e, fma(a, c, zero() - b * s));
    store(y + half + e, fma(b, c, a * s));
  }
  if (const int n = static_cast<int>(half - e); n > 0) {
    const vf a = load(x + e, n), b = load(x + half + e, n), c = load(cosine + e, n);
    const vf s = load(sine + e, n) * direction;
    store(y + e, fma(a, c, zero() - b * s), n);
    store(y + half + e, fma(b, c, a * s), n);
  }
}

void rope(Stream& stream, const Args& args) {
  const auto [x, cosines, sines, positions, y] = args.tensors<5>();
  check_tables(x, cosines, positions);
  const int64_t tokens = x[0], heads = x[1], size = x[2], half = size / 2;
  const float sign = args.i(0) ? -1.0f : 1.0f;
  by_storage(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    stream.pool.run((tokens + kRows - 1) / kRows, [&](int64_t task) {
      for (int64_t t = task * kRows; t < std::min(tokens, (task + 1) * kRows); t++) {
        const int64_t row = positions.as<int32_t>()[t] * half;
        for (int64_t head = 0; head < heads; head++) {
          const int64_t at = (t * heads + head) * size;
          rotate_head(x.as<T>() + at, y.as<T>() + at, cosines.as<float>() + row, sines.as<float>() + row,
                      half, sign);
        }
      }
    });
  });
}

}  // namespace

void register_rope(KernelTable& table) {
  table.set("rope", rope);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
