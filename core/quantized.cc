#include "core/quantized.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace steptrain {

void check_quantized(const char* op, Format kind, int64_t n, int64_t k, int64_t bytes) {
  // No weight has more rows or features, and with more the number of bytes would overflow.
  constexpr int64_t kMost = int64_t{1} << 31;
  if (n > kMost || k > kMost)
    throw Error("E_SHAPE", format("%s: a weight [%lld,%lld] is larger than any that can be", op,
                                  static_cast<long long>(n), static_cast<long long>(k)));
  const int64_t multiple = multiple_of(kind);
  if (k % multiple)
    throw Error("E_SHAPE",
                format("%s: the %lld features of a row must be a multiple of %lld for %s", op,
                       static_cast<long long>(k), static_cast<long long>(multiple), name_of(kind)));
  const int64_t expected = stored_bytes(kind, n, k);
  if (bytes != expected)
    throw Error("E_SHAPE", format("%s: a weight [%lld,%lld] in %s has %lld bytes, got %lld", op,
                                  static_cast<long long>(n), static_cast<long long>(k), name_of(kind),
                                  static_cast<long long>(expected), static_cast<long long>(bytes)));
}

void dynamic_levels(float* levels) {
  int64_t count = 0;
  for (int i = 0; i < 7; i++) {
    const int64_t items = int64_t{1} << i;
    // torch.linspace of float32: from both ends, in fused multiply-adds.
    const float first = 0.1f, last = 1.0f, step = (last - first) / static_cast<float>(items);
    const auto boundary = [&](int64_t j) {
      return j < (items + 1) / 2 ? std::fma(step, static_cast<float>(j), first)
                                 : std::fma(-step, static_cast<float>(items - j), last);
    };
    const double power = std::pow(10.0, i - 6);
    for (int64_t j = 0; j < items; j++) {
      const float mean = (boundary(j) + boundary(j + 1)) / 2.0f;
      const float value = static_cast<float>(power) * mean;
      levels[count++] = value;
      levels[count++] = -value;
    }
  }
  levels[count++] = 0;
  levels[count++] = 1;
  std::sort(levels, levels + count);
}

}  // namespace steptrain
