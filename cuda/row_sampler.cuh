// One row of logits on its way to a token (cuda/sampling.cu): tiles with their maxima and masses, candidates above a bound, and
// the thresholds of filters among them.
#pragma once

#include <cmath>

#include "cuda/reduce.cuh"
#include "cuda/storage.cuh"

namespace steptrain::cuda::sampler {

constexpr int kBlockWarps = 8;
constexpr int kTileTokens = 512, kLaneTokens = kTileTokens / kWarp;
constexpr int kMaxCandidates = 8192;

struct Warp {
  double temperature;
  int64_t top_k;  // 0: off
  double top_p, min_p;
};

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

}  // namespace steptrain::cuda::sampler
