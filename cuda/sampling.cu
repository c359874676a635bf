// Draws one token per row of logits [R, V], each row by its own parameters: biases and allowed tokens,
// temperature, then top-k, top-p and min-p as transformers' logits warpers define them, then the inverse of
// the cumulative distribution at a Philox number of the row's own key and counter, in order of the
// vocabulary. One launch; a row depends on its logits, parameters and key alone. Outputs are `=`.
//
// A row is cut into tiles of kTileTokens, and kBlockTiles of them are a block's: a warp reads a tile once and leaves its
// maximum and its masses. The block of a row that ends last does the rest. Without filters it finds the tile of the draw
// in their masses, then the token in it. With filters it gathers the tokens above a lower bound of the threshold, of tiles whose
// maximum is above it, and finds the exact threshold among them: by digits of three bits of integers in the order of
// the logits, each a pass over the candidates that adds up their mass by digit. Where too many tokens are above the bound, the whole row takes their
// place.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/philox.h"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kBlockWarps = 8;
constexpr int kTileTokens = 512, kLaneTokens = kTileTokens / kWarp;
constexpr int kBlockTiles = 2 * kBlockWarps;
constexpr int kMaxCandidates = 8192;
constexpr int64_t kMaxWorkspace = int64_t{64} << 20;  // bytes

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

/// A tile of a row, after biases, and of the model's own logits. Masses are relative to the tile's maximum, later to the
/// row's.
struct Tile {
  float largest, model_largest;
  int32_t first;                     // token with the largest logit, the first among equals
  int32_t candidates;                // in the tiles before
  double mass;                       // at the temperature
  double model_mass, tempered_mass;  // of the model's logits, at temperature 1 and at the row's
  bool broken;                       // holds NaN or +infinity
};

/// What a row's blocks share, in workspace.
struct Workspace {
  Tile* tiles;      // [rows][tiles]
  float* adjusted;  // [rows][V]; null where no row has biases or allowed tokens
  int32_t* tokens;  // [rows][kMaxCandidates, or V where that is less], in order of the vocabulary
  double* masses;   // of them
};

/// Row r's logits with its biases, -infinity where a token is not allowed, from token `begin` to `end`: `row` itself where
/// it has neither, null where a list does not hold. All blocks of a row come to the same end.
__device__ inline const float* adjusted(const SampleInputs& in, int64_t r, const float* row, float* out,
                                        int64_t begin, int64_t end, const FaultReporter& faults) {
  int64_t first_bias = 0, last_bias = 0, first_allowed = 0, last_allowed = 0;
  if (in.bias_offsets &&
      !range_holds(faults, kBiasOffsets, in.bias_offsets, r, in.rows, in.biases, first_bias, last_bias))
    return nullptr;
  if (in.allowed_offsets && !range_holds(faults, kAllowedOffsets, in.allowed_offsets, r, in.rows,
                                         in.allowed_count, first_allowed, last_allowed))
    return nullptr;
  const bool restricts = first_allowed < last_allowed;
  if (!restricts && first_bias == last_bias) return row;
  const auto inside = [&](int64_t token) { return begin <= token && token < end; };
  for (int64_t v = begin + threadIdx.x; v < end; v += blockDim.x) out[v] = restricts ? -INFINITY : row[v];
  __syncthreads();
  bool holds = true;
  for (int64_t i = first_allowed + threadIdx.x; i < last_allowed; i += blockDim.x) {
    const int32_t token = in.allowed[i];
    if (!index_holds(faults, kAllowed, i, token, in.vocabulary)) {
      holds = false;
    } else if (inside(token)) {
      out[token] = row[token];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {  // in order, since a token may have several
    for (int64_t i = first_bias; i < last_bias; i++) {
      const int32_t token = in.bias_tokens[i];
      if (!(in.bias[i] < INFINITY)) {
        report(faults, FaultKind::setting, kBias, i, 0, 0, static_cast<int64_t>(__float_as_uint(in.bias[i])));
        holds = false;
      } else if (!index_holds(faults, kBiasTokens, i, token, in.vocabulary)) {
        holds = false;
      } else if (inside(token)) {
        out[token] += in.bias[i];
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

__device__ inline float logit_of(uint32_t order) {
  return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

/// The logits of a tile that a lane reads: tokens begin + lane + 32·j, -infinity beyond the row.
struct LaneLogits {
  float x[kLaneTokens];
  __device__ LaneLogits(const float* row, int64_t begin, int64_t vocabulary, int lane) {
#pragma unroll
    for (int j = 0; j < kLaneTokens; j++) {
      const int64_t v = begin + j * kWarp + lane;
      x[j] = v < vocabulary ? row[v] : -INFINITY;
    }
  }
  /// Over the warp. NaN and +infinity are left out.
  __device__ float largest() const {
    float found = -INFINITY;
#pragma unroll
    for (int j = 0; j < kLaneTokens; j++)
      if (x[j] > found && x[j] < INFINITY) found = x[j];
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      found = fmaxf(found, __shfl_xor_sync(0xffffffffu, found, distance));
    return found;
  }
  /// Σ exp((x - largest)·inverse) over the warp.
  __device__ double mass(float largest, float inverse) const {
    if (!(largest > -INFINITY)) return 0;
    double sum = 0;
#pragma unroll
    for (int j = 0; j < kLaneTokens; j++) sum += expf((x[j] - largest) * inverse);
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
  }
  __device__ bool broken() const {
    bool all = true;
#pragma unroll
    for (int j = 0; j < kLaneTokens; j++) all = all && x[j] < INFINITY;
    return !__all_sync(0xffffffffu, all);
  }
};

/// By a whole warp.
__device__ inline Tile read_tile(const float* row, const float* model_row, int64_t begin, int64_t vocabulary,
                                 double temperature, int lane) {
  const float inverse = temperature > 0 ? 1 / static_cast<float>(temperature) : 0;
  Tile tile{};
  const LaneLogits own(row, begin, vocabulary, lane);
  tile.largest = tile.model_largest = own.largest();
  tile.broken = own.broken();
  tile.mass = tile.tempered_mass = own.mass(tile.largest, inverse);
  int first = kTileTokens;
#pragma unroll
  for (int j = kLaneTokens - 1; j >= 0; j--)
    if (own.x[j] == tile.largest) first = j * kWarp + lane;
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, first, distance);
    first = other < first ? other : first;
  }
  tile.first = static_cast<int32_t>(begin) + first;
  if (row == model_row) {
    tile.model_mass = own.mass(tile.largest, 1);
    return tile;
  }
  const LaneLogits model(model_row, begin, vocabulary, lane);
  tile.model_largest = model.largest();
  tile.broken = tile.broken || model.broken();
  tile.model_mass = model.mass(tile.model_largest, 1);
  tile.tempered_mass = model.mass(tile.model_largest, inverse);
  return tile;
}

/// The first i < n at which Σ weight(0..i) exceeds `target`, for all lanes of the warp that calls it, with the sum before it in
/// `before`. Where rounding put the target out of reach the last i of any weight; -1 where all weights are 0.
template <typename F>
__device__ int64_t pick(int64_t n, double target, F weight, double& before) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t each = (n + kWarp - 1) / kWarp, begin = lane * each,
                end = begin + each < n ? begin + each : n;
  double own = 0;
  for (int64_t i = begin; i < end; i++) own += weight(i);
  double until = own;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const double other = __shfl_up_sync(0xffffffffu, until, distance);
    if (lane >= distance) until += other;
  }
  // The first lane that exceeds the target, else the last with any weight.
  int first = own > 0 && until > target ? lane : kWarp, last = own > 0 ? lane : -1;
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const int lower = __shfl_xor_sync(0xffffffffu, first, distance),
              higher = __shfl_xor_sync(0xffffffffu, last, distance);
    first = lower < first ? lower : first;
    last = higher > last ? higher : last;
  }
  const int chosen = first < kWarp ? first : last;
  int64_t found = -1;
  double sum = until - own;
  before = sum;
  for (int64_t i = begin; lane == chosen && i < end; i++) {
    const double w = weight(i);
    if (w == 0) continue;
    found = i;
    before = sum;
    sum += w;
    if (sum > target) break;
  }
  if (chosen < 0) return -1;
  before = __shfl_sync(0xffffffffu, before, chosen);
  return __shfl_sync(0xffffffffu, found, chosen);
}

/// Tokens above a bound, in order of the vocabulary, or all of a row.
struct Candidates {
  const float* row;
  const int32_t* tokens;  // null: all
  const double* masses;
  int64_t count;
  float largest;
  double temperature;

  __device__ int64_t token(int64_t i) const { return tokens ? tokens[i] : i; }
  __device__ uint32_t order(int64_t i) const { return order_of(row[token(i)]); }
  /// Relative to that of the most likely token.
  __device__ double mass(int64_t i) const {
    return tokens ? masses[i] : exp((static_cast<double>(row[i]) - largest) / temperature);
  }
  /// Σ body(i), for all threads.
  template <typename F>
  __device__ double sum(F body) const {
    double total = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) total += body(i);
    return block_sum(total);
  }
};

/// The greatest order for which weight(i), summed over i < n of this order or above, reaches `limit`; `above` is the sum over
/// those above it. 0 where no order does.
template <typename Order, typename Weight>
__device__ uint32_t find_border(int64_t n, double limit, Order order, Weight weight, double& above) {
  constexpr int kBits = 3, kDigits = 1 << kBits;
  __shared__ double sums[kBlockWarps][kDigits];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp;
  uint64_t low = 0;  // the orders that are left begin here
  above = 0;
  for (int shift = 30; shift >= 0; shift -= kBits) {
    double own[kDigits] = {};
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const uint64_t digit = (static_cast<uint64_t>(order(i)) - low) >> shift;  // wraps around below `low`
      if (digit >= kDigits) continue;
      const double w = weight(i);
#pragma unroll
      for (int d = 0; d < kDigits; d++) own[d] += digit == static_cast<uint64_t>(d) ? w : 0.0;
    }
#pragma unroll
    for (int d = 0; d < kDigits; d++)
#pragma unroll
      for (int distance = kWarp / 2; distance > 0; distance /= 2)
        own[d] += __shfl_xor_sync(0xffffffffu, own[d], distance);
    __syncthreads();  // the digit before is still being read
    if (lane == 0)
#pragma unroll
      for (int d = 0; d < kDigits; d++) sums[warp][d] = own[d];
    __syncthreads();
    int digit = kDigits - 1;
    for (; digit >= 0; digit--) {
      double sum = 0;
      for (int w = 0; w < warps; w++) sum += sums[w][digit];
      if (digit == 0 || above + sum >= limit) break;
      above += sum;
    }
    low += static_cast<uint64_t>(digit) << shift;
  }
  return static_cast<uint32_t>(low);
}

/// What the last block of a row knows. All threads hold the same values.
struct RowSampler {
  const float* row;
  int64_t vocabulary;
  Warp warp;
  Tile* tiles;
  int64_t tile_count;
  int32_t* tokens;
  double* masses;
  float largest;
  double total = 0;  // mass of the row, relative to its largest

  template <typename F>
  __device__ double sum_tiles(F body) const {
    double sum = 0;
    for (int64_t t = threadIdx.x; t < tile_count; t += blockDim.x) sum += body(tiles[t]);
    return block_sum(sum);
  }

  /// Makes the masses of tiles relative to the row's largest, and adds them up.
  __device__ void weigh() {
    total = sum_tiles([&](Tile& tile) {
      return tile.mass *=
             tile.mass > 0 ? exp((static_cast<double>(tile.largest) - largest) / warp.temperature) : 0;
    });
  }

  /// The token at u of the distribution without filters; of all threads the first warp's have it.
  __device__ int64_t draw(double u) const {
    double before;
    const int64_t t = pick(
        tile_count, u * total, [&](int64_t i) { return tiles[i].mass; }, before);
    if (t < 0) return -1;
    const Tile& tile = tiles[t];
    const float inverse = 1 / static_cast<float>(warp.temperature);
    const double scale = exp((static_cast<double>(tile.largest) - largest) / warp.temperature);
    const int64_t begin = t * kTileTokens,
                  count = vocabulary - begin < kTileTokens ? vocabulary - begin : kTileTokens;
    double within;
    const int64_t found = pick(
        count, u * total - before,
        [&](int64_t i) { return expf((row[begin + i] - tile.largest) * inverse) * scale; }, within);
    return found < 0 ? -1 : begin + found;
  }

  /// All tokens.
  __device__ Candidates whole() const {
    return {row, nullptr, nullptr, vocabulary, largest, warp.temperature};
  }

  /// The tokens whose logit is `bound` or above; all where they are too many.
  __device__ Candidates gather(float bound) const {
    __shared__ int32_t all;
    const int own_warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto passes = [&](int64_t t, int j) {
      const int64_t v = t * kTileTokens + j * kWarp + lane;
      return v < vocabulary && row[v] >= bound;
    };
    __syncthreads();  // an earlier call may still be reading
    for (int64_t t = own_warp; t < tile_count; t += blockDim.x / kWarp) {
      int count = 0;
      if (tiles[t].largest >= bound)
        for (int j = 0; j < kLaneTokens; j++) count += __popc(__ballot_sync(0xffffffffu, passes(t, j)));
      if (lane == 0) tiles[t].candidates = count;
    }
    __syncthreads();
    if (own_warp == 0) {  // counts become those of the tiles before
      const int64_t each = (tile_count + kWarp - 1) / kWarp, begin = lane * each,
                    end = begin + each < tile_count ? begin + each : tile_count;
      int own = 0;
      for (int64_t t = begin; t < end; t++) own += tiles[t].candidates;
      int until = own;
#pragma unroll
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, until, distance);
        if (lane >= distance) until += other;
      }
      if (lane == kWarp - 1) all = until;
      int before = until - own;
      for (int64_t t = begin; t < end; t++) {
        const int count = tiles[t].candidates;
        tiles[t].candidates = before;
        before += count;
      }
    }
    __syncthreads();
    const int32_t count = all;
    if (count > kMaxCandidates) return whole();
    for (int64_t t = own_warp; t < tile_count; t += blockDim.x / kWarp) {
      if (!(tiles[t].largest >= bound)) continue;
      int at = tiles[t].candidates;
      for (int j = 0; j < kLaneTokens; j++) {
        const bool own = passes(t, j);
        const uint32_t those = __ballot_sync(0xffffffffu, own);
        if (own) {
          const int64_t v = t * kTileTokens + j * kWarp + lane;
          const int place = at + __popc(those & ((1u << lane) - 1));
          tokens[place] = static_cast<int32_t>(v);
          masses[place] = exp((static_cast<double>(row[v]) - largest) / warp.temperature);
        }
        at += __popc(those);
      }
    }
    __syncthreads();
    return {row, tokens, masses, count, largest, warp.temperature};
  }

  /// Tokens of which those that the filters leave are a part.
  __device__ Candidates candidates(bool top_k, bool top_p) const {
    if (top_k) {
      // k tiles have maxima of at least the k-th largest one, so no logit below it is among the k largest.
      if (tile_count < warp.top_k) return whole();
      double above;
      const uint32_t border = find_border(
          tile_count, static_cast<double>(warp.top_k), [&](int64_t t) { return order_of(tiles[t].largest); },
          [](int64_t) { return 1.0; }, above);
      return gather(logit_of(border));
    }
    if (top_p) {
      for (const double depth : {8.0, 16.0}) {
        const Candidates found = gather(largest - static_cast<float>(depth * warp.temperature));
        if (!found.tokens) return found;
        if (found.sum([&](int64_t i) { return found.mass(i); }) > warp.top_p * total) return found;
      }
      return whole();
    }
    // A bound lower by 1, so that rounding loses no token; the exact test follows.
    return gather(largest + static_cast<float>((log(warp.min_p) - 1) * warp.temperature));
  }

  /// The token at u of what the filters leave, and its log-probability there; of all threads the first warp's have the token.
  __device__ int64_t draw_filtered(double u, double& kept) const {
    const bool top_k = warp.top_k > 0 && warp.top_k < vocabulary, top_p = warp.top_p < 1;
    const Candidates list = candidates(top_k, top_p);
    const auto order = [&](int64_t i) { return list.order(i); };
    // A token stays if its order is above `border`, or equal to it and the token at most `last_equal`.
    uint32_t border = 0;
    int64_t last_equal = vocabulary;
    double above;
    // The equals of the k-th largest stay, as in TopKLogitsWarper.
    if (top_k)
      border = find_border(
          list.count, static_cast<double>(warp.top_k), order, [](int64_t) { return 1.0; }, above);
    if (top_p) {
      // A token stays if the more likely ones hold less than top_p of the mass, as in TopPLogitsWarper; among equals the
      // first come first.
      const uint32_t lowest = border;
      const auto weight = [&](int64_t i) { return list.order(i) >= lowest ? list.mass(i) : 0.0; };
      const double limit = warp.top_p * (top_k ? list.sum(weight) : total);
      const uint32_t found = find_border(list.count, limit, order, weight, above);
      if (found >= lowest && found > 0) {  // else rounding put the limit out of reach: all stay
        border = found;
        const auto equal = [&](int64_t i) { return list.order(i) == found ? 1.0 : 0.0; };
        const double equals = list.sum(equal);
        const double each = exp((static_cast<double>(logit_of(found)) - largest) / warp.temperature);
        const double wanted = each > 0 ? fmax(1.0, ceil((limit - above) / each)) : equals;
        if (wanted < equals) {
          __shared__ int64_t last;
          if (threadIdx.x < kWarp) {
            double before;
            const int64_t i = pick(list.count, wanted - 0.5, equal, before);
            if (threadIdx.x == 0) last = list.token(i);
          }
          __syncthreads();
          last_equal = last;
        }
      }
    }
    const auto kept_mass = [&](int64_t i) {
      const uint32_t own = list.order(i);
      if (own < border || (own == border && list.token(i) > last_equal)) return 0.0;
      const double mass = list.mass(i);
      return mass >= warp.min_p ? mass : 0.0;
    };
    kept = list.sum(kept_mass);
    double before;
    const int64_t i = threadIdx.x < kWarp ? pick(list.count, u * kept, kept_mass, before) : -1;
    return i < 0 ? -1 : list.token(i);
  }
};

/// Uniform in [0, 1) with 53 bits, from the row's key and counter.
__device__ double uniform_of(const int32_t* key) {
  const auto word = [&](int i) { return static_cast<uint32_t>(key[i]); };
  const Philox4 block = philox({{word(2), word(3), 0, 0}}, word(0), word(1));
  return (static_cast<double>(block.v[0] >> 5) * 0x1p26 + static_cast<double>(block.v[1] >> 6)) * 0x1p-53;
}

/// log p of `token` where Σ exp(logit·inverse) is `mass`, relative to `largest`.
__device__ inline float logprob_of(const float* row, int64_t token, float largest, double temperature,
                                   double mass) {
  return static_cast<float>((static_cast<double>(row[token]) - largest) / temperature - log(mass));
}

__global__ void __launch_bounds__(kWarp* kBlockWarps)
    sample_kernel(const __grid_constant__ SampleInputs in, int64_t first_row, int parts, Workspace work,
                  SampleOutputs out, uint32_t* tickets, FaultReporter faults) {
  __shared__ int64_t drawn;
  take_turn();
  const int64_t at = blockIdx.x / static_cast<unsigned>(parts), r = first_row + at,
                vocabulary = in.vocabulary;
  const int64_t tile_count = (vocabulary + kTileTokens - 1) / kTileTokens;
  const int64_t first_tile = int64_t{blockIdx.x % static_cast<unsigned>(parts)} * kBlockTiles,
                end_tile = first_tile + kBlockTiles < tile_count ? first_tile + kBlockTiles : tile_count;
  const float* const model_row = in.logits + r * vocabulary;
  bool holds;
  const Warp warp = warp_of(in, r, faults, holds);
  if (!holds) return;
  const int64_t end_token = end_tile * kTileTokens < vocabulary ? end_tile * kTileTokens : vocabulary;
  const float* const row =
      adjusted(in, r, model_row, work.adjusted ? work.adjusted + at * vocabulary : nullptr,
               first_tile * kTileTokens, end_token, faults);
  if (!row) return;
  Tile* const tiles = work.tiles + at * tile_count;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t t = first_tile + threadIdx.x / kWarp; t < end_tile; t += blockDim.x / kWarp) {
    const Tile tile = read_tile(row, model_row, t * kTileTokens, vocabulary, warp.temperature, lane);
    if (lane == 0) tiles[t] = tile;
  }
  if (!last_block(tickets + at, static_cast<uint32_t>(parts))) return;

  float largest = -INFINITY, model_largest = -INFINITY, broken = 0;
  for (int64_t t = threadIdx.x; t < tile_count; t += blockDim.x) {
    largest = fmaxf(largest, tiles[t].largest);
    model_largest = fmaxf(model_largest, tiles[t].model_largest);
    if (tiles[t].broken) broken = 1;
  }
  largest = block_max(largest), model_largest = block_max(model_largest);
  if (block_max(broken) > 0 || !(model_largest > -INFINITY) || !(largest > -INFINITY)) {
    if (threadIdx.x != 0) return;
    out.tokens[r] = 0;
    out.logprobs[r] = out.sampling_logprobs[r] = 0;
    if (out.tempered_logprobs) out.tempered_logprobs[r] = 0;
    out.status[r] = 1;
    return;
  }
  double first = -static_cast<double>(vocabulary);
  for (int64_t t = threadIdx.x; t < tile_count; t += blockDim.x)
    if (tiles[t].largest == largest) first = fmax(first, -static_cast<double>(tiles[t].first));
  int64_t token = static_cast<int64_t>(-block_max(first));

  const int64_t candidates = vocabulary < kMaxCandidates ? vocabulary : kMaxCandidates;
  RowSampler sampler{row,
                     vocabulary,
                     warp,
                     tiles,
                     tile_count,
                     work.tokens + at * candidates,
                     work.masses + at * candidates,
                     largest};
  float sampling = 0, tempered = 0;
  if (warp.temperature > 0) {
    const double tempered_mass = sampler.sum_tiles([&](const Tile& tile) {
      return tile.tempered_mass > 0
                 ? tile.tempered_mass *
                       exp((static_cast<double>(tile.model_largest) - model_largest) / warp.temperature)
                 : 0.0;
    });
    sampler.weigh();
    const double u = uniform_of(in.keys + 4 * r);
    const bool filtered = (warp.top_k > 0 && warp.top_k < vocabulary) || warp.top_p < 1 || warp.min_p > 0;
    double kept = sampler.total;
    int64_t found = -1;
    if (filtered) {
      found = sampler.draw_filtered(u, kept);
    } else if (threadIdx.x < kWarp) {
      found = sampler.draw(u);
    }
    // -1 where every mass was lost in rounding: the most likely token.
    if (threadIdx.x == 0) drawn = found < 0 ? token : found;
    __syncthreads();
    token = drawn;
    tempered = logprob_of(model_row, token, model_largest, warp.temperature, tempered_mass);
    sampling =
        !filtered && row == model_row ? tempered : logprob_of(row, token, largest, warp.temperature, kept);
  }
  const double model_mass = sampler.sum_tiles([&](const Tile& tile) {
    return tile.model_mass > 0
               ? tile.model_mass * exp(static_cast<double>(tile.model_largest) - model_largest)
               : 0.0;
  });
  if (threadIdx.x != 0) return;
  out.tokens[r] = static_cast<int32_t>(token);
  out.logprobs[r] = logprob_of(model_row, token, model_largest, 1, model_mass);
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
  if (rows == 0) return;
  const int64_t tiles = (vocabulary + kTileTokens - 1) / kTileTokens;
  const int threads = static_cast<int>(std::clamp<int64_t>(tiles, 1, kBlockWarps)) * kWarp;
  const int64_t candidates = std::min<int64_t>(vocabulary, kMaxCandidates);
  const int64_t row_bytes =
      tiles * static_cast<int64_t>(sizeof(Tile)) + candidates * 12 + (bias || allowed ? vocabulary * 4 : 0);
  const int64_t together =  // rows of a launch
      std::min<int64_t>({rows, kTickets, std::max<int64_t>(kMaxWorkspace / row_bytes, 1)});
  const Workspace work{stream.scratch.take<Tile>(together * tiles),
                       bias || allowed ? stream.scratch.take<float>(together * vocabulary) : nullptr,
                       stream.scratch.take<int32_t>(together * candidates),
                       stream.scratch.take<double>(together * candidates)};
  const SampleOutputs out{tokens.as<int32_t>(), logprobs.as<float>(), sampling_logprobs.as<float>(),
                          tempered_logprobs.as<float>(), status.as<int32_t>()};
  const int64_t parts = (tiles + kBlockTiles - 1) / kBlockTiles;
  for (int64_t first = 0; first < rows; first += together)
    stream.launch_early({}, sample_kernel, std::min(together, rows - first) * parts, threads, 0, in, first,
                        static_cast<int>(parts), work, out, stream.ticket, stream.faults);
}

}  // namespace

void register_sampling(KernelTable& table) {
  table.set("sample", sample);
}

}  // namespace steptrain::cuda
