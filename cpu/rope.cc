// Rotary position embedding of x[T,heads,D] by tables cos, sin f32[P,E], indexed by positions[T]. The first 2·E elements
// of a head rotate by halves as in Hugging Face models: y[e] = x[e]·cos - x[e+E]·sin, y[e+E] = x[e+E]·cos + x[e]·sin;
// those behind them, of a `partial` rotation, stay; inverse rotates by the negative angle, which is also the gradient. y is overwritten and may be x;
// arithmetic in f32, rounded once to storage.
#include <algorithm>

#include "cpu/rope.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kRows = 16;  // tokens per task

void rope(Stream& stream, const Args& args) {
  const auto [x, cosines, sines, positions, y] = args.tensors<5>();
  const int64_t tokens = x[0], heads = x[1], size = x[2], half = cosines[1];
  check_tables("rope", args.i(1) && size > 2 * half ? 2 * half : size, cosines, positions);
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
          if (y.data != x.data)
            std::copy(x.as<T>() + at + 2 * half, x.as<T>() + at + size, y.as<T>() + at + 2 * half);
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
