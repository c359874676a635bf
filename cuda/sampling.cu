// Draws one token per row of logits [R, V]: temperature, then top-k, top-p and min-p as transformers' logits
// warpers define them, then the inverse of the cumulative distribution, in order of the vocabulary, at a
// Philox number of the row's own key and counter. One launch, a block per row; a row depends on its logits
// and key alone. Outputs are `=`.
//
// Nothing is sorted: logits become integers of the same order, and a threshold is found by bisection over
// these integers; each step is a pass that counts tokens or sums their mass. The draw finds the tile of the
// vocabulary, then the token in it.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/philox.h"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kMaxThreads = 512;
constexpr int64_t kTileTokens = 512;

/// Depends on the vocabulary alone, because it determines the order of sums.
int threads_for(int64_t vocabulary) {
  return static_cast<int>(std::clamp<int64_t>((vocabulary + 255) / 256 * kWarp, kWarp, kMaxThreads));
}

struct Warp {
  double temperature;
  int64_t top_k;  // 0: off
  double top_p, min_p;
};

struct SampleOutputs {
  int32_t* tokens;
  float *logprobs, *sampling_logprobs, *tempered_logprobs;
};

/// An integer in the order of the floats.
__device__ inline uint32_t order_of(float x) {
  const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);  // -0 is 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// One row and what its filters leave. All threads of the block hold the same values, except where a comment
/// says otherwise.
struct RowSampler {
  const float* row;
  int64_t vocabulary;
  Warp warp;
  double* masses;  // [tiles], in device memory
  float largest;
  int32_t most_likely;  // the first among equals
  // A token stays if its order is above `border`, or equal to it and the token at most `last_equal`.
  uint32_t border = 0;
  int64_t last_equal = INT64_MAX;
  bool filtered = false;

  /// Mass relative to that of the most likely token.
  __device__ double mass(float logit) const {
    return exp((static_cast<double>(logit) - largest) / warp.temperature);
  }
  /// The mass of token v after the filters.
  __device__ double kept_mass(int64_t v) const {
    if (!filtered) return expf((row[v] - largest) * (1 / static_cast<float>(warp.temperature)));
    const uint32_t order = order_of(row[v]);
    if (order < border || (order == border && v > last_equal)) return 0;
    const double own = mass(row[v]);
    return own >= warp.min_p ? own : 0;
  }

  /// Σ body(v) over the vocabulary, for all threads.
  template <typename F>
  __device__ double sum(F body) const {
    double total = 0;
    for (int64_t v = threadIdx.x; v < vocabulary; v += blockDim.x) total += body(v);
    return block_sum(total);
  }

  /// The greatest order for which weight(order, v), summed over tokens of this order or above, reaches
  /// `limit`; `above` is the sum over tokens above it.
  template <typename F>
  __device__ uint32_t find_border(double limit, F weight, double& above) const {
    uint64_t low = 0, high = uint64_t{1} << 32;
    above = 0;
    while (high - low > 1) {
      const uint64_t middle = (low + high) / 2;
      const double between = sum([&](int64_t v) {
        const uint32_t order = order_of(row[v]);
        return order >= middle && order < high ? weight(v) : 0.0;
      });
      if (above + between >= limit) {
        low = middle;
      } else {
        high = middle;
        above += between;
      }
    }
    return static_cast<uint32_t>(low);
  }

  /// Keeps the tokens that are not below the k-th largest; its equals stay, as in TopKLogitsWarper.
  __device__ void keep_top_k() {
    double above;
    border = find_border(
        static_cast<double>(warp.top_k), [](int64_t) { return 1.0; }, above);
  }

  /// Keeps a token if the more likely ones hold less than top_p of the mass, as in TopPLogitsWarper; among
  /// equals the first come first.
  __device__ void keep_top_p() {
    const uint32_t lowest = border;
    const auto weight = [&](int64_t v) { return order_of(row[v]) >= lowest ? mass(row[v]) : 0.0; };
    const double limit = warp.top_p * sum(weight);
    double above;
    const uint32_t found = find_border(limit, weight, above);
    if (found < lowest) return;  // rounding put the limit out of reach: all stay
    border = found;
    const auto equal = [&](int64_t v) { return order_of(row[v]) == found; };
    const double equals = sum([&](int64_t v) { return equal(v) ? 1.0 : 0.0; });
    if (equals == 0) return;
    const double each = sum([&](int64_t v) { return equal(v) ? mass(row[v]) : 0.0; }) / equals;
    const double wanted = each > 0 ? fmax(1.0, ceil((limit - above) / each)) : equals;
    if (wanted >= equals) return;
    int64_t low = 0, high = vocabulary - 1;  // the first token up to which there are `wanted` equals
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      const double count = sum([&](int64_t v) { return v <= middle && equal(v) ? 1.0 : 0.0; });
      if (count >= wanted) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    last_equal = low;
  }

  /// Sums the masses of tiles, a warp per tile, and returns the total.
  __device__ double sum_tiles() const {
    __shared__ double total;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int64_t tiles = (vocabulary + kTileTokens - 1) / kTileTokens;
    for (int64_t tile = threadIdx.x / kWarp; tile < tiles; tile += blockDim.x / kWarp) {
      const int64_t end = (tile + 1) * kTileTokens < vocabulary ? (tile + 1) * kTileTokens : vocabulary;
      double own = 0;
      for (int64_t v = tile * kTileTokens + lane; v < end; v += kWarp) own += kept_mass(v);
#pragma unroll
      for (int distance = kWarp / 2; distance > 0; distance /= 2)
        own += __shfl_xor_sync(0xffffffffu, own, distance);
      if (lane == 0) masses[tile] = own;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      total = 0;
      for (int64_t tile = 0; tile < tiles; tile++) total += masses[tile];
    }
    __syncthreads();
    return total;
  }

  /// The token at `target` of the cumulative mass. By one thread.
  __device__ int32_t draw(double target) const {
    double before = 0;
    int64_t tile = 0;
    for (const int64_t last = (vocabulary - 1) / kTileTokens; tile < last; tile++) {
      if (before + masses[tile] > target) break;
      before += masses[tile];
    }
    const int64_t end = (tile + 1) * kTileTokens < vocabulary ? (tile + 1) * kTileTokens : vocabulary;
    int64_t drawn = -1;
    for (int64_t v = tile * kTileTokens; v < end; v++) {
      const double own = kept_mass(v);
      if (own == 0) continue;
      drawn = v;
      before += own;
      if (before > target) break;
    }
    // Below 0 where rounding made the tile's mass larger than the sum over its tokens.
    return drawn < 0 ? most_likely : static_cast<int32_t>(drawn);
  }

  __device__ float logprob(int32_t token, float inverse) const {
    const float shift = largest * inverse;
    const double mass_of_all = sum([&](int64_t v) { return expf(fmaf(row[v], inverse, -shift)); });
    return fmaf(row[token], inverse, -shift) - static_cast<float>(log(mass_of_all));
  }
};

/// Uniform in [0, 1) with 53 bits, from the row's key and counter.
__device__ double uniform_of(const int32_t* key) {
  const auto word = [&](int i) { return static_cast<uint32_t>(key[i]); };
  const Philox4 block = philox({{word(2), word(3), 0, 0}}, word(0), word(1));
  return (static_cast<double>(block.v[0] >> 5) * 0x1p26 + static_cast<double>(block.v[1] >> 6)) * 0x1p-53;
}

__global__ void __launch_bounds__(kMaxThreads)
    sample_kernel(const float* logits, int64_t vocabulary, const int32_t* keys, Warp warp, double* masses,
                  SampleOutputs out, FaultReporter faults) {
  __shared__ int32_t drawn;
  const int64_t r = blockIdx.x;
  const float* const row = logits + r * vocabulary;
  float largest = -INFINITY;
  double broken = -static_cast<double>(vocabulary);  // minus the first token that is NaN or +infinity
  for (int64_t v = threadIdx.x; v < vocabulary; v += blockDim.x) {
    if (!(row[v] < INFINITY)) {
      broken = fmax(broken, -static_cast<double>(v));
    } else if (row[v] > largest) {
      largest = row[v];
    }
  }
  largest = block_max(largest);
  broken = block_max(broken);
  if (-broken < static_cast<double>(vocabulary)) {
    const int64_t v = static_cast<int64_t>(-broken);
    if (threadIdx.x == 0) report(faults, FaultKind::logit, 0, r, v, vocabulary, row[v] > 0);
    return;
  }
  if (!(largest > -INFINITY)) {
    if (threadIdx.x == 0) report(faults, FaultKind::no_token, 0, r, 0, vocabulary);
    return;
  }
  double first = -static_cast<double>(vocabulary);
  for (int64_t v = threadIdx.x; v < vocabulary; v += blockDim.x)
    if (row[v] == largest) first = fmax(first, -static_cast<double>(v));
  const int32_t most_likely = static_cast<int32_t>(-block_max(first));

  const int64_t tiles = (vocabulary + kTileTokens - 1) / kTileTokens;
  RowSampler sampler{row, vocabulary, warp, masses + r * tiles, largest, most_likely};
  const bool greedy = warp.temperature == 0;
  int32_t token = most_likely;
  float sampling = 0, tempered = 0;
  if (!greedy) {
    const bool top_k = warp.top_k > 0 && warp.top_k < vocabulary, top_p = warp.top_p < 1;
    sampler.filtered = top_k || top_p || warp.min_p > 0;
    if (top_k) sampler.keep_top_k();
    if (top_p) sampler.keep_top_p();
    const double total = sampler.sum_tiles();
    if (threadIdx.x == 0) drawn = sampler.draw(uniform_of(keys + 4 * r) * total);
    __syncthreads();
    token = drawn;
    if (!sampler.filtered || out.tempered_logprobs)
      tempered = sampler.logprob(token, 1 / static_cast<float>(warp.temperature));
    sampling =
        sampler.filtered
            ? static_cast<float>((static_cast<double>(row[token]) - largest) / warp.temperature - log(total))
            : tempered;
  }
  const float logprob = sampler.logprob(token, 1);
  if (threadIdx.x != 0) return;
  out.tokens[r] = token;
  out.logprobs[r] = logprob;
  out.sampling_logprobs[r] = sampling;
  if (out.tempered_logprobs) out.tempered_logprobs[r] = tempered;
}

Warp checked_warp(const Args& args) {
  const Warp warp{args.d(0), args.i(1), args.d(2), args.d(3)};
  if (!(warp.temperature >= 0) || !std::isfinite(warp.temperature))
    throw Error("E_RANGE", format("sample: temperature is %g, expected 0 or more", warp.temperature));
  if (warp.temperature == 0) return warp;
  if (warp.top_k < 0)
    throw Error("E_RANGE", format("sample: top_k is %lld, expected 0 (off) or more",
                                  static_cast<long long>(warp.top_k)));
  if (!(warp.top_p > 0 && warp.top_p <= 1))
    throw Error("E_RANGE", format("sample: top_p is %g, expected more than 0, up to 1 (off)", warp.top_p));
  if (!(warp.min_p >= 0 && warp.min_p <= 1))
    throw Error("E_RANGE", format("sample: min_p is %g, expected 0 (off) to 1", warp.min_p));
  return warp;
}

void sample(Stream& stream, const Args& args) {
  const auto [logits, keys, tokens, logprobs, sampling_logprobs, tempered_logprobs] = args.tensors<6>();
  const int64_t rows = logits[0], vocabulary = logits[1];
  const Warp warp = checked_warp(args);
  if (rows > 0 && vocabulary == 0) throw Error("E_RANGE", "sample: the vocabulary is empty");
  double* const masses = stream.scratch.take<double>(rows * ((vocabulary + kTileTokens - 1) / kTileTokens));
  const SampleOutputs out{tokens.as<int32_t>(), logprobs.as<float>(), sampling_logprobs.as<float>(),
                          tempered_logprobs.as<float>()};
  stream.launch(sample_kernel, rows, threads_for(vocabulary), 0, logits.as<float>(), vocabulary,
                keys.as<int32_t>(), warp, masses, out, stream.faults);
}

}  // namespace

void register_sampling(KernelTable& table) {
  table.set("sample", sample);
}

}  // namespace steptrain::cuda
