// Draws one token per row of logits [R, V], each row by its own parameters: biases and allowed tokens,
// temperature, then top-k, top-p and min-p as transformers' logits warpers define them, then the inverse of
// the cumulative distribution at a Philox number of the row's own key and counter, in order of the
// vocabulary. One launch, a block per row; a row depends on its logits,
// parameters and key alone. Outputs are `=`.
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

/// The op's inputs; absent ones are null.
struct SampleInputs {
  const float* logits;
  int64_t rows, vocabulary;
  const int32_t* keys;
  const float* temperature;
  const int32_t* top_k;
  const float *top_p, *min_p;
  const int32_t *bias_offsets, *bias_tokens;
  const float* bias;
  int64_t biases;
  const int32_t *allowed_offsets, *allowed;
  int64_t allowed_count;
};
enum Input {
  kTemperature = 2,
  kTopK,
  kTopP,
  kMinP,
  kBiasOffsets,
  kBiasTokens,
  kBias,
  kAllowedOffsets,
  kAllowed
};

struct SampleOutputs {
  int32_t* tokens;
  float *logprobs, *sampling_logprobs, *tempered_logprobs;
  int32_t* status;
};

/// Row r's parameters. `holds` is false, and reported, where one is out of range.
__device__ inline Warp warp_of(const SampleInputs& in, int64_t r, const FaultReporter& faults, bool& holds) {
  const float temperature = in.temperature ? in.temperature[r] : 1.0f, top_p = in.top_p ? in.top_p[r] : 1.0f,
              min_p = in.min_p ? in.min_p[r] : 0.0f;
  const int32_t top_k = in.top_k ? in.top_k[r] : 0;
  holds = true;
  const auto require = [&](bool good, int input, int32_t integer, float value) {
    if (good) return;
    holds = false;
    if (threadIdx.x == 0)
      report(faults, FaultKind::setting, input, r, integer, 0, static_cast<int64_t>(__float_as_uint(value)));
  };
  require(temperature >= 0 && temperature < INFINITY, kTemperature, 0, temperature);
  require(top_k >= 0, kTopK, top_k, 0);
  require(top_p > 0 && top_p <= 1, kTopP, 0, top_p);
  require(min_p >= 0 && min_p <= 1, kMinP, 0, min_p);
  return {temperature, top_k, top_p, min_p};
}

/// Row r's logits with its biases, -infinity where a token is not allowed: `row` itself where it has neither,
/// null where a list does not hold.
__device__ inline const float* adjusted(const SampleInputs& in, int64_t r, const float* row, float* out,
                                        const FaultReporter& faults) {
  int64_t first_bias = 0, last_bias = 0, first_allowed = 0, last_allowed = 0;
  if (in.bias_offsets &&
      !range_holds(faults, kBiasOffsets, in.bias_offsets, r, in.rows, in.biases, first_bias, last_bias))
    return nullptr;
  if (in.allowed_offsets && !range_holds(faults, kAllowedOffsets, in.allowed_offsets, r, in.rows,
                                         in.allowed_count, first_allowed, last_allowed))
    return nullptr;
  const bool restricts = first_allowed < last_allowed;
  if (!restricts && first_bias == last_bias) return row;
  for (int64_t v = threadIdx.x; v < in.vocabulary; v += blockDim.x) out[v] = restricts ? -INFINITY : row[v];
  __syncthreads();
  bool holds = true;
  for (int64_t i = first_allowed + threadIdx.x; i < last_allowed; i += blockDim.x) {
    const int32_t token = in.allowed[i];
    if (index_holds(faults, kAllowed, i, token, in.vocabulary)) {
      out[token] = row[token];
    } else {
      holds = false;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {  // in order, since a token may have several
    for (int64_t i = first_bias; i < last_bias; i++) {
      const int32_t token = in.bias_tokens[i];
      if (!(in.bias[i] < INFINITY)) {
        report(faults, FaultKind::setting, kBias, i, 0, 0, static_cast<int64_t>(__float_as_uint(in.bias[i])));
        holds = false;
      } else if (index_holds(faults, kBiasTokens, i, token, in.vocabulary)) {
        out[token] += in.bias[i];
      } else {
        holds = false;
      }
    }
  }
  return __syncthreads_and(holds) ? out : nullptr;
}

/// An integer in the order of the floats.
__device__ inline uint32_t order_of(float x) {
  const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);  // -0 is 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// One row and what its filters leave. All threads of the block hold the same values,
/// except where a comment says otherwise.
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

/// The largest of a row, for all threads; NaN where one is NaN or +infinity.
__device__ inline float largest_of(const float* row, int64_t vocabulary) {
  float largest = -INFINITY, broken = 0;
  for (int64_t v = threadIdx.x; v < vocabulary; v += blockDim.x) {
    if (!(row[v] < INFINITY)) {
      broken = 1;
    } else if (row[v] > largest) {
      largest = row[v];
    }
  }
  largest = block_max(largest);
  return block_max(broken) > 0 ? NAN : largest;
}

__global__ void __launch_bounds__(kMaxThreads, 1)
    sample_kernel(const __grid_constant__ SampleInputs in, double* masses, float* adjusted_rows,
                  SampleOutputs out, FaultReporter faults) {
  __shared__ int32_t drawn;
  const int64_t r = blockIdx.x, vocabulary = in.vocabulary;
  const float* const model_row = in.logits + r * vocabulary;
  bool holds;
  const Warp warp = warp_of(in, r, faults, holds);
  if (!holds) return;
  const float* const row = adjusted(in, r, model_row, adjusted_rows + r * vocabulary, faults);
  if (!row) return;
  const float model_largest = largest_of(model_row, vocabulary);
  const float largest = row == model_row ? model_largest : largest_of(row, vocabulary);
  if (!(model_largest > -INFINITY) || !(largest > -INFINITY)) {
    if (threadIdx.x != 0) return;
    out.tokens[r] = 0;
    out.logprobs[r] = out.sampling_logprobs[r] = 0;
    if (out.tempered_logprobs) out.tempered_logprobs[r] = 0;
    out.status[r] = 1;
    return;
  }
  double first = -static_cast<double>(vocabulary);
  for (int64_t v = threadIdx.x; v < vocabulary; v += blockDim.x)
    if (row[v] == largest) first = fmax(first, -static_cast<double>(v));
  const int32_t most_likely = static_cast<int32_t>(-block_max(first));

  const int64_t tiles = (vocabulary + kTileTokens - 1) / kTileTokens;
  RowSampler sampler{row, vocabulary, warp, masses + r * tiles, largest, most_likely};
  const RowSampler model{model_row, vocabulary, warp, nullptr, model_largest, most_likely};
  int32_t token = most_likely;
  float sampling = 0, tempered = 0;
  if (warp.temperature > 0) {
    const bool top_k = warp.top_k > 0 && warp.top_k < vocabulary, top_p = warp.top_p < 1;
    sampler.filtered = top_k || top_p || warp.min_p > 0;
    if (top_k) sampler.keep_top_k();
    if (top_p) sampler.keep_top_p();
    const double total = sampler.sum_tiles();
    if (threadIdx.x == 0) drawn = sampler.draw(uniform_of(in.keys + 4 * r) * total);
    __syncthreads();
    token = drawn;
    const float inverse = 1 / static_cast<float>(warp.temperature);
    const bool sampled_as_tempered = !sampler.filtered && row == model_row;
    if (sampled_as_tempered || out.tempered_logprobs) tempered = model.logprob(token, inverse);
    sampling =
        sampler.filtered
            ? static_cast<float>((static_cast<double>(row[token]) - largest) / warp.temperature - log(total))
        : sampled_as_tempered ? tempered
                              : sampler.logprob(token, inverse);
  }
  const float logprob = model.logprob(token, 1);
  if (threadIdx.x != 0) return;
  out.tokens[r] = token;
  out.logprobs[r] = logprob;
  out.sampling_logprobs[r] = sampling;
  if (out.tempered_logprobs) out.tempered_logprobs[r] = tempered;
  out.status[r] = 0;
}

void sample(Stream& stream, const Args& args) {
  const auto [logits, keys, temperature, top_k, top_p, min_p, bias_offsets, bias_tokens, bias,
              allowed_offsets, allowed, tokens, logprobs, sampling_logprobs, tempered_logprobs, status] =
      args.tensors<16>();
  const int64_t rows = logits[0], vocabulary = logits[1];
  if (!bias_offsets != !bias_tokens || !bias_offsets != !bias || !allowed_offsets != !allowed)
    throw Error("E_SHAPE",
                "sample: bias_offsets, bias_tokens and bias are given together, as are allowed_offsets and "
                "allowed");
  if (rows > 0 && vocabulary == 0) throw Error("E_RANGE", "sample: the vocabulary is empty");
  const SampleInputs in{logits.as<float>(),
                        rows,
                        vocabulary,
                        keys.as<int32_t>(),
                        temperature.as<float>(),
                        top_k.as<int32_t>(),
                        top_p.as<float>(),
                        min_p.as<float>(),
                        bias_offsets.as<int32_t>(),
                        bias_tokens.as<int32_t>(),
                        bias.as<float>(),
                        bias ? bias[0] : 0,
                        allowed_offsets.as<int32_t>(),
                        allowed.as<int32_t>(),
                        allowed ? allowed[0] : 0};
  double* const masses = stream.scratch.take<double>(rows * ((vocabulary + kTileTokens - 1) / kTileTokens));
  float* const adjusted_rows = bias || allowed ? stream.scratch.take<float>(rows * vocabulary) : nullptr;
  const SampleOutputs out{tokens.as<int32_t>(), logprobs.as<float>(), sampling_logprobs.as<float>(),
                          tempered_logprobs.as<float>(), status.as<int32_t>()};
  stream.launch(sample_kernel, rows, threads_for(vocabulary), 0, in, masses, adjusted_rows, out,
                stream.faults);
}

}  // namespace

void register_sampling(KernelTable& table) {
  table.set("sample", sample);
}

}  // namespace steptrain::cuda
