// What the kernels of attention over the paged cache on tensor cores share: tiles of kRows rows, which are
// the queries of a sequence times the heads of a group, the keys that these see, and how softmaxes over parts
// of the keys are joined.
#pragma once

#include "cuda/attention/paged.cuh"
#include "cuda/attention/tile.cuh"

namespace steptrain::cuda::paged {

constexpr int kRows = 16;  // queries times heads of a group
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int32_t kKeys = 32;                                        // of a warp
constexpr int32_t kChunk = kWarps * kKeys, kSection = 512 / kChunk;  // keys; chunks
static_assert(kPageTokens % kKeys == 0, "a warp's keys lie in one page");

/// kRows rows of one sequence, where `there`: row i is query (first + i) / group, head (first + i) mod group
/// of the group.
struct PagedTile {
  int32_t row, first, rows, length;
  int64_t begin;    // the sequence's first token
  int32_t queries;  // of the sequence
  bool there;
};

/// Place `place` of the list of all tiles, in which a sequence's begin at ⌊offset·group/kRows⌋ + its number:
/// room for all, without adding up what lies before.
__device__ inline PagedTile find_tile(const Paged& p, int64_t place, const FaultReporter& faults) {
  const auto start = [&](int32_t row) { return p.begin(row) * p.group / kRows + row; };
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int32_t low = 0, count = p.rows;
  while (count > 1) {  // 32 probes at a time
    const int32_t step = (count + 31) / 32, probe = lane * step;
    int below = probe < count && start(low + probe) <= place;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      below += __shfl_xor_sync(0xffffffffu, below, distance);
    const int32_t chosen = below > 0 ? (below - 1) * step : 0;
    low += chosen;
    count = step < count - chosen ? step : count - chosen;
  }
  PagedTile tile{};
  int64_t end;
  if (!row_holds(p, low, faults, tile.begin, end)) return tile;
  tile.row = low;
  tile.queries = static_cast<int32_t>(end - tile.begin);
  tile.length = p.lengths[low];
  const int64_t first = (place - start(low)) * kRows, rows = int64_t{tile.queries} * p.group;
  if (first < 0 || first >= rows) return tile;
  tile.first = static_cast<int32_t>(first);
  tile.rows = rows - first < kRows ? static_cast<int32_t>(rows - first) : kRows;
  tile.there = true;
  return tile;
}

/// The tiles of a row of a step of decoding, which has one query.
inline __host__ __device__ int32_t tiles_of_step(const Paged& p) {
  return (p.group + kRows - 1) / kRows;
}
/// Place `place` of the list of a step's tiles. May be called before a kernel's turn, for lengths that the
/// kernel in front does not write: they are read past a cache that might hold older ones.
__device__ inline PagedTile step_tile(const Paged& p, unsigned place, const FaultReporter& faults) {
  const auto each = static_cast<unsigned>(tiles_of_step(p));
  PagedTile tile{};
  tile.row = static_cast<int32_t>(place / each);
  const int32_t length = *static_cast<const volatile int32_t*>(p.lengths + tile.row);
  if (!index_holds(faults, p.lengths_input, tile.row, length, p.longest + 1)) return tile;
  tile.begin = tile.row;
  tile.queries = 1;
  tile.length = length;
  tile.first = static_cast<int32_t>(place % each) * kRows;
  tile.rows = p.group - tile.first < kRows ? p.group - tile.first : kRows;
  tile.there = true;
  return tile;
}

struct KeyRange {
  int32_t first, last;  // inclusive; empty where last < first
};
/// The keys visible to row i of the tile.
__device__ inline KeyRange keys_of(const Paged& p, const PagedTile& tile, int32_t i) {
  if (i >= tile.rows || tile.length == 0) return {0, -1};
  const int32_t last = tile.length - tile.queries + (tile.first + i) / p.group;
  return {p.window > 0 && last >= p.window ? last - p.window + 1 : 0, last};
}
/// Those visible to any row of the tile: rows ascend, and so do the last keys visible to them.
__device__ inline KeyRange keys_of(const Paged& p, const PagedTile& tile) {
  return {keys_of(p, tile, 0).first, keys_of(p, tile, tile.rows - 1).last};
}
/// The element of q and o where row i of the tile begins.
__device__ inline int64_t element_of(const Paged& p, const PagedTile& tile, int32_t kv_head, int32_t i) {
  const int32_t row = tile.first + i;
  return ((tile.begin + row / p.group) * p.heads + int64_t{kv_head} * p.group + row % p.group) * p.size;
}

/// Chunks, the last included.
struct Chunks {
  int32_t first, last;
};
/// Those that any row of the tile sees; of a row of length 0 the first.
__device__ inline Chunks chunks_of(const KeyRange& all) {
  return {all.first / kChunk, all.last > 0 ? all.last / kChunk : 0};
}

/// The softmax of a row over some keys, in powers of two, and its sums of values.
struct Part {
  float maximum, mass;
};
/// How to go on from `all` to both: what all's sums and part's are multiplied by. all = both.
__device__ inline float2 merge(Part& all, const Part& part) {
  const float to = fmaxf(all.maximum, part.maximum), own = exp2_approximate(all.maximum - to),
              others = exp2_approximate(part.maximum - to);
  all.mass = fmaf(all.mass, own, part.mass * others);
  all.maximum = to;
  return make_float2(own, others);
}
constexpr Part kNoKeys{kMinimum, 0};

template <int kSize>
struct Layout {  // of dynamic shared memory
  using Queries = HeadTile<kRows, kSize>;
  using Keys = HeadTile<kChunk, kSize>;
  using Weights = HeadTile<kRows, kChunk>;
  static constexpr int kQueries = 0, kKeysAt = kQueries + Queries::kBytes, kValues = kKeysAt + Keys::kBytes,
                       kWeights = kValues + Keys::kBytes, kMaxima = kWeights + Weights::kBytes,
                       kMasses = kMaxima + kWarps * kRows * 4, kNewKey = kMasses + kWarps * kRows * 4,
                       kNewValue = kNewKey + kSize * 2, kTile = kNewValue + kSize * 2,
                       kBytes = kTile + int{sizeof(PagedTile)};
};

}  // namespace steptrain::cuda::paged
