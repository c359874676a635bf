// Sums rows that share a destination, in order of the rows, without atomics: each row finds the next one with
// its key and whether it is the first; then the first of each chain walks along it. The bits are those of a
// loop over the rows.
#pragma once

#include "cuda/elementwise.cuh"

namespace steptrain::cuda {

/// Rows linked by key, in device memory, for the duration of an op.
struct Chains {
  const int32_t* keys;  // [n], the destinations
  int32_t* next;        // [n], -1 at the end
  uint8_t* first;       // [n]; 0 too where the key is out of range
};

constexpr int kLinkThreads = 64, kLinkTile = 256;

/// Reports keys outside 0..limit-1 as elements of the op's input `tensor`. Every thread compares its key with
/// all others, four a read, of which most match none: n² cheap steps, which cost less than the sums for any
/// batch that fits a GPU.
static __global__ void __launch_bounds__(kLinkThreads)
    chain_kernel(Chains chains, int64_t n, int64_t limit, int tensor, FaultReporter faults) {
  __shared__ uint4 tile[kLinkTile];
  const int64_t own = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x;
  const int32_t signed_key = own < n ? chains.keys[own] : 0;
  const auto key = static_cast<uint32_t>(signed_key);
  const bool holds = own < n && index_holds(faults, tensor, own, signed_key, limit);
  bool before = false;
  int64_t next = n;
  const auto match = [&](int64_t at) {
    if (at < own) before = true;
    if (at > own && at < next) next = at;
  };
  for (int64_t begin = 0; begin < n; begin += 4 * kLinkTile) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < 4 * kLinkTile; i += kLinkThreads)
      reinterpret_cast<int32_t*>(tile)[i] = begin + i < n ? chains.keys[begin + i] : -1;
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < kLinkTile; i++) {
      const uint4 keys = tile[i];
      if (keys.x != key && keys.y != key && keys.z != key && keys.w != key) continue;
      const int64_t at = begin + 4 * i;
      if (keys.x == key) match(at);
      if (keys.y == key) match(at + 1);
      if (keys.z == key) match(at + 2);
      if (keys.w == key) match(at + 3);
    }
  }
  if (own >= n) return;
  chains.next[own] = holds && next < n ? static_cast<int32_t>(next) : -1;
  chains.first[own] = holds && !before;
}

/// out[key] (=|+=) Σ rows of the chain of key;
/// source.add(row, column, count, sum) adds eight elements of a row.
template <bool kAccumulate, typename T, typename Source>
__global__ void __launch_bounds__(kThreads, 4)
    chain_sum_kernel(Chains chains, Source source, T* out, int64_t width, bool wide) {
  const int64_t row = blockIdx.x;
  if (!chains.first[row]) return;
  T* to = out + chains.keys[row] * width;
  for (int64_t h = int64_t{threadIdx.x} * kEight; h < width; h += int64_t{blockDim.x} * kEight) {
    const int count = in_group(h, width);
    float sum[kEight] = {};
    if constexpr (kAccumulate) load8(to + h, count, wide, sum);
    for (int64_t i = row; i >= 0; i = chains.next[i]) source.add(i, h, count, sum);
    store8(to + h, count, wide, sum);
  }
}

/// Rows x[n, width] as they are.
template <typename T>
struct PlainRows {
  const T* x;
  int64_t width;
  bool wide;
  __device__ void add(int64_t row, int64_t h, int count, float (&sum)[kEight]) const {
    float v[kEight];
    load8(x + row * width + h, count, wide, v);
#pragma unroll
    for (int i = 0; i < kEight; i++) sum[i] = sum[i] + v[i];
  }
};

/// Two launches. `keys` is the op's input `tensor`.
template <bool kAccumulate, typename T, typename Source>
void sum_chains(Stream& stream, const TensorView& keys, int tensor, int64_t limit, const Source& source,
                T* out, int64_t width, bool wide) {
  const int64_t n = keys.numel();
  const Chains chains{keys.as<int32_t>(), stream.scratch.take<int32_t>(n), stream.scratch.take<uint8_t>(n)};
  stream.launch(chain_kernel, (n + kLinkThreads - 1) / kLinkThreads, kLinkThreads, 0, chains, n, limit,
                tensor, stream.faults);
  const int64_t groups = (width + kEight - 1) / kEight;
  const int threads = static_cast<int>(groups < kThreads ? (groups + 31) / 32 * 32 : kThreads);
  stream.launch(chain_sum_kernel<kAccumulate, T, Source>, groups == 0 ? 0 : n, threads, 0, chains, source,
                out, width, wide);
}

}  // namespace steptrain::cuda
