// Elementwise kernels: a flat range cut into chunks, one task each, the last vector of a chunk masked. An
// element's value depends on its own inputs alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/runtime/stream.h"
#include "cpu/simd.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

constexpr int64_t kChunk = 8192;

/// body(begin, end) over [0, n), in chunks of kChunk.
template <typename F>
void each_chunk(Stream& stream, int64_t n, F body) {
  stream.pool.run((n + kChunk - 1) / kChunk,
                  [&](int64_t chunk) { body(chunk * kChunk, std::min(n, (chunk + 1) * kChunk)); });
}

/// body(i, lanes) for each vector of [begin, end).
template <typename F>
void each_vector(int64_t begin, int64_t end, F body) {
  for (int64_t i = begin; i < end; i += kLanes) body(i, static_cast<int>(std::min<int64_t>(kLanes, end - i)));
}

template <typename T>
vf load_lanes(const T* p, int lanes) {
  return lanes == kLanes ? load(p) : load(p, lanes);
}
template <typename T>
void store_lanes(T* p, vf x, int lanes) {
  if (lanes == kLanes) {
    store(p, x);
  } else {
    store(p, x, lanes);
  }
}

/// y = body(x), one vector at a time.
template <typename X, typename Y, typename F>
void map(Stream& stream, int64_t n, const X* x, Y* y, F body) {
  each_chunk(stream, n, [&](int64_t begin, int64_t end) {
    each_vector(begin, end,
                [&](int64_t i, int lanes) { store_lanes(y + i, body(load_lanes(x + i, lanes)), lanes); });
  });
}

/// z = body(x, y).
template <typename T, typename Z, typename F>
void map(Stream& stream, int64_t n, const T* x, const T* y, Z* z, F body) {
  each_chunk(stream, n, [&](int64_t begin, int64_t end) {
    each_vector(begin, end, [&](int64_t i, int lanes) {
      store_lanes(z + i, body(load_lanes(x + i, lanes), load_lanes(y + i, lanes)), lanes);
    });
  });
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
