#include "core/quantized.h"

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

}  // namespace steptrain
