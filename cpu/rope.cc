// Rotary position embedding of x[T,heads,D] by tables cos, sin f32[P,D/2], indexed by positions[T]. The
// halves of a head rotate as in Hugging Face models: y[e] = x[e]·cos - x[e+E]·sin, y[e+E] = x[e+E]·cos +
// x[e]·sin with E = D/2; inverse rotates by the negative angle, which is also the gradient. y is overwritten and may be x;
// arithmetic in f32, rounded once to storage.
#include <algorithm>

#include "cpu/rope.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kRows = 16;  // tokens per task

void rope(Stream& stream, const Args& args) {
  const auto [x, cosines, sines, positions, y] = args.tensors<5>();
  check_tables("rope", x[2], cosines, positions);
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
