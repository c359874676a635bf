// attention_paged on tensor cores (mma.sync, cp.async), for bf16 heads of up to 128 elements. The queries of
// a sequence times the heads of a group are rows that share keys: a block takes kRows of them and one split
// of the keys, so that at decoding a block reads a key once for all heads of its group, and long sequences
// are read by many blocks. Each of its four warps takes a run of kRun keys, 32 at a time, with an online
// softmax and buffers of its own, and no barrier; the runs are merged in order, and the splits by a second
// launch. A row's bits depend on its own keys alone, whatever rows share its tile.
// Where a tile of 32 keys and values of 128 elements is 16 KiB, a block has 64 KiB under way, three blocks of
// a multiprocessor of an H100 192 KiB. For 16 rows a key of 512 bytes with its value is 8,192 multiply-adds,
// 8 clocks of tensor cores, while an H100's memory takes 27 clocks of a multiprocessor for it.
#include <algorithm>

#include "cuda/attention/paged.cuh"
#include "cuda/attention/tile.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 16;  // queries times heads of a group
constexpr int32_t kKeys = 32, kRun = kSplit / kWarps;
constexpr int64_t kMaxWorkspace = int64_t{64} << 20;  // bytes

/// kRows rows of one sequence, where `there`: row i is query (first + i) / group, head (first + i) mod group of
/// the group.
struct PagedTile {
  int32_t row, first, rows, length;
  int64_t begin;    // the sequence's first token
  int32_t queries;  // of the sequence
  bool there;
};

/// Place `place` of the list of all tiles, in which a sequence's begin at ⌊offset·group/kRows⌋ + its number:
/// room for all, without adding up what lies before.
__device__ inline PagedTile find_tile(const Paged& p, int64_t place, const FaultReporter& faults) {
  const auto start = [&](int32_t row) { return int64_t{p.offsets[row]} * p.group / kRows + row; };
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

struct KeyRange {
  int32_t first, last;  // inclusive; empty where last < first
};
/// The keys visible to row i of the tile.
__device__ inline KeyRange keys_of(const Paged& p, const PagedTile& tile, int32_t i) {
  if (i >= tile.rows || tile.length == 0) return {0, -1};
  const int32_t last = tile.length - tile.queries + (tile.first + i) / p.group;
  return {p.window > 0 && last >= p.window ? last - p.window + 1 : 0, last};
}
/// The element of q and o where row i of the tile begins.
__device__ inline int64_t element_of(const Paged& p, const PagedTile& tile, int32_t kv_head, int32_t i) {
  const int32_t row = tile.first + i;
  return ((tile.begin + row / p.group) * p.heads + int64_t{kv_head} * p.group + row % p.group) * p.size;
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

/// What the blocks of one launch leave for the one that follows: [tile][KV head][split][row].
struct Splits {
  int64_t first;   // tile of the launch
  int32_t splits;  // of a row, at most
  Part* parts;
  float* sums;  // and the padded head
  __device__ int64_t at(int64_t tile, int32_t kv_heads, int32_t kv_head, int32_t split) const {
    return ((tile * kv_heads + kv_head) * splits + split) * kRows;
  }
};

/// A block takes a tile, a KV head and a split.
template <int kSize>
__global__ void __launch_bounds__(kThreads)
    paged_bf16_kernel(const bf16* q, const bf16* cache, bf16* o, const __grid_constant__ Paged p,
                      Splits splits, FaultReporter faults) {
  using Queries = HeadTile<kRows, kSize>;
  using Keys = HeadTile<kKeys, kSize>;
  __shared__ Part runs[kWarps][kRows];
  if (blockIdx.x == 0 && splits.first == 0) check_rows(p, faults);
  if (p.rows == 0) return;
  const int32_t kv_heads = p.heads / p.group;
  const int32_t split = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(splits.splits));
  const int64_t pair = blockIdx.x / static_cast<unsigned>(splits.splits), place = pair / kv_heads;
  const auto kv_head = static_cast<int32_t>(pair % kv_heads);
  const PagedTile tile = find_tile(p, splits.first + place, faults);
  if (!tile.there) return;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  // Rows ascend, and so do the last keys visible to them.
  const KeyRange all{keys_of(p, tile, 0).first, keys_of(p, tile, tile.rows - 1).last};
  if (split > 0 && (split * kSplit > all.last || (split + 1) * kSplit <= all.first)) return;

  char* const q_tile = dynamic_shared();
  char* const k_tile = q_tile + Queries::kBytes + warp * 2 * Keys::kBytes;
  char* const v_tile = k_tile + Keys::kBytes;
  for (int i = thread; i < kRows * Queries::kChunks; i += kThreads) {
    const int row = i / Queries::kChunks, chunk = i % Queries::kChunks;
    const bool inside = row < tile.rows && chunk * kEight < p.size;
    cp_async(Queries::at(q_tile, row, chunk),
             q + (inside ? element_of(p, tile, kv_head, row) + chunk * kEight : 0), inside);
  }
  cp_async_commit();

  int32_t begin = split * kSplit + warp * kRun, end = begin + kRun;
  if (begin < all.first) begin = all.first / kKeys * kKeys;
  if (end > all.last + 1) end = all.last + 1;
  /// Starts the copy of the keys (or the values, kPageTokens rows further) from `key` on.
  const auto fetch = [&](char* to, int32_t key, int32_t further) {
    if (key < end) {
      const int64_t page = p.pages[int64_t{tile.row} * p.max_pages + key / kPageTokens];
      const bool holds = page >= 0 && page < p.pages_held;
      if (!holds && lane == 0)
        report(faults, FaultKind::outside, kPages, tile.row, page, p.pages_held, key / kPageTokens + 1);
      const bf16* const from = cache + (holds ? page * p.elements : 0) +
                               (int64_t{kv_head} * 2 * kPageTokens + key % kPageTokens + further) * p.width;
#pragma unroll
      for (int i = lane; i < kKeys * Keys::kChunks; i += 32) {
        const int row = i / Keys::kChunks, chunk = i % Keys::kChunks;
        const bool inside = holds && key + row <= all.last && chunk * kEight < p.size;
        cp_async(Keys::at(to, row, chunk), from + (inside ? row * p.width + chunk * kEight : 0), inside);
      }
    }
    cp_async_commit();
  };
  fetch(k_tile, begin, 0);
  fetch(v_tile, begin, kPageTokens);
  cp_async_wait<2>();
  __syncthreads();  // all threads see the queries

  float out[1][kSize / 8][4] = {};
  Part part[2] = {kNoKeys, kNoKeys};  // of rows lane / 4 and lane / 4 + 8; maxima of unscaled scores
  const KeyRange visible[2] = {keys_of(p, tile, lane / 4), keys_of(p, tile, lane / 4 + 8)};
  for (int32_t key = begin; key < end; key += kKeys) {
    cp_async_wait<1>();
    __syncwarp();  // the warp sees the keys
    float scores[1][kKeys / 8][4];
    multiply_heads<Queries, Keys, 1, kKeys, kSize>(scores, q_tile, 0, k_tile, 0, lane);
    __syncwarp();  // no lane still reads the keys
    fetch(k_tile, key + kKeys, 0);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float maximum = part[half].maximum;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& score = scores[0][j][2 * half + e];
          const int32_t at = key + fragment_column(lane, 4 * j + e);
          if (at < visible[half].first || at > visible[half].last) score = kMasked;
          maximum = fmaxf(maximum, score);
        }
      // Four lanes share a row.
      maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 1));
      maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 2));
      const float decay = exp2_approximate((part[half].maximum - maximum) * p.scale),
                  shift = maximum * p.scale;
      float mass = part[half].mass * decay;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& score = scores[0][j][2 * half + e];
          score = exp2_approximate(fmaf(score, p.scale, -shift));
          mass += score;
        }
      part[half] = {maximum, mass};
#pragma unroll
      for (int j = 0; j < kSize / 8; j++) {
        out[0][j][2 * half] *= decay;
        out[0][j][2 * half + 1] *= decay;
      }
    }
    cp_async_wait<1>();
    __syncwarp();  // the warp sees the values
    multiply_rows<Keys, 1, kKeys, kSize>(
        out, v_tile, 0, lane, [&](uint32_t(&a)[4], int, int depth) { round_to_a(a, scores[0], depth); });
    __syncwarp();  // no lane still reads the values
    fetch(v_tile, key + kKeys, kPageTokens);
  }
  cp_async_wait<0>();
  __syncwarp();

  // The run's sums take the place of its keys and values.
  float* const own = reinterpret_cast<float*>(k_tile);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float& mass = part[half].mass;
    mass += __shfl_xor_sync(0xffffffffu, mass, 1);
    mass += __shfl_xor_sync(0xffffffffu, mass, 2);
    if (lane % 4 == 0) runs[warp][lane / 4 + 8 * half] = {part[half].maximum * p.scale, mass};
#pragma unroll
    for (int j = 0; j < kSize / 8; j++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        own[(lane / 4 + 8 * half) * kSize + fragment_column(lane, 4 * j + e)] = out[0][j][2 * half + e];
  }
  __syncthreads();
  for (int i = thread; i < tile.rows * kSize; i += kThreads) {
    const int row = i / kSize, d = i % kSize;
    Part merged = kNoKeys;
    float sum = 0;
    for (int run = 0; run < kWarps; run++) {
      const float2 factor = merge(merged, runs[run][row]);
      const char* const from = q_tile + Queries::kBytes + run * 2 * Keys::kBytes;
      sum = fmaf(sum, factor.x, reinterpret_cast<const float*>(from)[row * kSize + d] * factor.y);
    }
    if (splits.splits == 1) {
      if (d < p.size)
        o[element_of(p, tile, kv_head, row) + d] =
            from_float<bf16>(tile.length > 0 ? sum / merged.mass : 0.0f);
    } else {
      const int64_t at = splits.at(place, kv_heads, kv_head, split) + row;
      splits.sums[at * kSize + d] = sum;
      if (d == 0) splits.parts[at] = merged;
    }
  }
}

/// Combines the splits of a tile and a KV head, in order.
template <int kSize>
__global__ void __launch_bounds__(kThreads)
    paged_combine_kernel(bf16* o, const __grid_constant__ Paged p, Splits splits, FaultReporter faults) {
  const int32_t kv_heads = p.heads / p.group;
  const int64_t place = blockIdx.x / static_cast<unsigned>(kv_heads);
  const auto kv_head = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(kv_heads));
  const PagedTile tile = find_tile(p, splits.first + place, faults);
  if (!tile.there) return;
  for (int i = static_cast<int>(threadIdx.x); i < tile.rows * kSize; i += kThreads) {
    const int row = i / kSize, d = i % kSize;
    if (d >= p.size) continue;
    const KeyRange visible = keys_of(p, tile, row);
    Part merged = kNoKeys;
    float sum = 0;
    for (int32_t split = visible.first / kSplit; split * kSplit <= visible.last; split++) {
      const int64_t at = splits.at(place, kv_heads, kv_head, split) + row;
      const float2 factor = merge(merged, splits.parts[at]);
      sum = fmaf(sum, factor.x, splits.sums[at * kSize + d] * factor.y);
    }
    o[element_of(p, tile, kv_head, row) + d] = from_float<bf16>(tile.length > 0 ? sum / merged.mass : 0.0f);
  }
}

}  // namespace

void attention_paged_bf16(Stream& stream, const Paged& p, const void* q, const void* cache, void* o) {
  const int64_t kv_heads = p.heads / p.group, tiles = p.tokens * p.group / kRows + p.rows;
  const int64_t splits = std::max<int64_t>(1, (p.max_pages * kPageTokens + kSplit - 1) / kSplit);
  by_head_size(p.size, [&](auto padded) {
    constexpr int kSize = std::min<int>(padded(), 128);
    constexpr int64_t kShared = HeadTile<kRows, kSize>::kBytes + kWarps * 2 * HeadTile<kKeys, kSize>::kBytes;
    constexpr int64_t kRowBytes = kSize * sizeof(float) + sizeof(Part);
    const int64_t held = splits > 1 ? kv_heads * splits * kRows : 0;  // rows of workspace for a tile
    const int64_t group_size =
        held > 0 ? std::clamp<int64_t>(kMaxWorkspace / (held * kRowBytes), 1, std::max<int64_t>(tiles, 1))
                 : std::max<int64_t>(tiles, 1);
    auto* const parts = held > 0 ? stream.scratch.take<Part>(group_size * held) : nullptr;
    auto* const sums = held > 0 ? stream.scratch.take<float>(group_size * held * kSize) : nullptr;
    // At least one block, which checks the rows.
    for (int64_t first = 0; first == 0 || first < tiles; first += group_size) {
      const int64_t count = std::max<int64_t>(std::min(group_size, tiles - first), 1);
      const Splits kept{first, static_cast<int32_t>(splits), parts, sums};
      stream.launch(paged_bf16_kernel<kSize>, count * kv_heads * splits, kThreads, kShared,
                    static_cast<const bf16*>(q), static_cast<const bf16*>(cache), static_cast<bf16*>(o), p,
                    kept, stream.faults);
      if (held > 0 && tiles > 0)
        stream.launch(paged_combine_kernel<kSize>, count * kv_heads, kThreads, 0, static_cast<bf16*>(o), p,
                      kept, stream.faults);
    }
  });
}

}  // namespace steptrain::cuda
