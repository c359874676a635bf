// Moves and combines tensors of any shape. All outputs are `=` but axpy, which is `+=`. Arithmetic is f32,
// rounded once on the store. `finite` reduces in runs of fixed size, in index order. Deterministic.
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/elementwise.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

void copy(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  const int64_t size = size_of(x.dtype);
  each_chunk(stream, x.numel(), [&](int64_t begin, int64_t end) {
    std::memcpy(y.as<char>() + begin * size, x.as<char>() + begin * size,
                static_cast<size_t>((end - begin) * size));
  });
}

void cast(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  if (x.dtype == y.dtype) return copy(stream, args);
  if (x.dtype == DType::f32) {
    map(stream, x.numel(), x.as<float>(), y.as<bf16>(), [](vf v) { return v; });
  } else {
    map(stream, x.numel(), x.as<bf16>(), y.as<float>(), [](vf v) { return v; });
  }
}

void fill(Stream& stream, const Args& args) {
  const TensorView& x = args.tensor[0];
  const auto with = [&](auto value) {
    each_chunk(stream, x.numel(), [&](int64_t begin, int64_t end) {
      auto* data = x.as<decltype(value)>();
      std::fill(data + begin, data + end, value);
    });
  };
  const double value = args.d(0);
  const auto integer = [&](double low, double high) {
    if (!(value >= low && value <= high) || value != std::nearbyint(value))
      throw Error("E_RANGE", format("fill: value %g does not fit into %s", value, name_of(x.dtype)));
    return value;
  };
  switch (x.dtype) {
    case DType::f32:
      return with(static_cast<float>(value));
    case DType::bf16:
      return with(from_float<bf16>(static_cast<float>(value)));
    case DType::i32:
      return with(static_cast<int32_t>(integer(-2147483648.0, 2147483647.0)));
    case DType::u8:
      return with(static_cast<uint8_t>(integer(0, 255)));
  }
}

void add(Stream& stream, const Args& args) {
  const auto [x, y, z] = args.tensors<3>();
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    map(stream, x.numel(), x.as<T>(), y.as<T>(), z.as<T>(), [](vf a, vf b) { return a + b; });
  });
}

void scale(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  const vf factor = set1(args.f(0));
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    map(stream, x.numel(), x.as<T>(), y.as<T>(), [&](vf v) { return v * factor; });
  });
}

void axpy(Stream& stream, const Args& args) {
  const auto [y, x] = args.tensors<2>();
  const vf factor = set1(args.f(0));
  by_storage(y.dtype, [&](auto ty) {
    by_storage(x.dtype, [&](auto tx) {
      auto* to = y.as<decltype(ty)>();
      const auto* from = x.as<decltype(tx)>();
      each_chunk(stream, x.numel(), [&](int64_t begin, int64_t end) {
        each_vector(begin, end, [&](int64_t i, int lanes) {
          store_lanes(to + i, fma(factor, load_lanes(from + i, lanes), load_lanes(to + i, lanes)), lanes);
        });
      });
    });
  });
}

void decode_f16(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  const int64_t n = y.numel();
  if (x.numel() != 2 * n)
    throw Error("E_SHAPE", format("decode_f16: x has %lld bytes, but %lld x %lld halves need %lld",
                                  static_cast<long long>(x.numel()), static_cast<long long>(y[0]),
                                  static_cast<long long>(y[1]), static_cast<long long>(2 * n)));
  by_storage(y.dtype, [&](auto t) {
    using T = decltype(t);
    each_chunk(stream, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        uint16_t half;
        std::memcpy(&half, x.as<char>() + 2 * i, 2);
        y.as<T>()[i] = from_float<T>(half_to_float(half));
      }
    });
  });
}

/// The largest finite magnitude of n elements, and how many are not finite.
struct Magnitudes {
  float largest, bad;
};
template <typename T>
Magnitudes count_bad(const T* x, int64_t n) {
  const vf infinity = set1(std::numeric_limits<float>::infinity());
  vf maximum = zero(), count = zero();
  each_vector(0, n, [&](int64_t i, int lanes) {
    const vf v = load_lanes(x + i, lanes), magnitude = max(v, zero() - v);
    maximum = max(maximum, select_less(magnitude, infinity, magnitude, zero()));
    count = count + select_less(magnitude, infinity, zero(), set1(1.0f));
  });
  return {max(maximum), sum(count)};
}

/// As count_bad, at the rate of the memory where all elements are finite: x - x is 0 of those alone.
template <typename T>
Magnitudes magnitudes(const T* x, int64_t n) {
  constexpr int kChains = 4;  // of sums and maxima, whose latency would be the bound
  vf maximum[kChains] = {zero(), zero(), zero(), zero()}, bad[kChains] = {zero(), zero(), zero(), zero()};
  const int64_t whole = n / (kChains * kLanes) * (kChains * kLanes);
  for (int64_t i = 0; i < whole; i += kChains * kLanes) {
#pragma GCC unroll 4
    for (int c = 0; c < kChains; c++) {
      const vf v = load(x + i + c * kLanes);
      maximum[c] = max(maximum[c], max(v, zero() - v));
      bad[c] = bad[c] + (v - v);
    }
  }
  const vf all_bad = (bad[0] + bad[1]) + (bad[2] + bad[3]);
  if (!(sum(all_bad) == 0.0f)) return count_bad(x, n);
  const Magnitudes rest = count_bad(x + whole, n - whole);
  return {std::max(max(max(max(maximum[0], maximum[1]), max(maximum[2], maximum[3]))), rest.largest),
          rest.bad};
}

void finite(Stream& stream, const Args& args) {
  const auto [x, stats] = args.tensors<2>();
  // Long runs: the processor reads ahead of one, and finds the next anew.
  constexpr int64_t kRun = 32 * kChunk;
  const int64_t n = x.numel(), runs = (n + kRun - 1) / kRun;
  auto* const found = stream.scratch.take<Magnitudes>(runs);
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    stream.pool.run(runs, [&](int64_t run) {
      found[run] = magnitudes(x.as<T>() + run * kRun, std::min(kRun, n - run * kRun));
    });
  });
  double maximum = 0, count = 0;
  for (int64_t i = 0; i < runs; i++) {
    maximum = std::max<double>(maximum, found[i].largest);
    count += found[i].bad;
  }
  stats.as<float>()[0] = static_cast<float>(maximum);
  stats.as<float>()[1] = static_cast<float>(count);
}

}  // namespace

void register_memory(KernelTable& table) {
  table.set("copy", copy);
  table.set("cast", cast);
  table.set("fill", fill);
  table.set("add", add);
  table.set("scale", scale);
  table.set("axpy", axpy);
  table.set("decode_f16", decode_f16);
  table.set("finite", finite);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
