// attention_paged on tensor cores (mma.sync, cp.async), for bf16 heads of up to 128 elements. The queries of
// a sequence times the heads of a group are rows that share keys: a block takes kRows of them and one split
// of the keys, so that at decoding a block reads a key once for all heads of its group, and long sequences
// are read by many blocks. Each of its four warps takes a run of kRun keys, 32 at a time, with an online
// softmax and buffers of its own, and no barrier; the runs are merged in order, and the splits by the block that ends
// last. A row's bits depend on its own keys alone, whatever rows share its tile.
// In a step of decoding (attention_step) blocks norm and rotate the queries themselves, and the warp whose run has
// the new key computes it. It puts that key and its value into its own tiles, so that no block waits for what another
// writes; the block of the group's first 16 heads also stores them in the cache.
// Where a tile of 32 keys and values of 128 elements is 16 KiB, a block has 64 KiB under way, three blocks of
// a multiprocessor of an H100 192 KiB. For 16 rows a key of 512 bytes with its value is 8,192 multiply-adds,
// 8 clocks of tensor cores, while an H100's memory takes 27 clocks of a multiprocessor for it.
#include <algorithm>

#include "cuda/attention/paged_tile.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int32_t kKeys = 32, kRun = kSplit / kWarps;
constexpr int64_t kMaxWorkspace = int64_t{64} << 20;  // bytes
/// Of a multiprocessor: as many as an H100's shared memory holds of large heads.
template <int kSize>
constexpr int kBlocks = kSize > 64 ? 3 : 4;

/// The splits whose blocks have something to do; of a row of length 0 the first.
struct SplitRange {
  int32_t first, last;  // inclusive
};
__device__ inline SplitRange splits_of(const Paged& p, const PagedTile& tile) {
  const KeyRange all = keys_of(p, tile);
  return {all.first / kSplit, all.last > 0 ? all.last / kSplit : 0};
}

/// What the blocks of a tile and KV head leave for the one of them that ends last: [tile][KV head][split][row].
struct Splits {
  int64_t first;   // tile of the launch
  int32_t splits;  // of a row, at most
  Part* parts;
  float* sums;  // and the padded head
  __device__ int64_t at(int64_t tile, int32_t kv_heads, int32_t kv_head, int32_t split) const {
    return ((tile * kv_heads + kv_head) * splits + split) * kRows;
  }
};

/// What a block takes.
struct BlockPlace {
  int32_t split, kv_head;
  int64_t pair, place;  // tile and KV head; tile
};
/// Computed anew by each call.
__device__ inline BlockPlace block_of(const Paged& p, const Splits& splits) {
  int64_t block = blockIdx.x;
  forget(block);
  const auto number = static_cast<unsigned>(block), pair = number / static_cast<unsigned>(splits.splits),
             kv_heads = static_cast<unsigned>(p.heads / p.group);
  return {static_cast<int32_t>(number % static_cast<unsigned>(splits.splits)),
          static_cast<int32_t>(pair % kv_heads), pair, pair / kv_heads};
}

/// Combines the splits of a tile and a KV head, in order.
template <int kSize>
__device__ void combine(bf16* o, const Paged& p, const Splits& splits, const PagedTile& tile, int64_t place,
                        int32_t kv_head) {
  for (int i = static_cast<int>(threadIdx.x); i < tile.rows * kSize; i += kThreads) {
    const int row = i / kSize, d = i % kSize;
    if (d >= p.size) continue;
    const KeyRange visible = keys_of(p, tile, row);
    Part merged = kNoKeys;
    float sum = 0;
    for (int32_t split = visible.first / kSplit; split * kSplit <= visible.last; split++) {
      const int64_t at = splits.at(place, p.heads / p.group, kv_head, split) + row;
      const float2 factor = merge(merged, splits.parts[at]);
      sum = fmaf(sum, factor.x, splits.sums[at * kSize + d] * factor.y);
    }
    o[element_of(p, tile, kv_head, row) + d] = from_float<bf16>(sum / merged.mass);
  }
}

/// Puts the rows of a tile, normed and rotated, into shared memory, zeros around them.
template <typename Queries, int kSize>
__device__ void put_new_queries(char* to, const Paged& p, const NewTokens& tokens, const PagedTile& tile,
                                int32_t kv_head) {
  const HeadShape& shape = tokens.shape;
  const int place = static_cast<int>(threadIdx.x) / shape.lanes,
            lane = static_cast<int>(threadIdx.x) % shape.lanes;
  const int64_t angles = int64_t{tile.length - 1} * (shape.size / 2);
  for (int first = 0; first < kRows; first += kThreads / shape.lanes) {
    const int row = first + place;
    const bool inside = row < tile.rows && tile.length > 0;
    const int64_t at = inside ? element_of(p, tile, kv_head, row) : 0;
    const float scale = head_scale(tokens.q, shape, at, inside);
    for (int d = lane * kEight; row < kRows && d < kSize; d += shape.lanes * kEight) {
      float x[kEight] = {};
      if (inside && d < p.size) new_group(tokens.q, shape, tokens.rotary, at, scale, angles, d, x);
      store8(reinterpret_cast<bf16*>(Queries::at(to, row, d / kEight)), kEight, true, x);
    }
  }
}

/// The new key of a row and its value, each lane's elements 8·lane … 8·lane+7, where the head has as many. By a whole warp.
__device__ inline void put_new_key(uint4* key, uint4* value, const Paged& p, const NewTokens& tokens,
                                   const PagedTile& tile, int32_t kv_head, int lane) {
  const HeadShape& shape = tokens.shape;
  const int64_t at = (tile.begin * tokens.k.count + kv_head) * shape.size, d = lane * kEight;
  const float scale = head_scale(tokens.k, shape, at, lane < shape.lanes);
  if (d >= p.size) return;
  float x[kEight];
  new_group(tokens.k, shape, tokens.rotary, at, scale, int64_t{tile.length - 1} * (shape.size / 2), d, x);
  store8(reinterpret_cast<bf16*>(key + lane), kEight, true, x);
  value[lane] = *reinterpret_cast<const uint4*>(tokens.v + at + d);
}

/// A block takes a tile, a KV head and a split. kNew: q comes from `tokens`, and so do the last key of each row and its
/// value.
template <int kSize, bool kNew>
__global__ void __launch_bounds__(kThreads, kBlocks<kSize>)
    paged_bf16_kernel(const bf16* q, bf16* cache, bf16* o, const __grid_constant__ Paged p, Splits splits,
                      const __grid_constant__ NewTokens tokens, uint32_t* tickets, FaultReporter faults) {
  using Queries = HeadTile<kRows, kSize>;
  using Keys = HeadTile<kKeys, kSize>;
  __shared__ Part runs[kWarps][kRows];
  __shared__ PagedTile kept;  // for the end: registers are scarce
  __shared__ uint4 new_key[kSize / kEight],
      new_value[kSize / kEight];  // of the warp whose run has them; each lane its own
  take_turn();
  if (blockIdx.x == 0 && splits.first == 0) check_rows(p, faults);
  if (p.rows == 0) return;
  const auto [split, kv_head, pair, place] = block_of(p, splits);
  const PagedTile tile = find_tile(p, splits.first + place, faults);
  if (!tile.there) return;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const KeyRange all = keys_of(p, tile);
  if (const SplitRange runs_in = splits_of(p, tile); split < runs_in.first || split > runs_in.last) return;

  char* const q_tile = dynamic_shared();
  char* const k_tile = q_tile + Queries::kBytes + warp * 2 * Keys::kBytes;
  char* const v_tile = k_tile + Keys::kBytes;
  for (int i = thread; !kNew && i < kRows * Queries::kChunks; i += kThreads) {
    const int row = i / Queries::kChunks, chunk = i % Queries::kChunks;
    const bool inside = row < tile.rows && chunk * kEight < p.size;
    cp_async(Queries::at(q_tile, row, chunk),
             q + (inside ? element_of(p, tile, kv_head, row) + chunk * kEight : 0), inside);
  }
  cp_async_commit();

  int32_t begin = split * kSplit + warp * kRun, end = begin + kRun;
  if (begin < all.first) begin = all.first / kKeys * kKeys;
  if (end > all.last + 1) end = all.last + 1;
  const int32_t cached = kNew ? all.last : all.last + 1;  // keys that the cache has
  /// Starts the copy of the keys (or the values, kPageTokens rows further) from `key` on.
  const auto fetch = [&](char* to, int32_t key, int32_t further) {
    if (key < end) {
      const int64_t page = p.pages[int64_t{tile.row} * p.max_pages + key / kPageTokens];
      const bool holds = page >= 0 && page < p.pages_held;
      if (!holds && lane == 0)
        report(faults, FaultKind::outside, p.pages_input, tile.row, page, p.pages_held,
               key / kPageTokens + 1);
      const bf16* const from = cache + (holds ? page * p.elements : 0) +
                               (int64_t{kv_head} * 2 * kPageTokens + key % kPageTokens + further) * p.width;
#pragma unroll
      for (int i = lane; i < kKeys * Keys::kChunks; i += 32) {
        const int row = i / Keys::kChunks, chunk = i % Keys::kChunks;
        const bool inside = holds && key + row < cached && chunk * kEight < p.size;
        cp_async(Keys::at(to, row, chunk), from + (inside ? row * p.width + chunk * kEight : 0), inside);
      }
    }
    cp_async_commit();
  };
  fetch(k_tile, begin, 0);
  fetch(v_tile, begin, kPageTokens);
  // The warp whose run has the new key.
  const bool adds = kNew && tile.length > 0 && all.last / kRun == split * kWarps + warp;
  if constexpr (kNew) {
    put_new_queries<Queries, kSize>(q_tile, p, tokens, tile, kv_head);
    if (adds) put_new_key(new_key, new_value, p, tokens, tile, kv_head, lane);
    const int64_t page = adds ? p.pages[int64_t{tile.row} * p.max_pages + all.last / kPageTokens] : -1;
    if (lane * kEight < p.size && tile.first == 0 && page >= 0 && page < p.pages_held) {
      bf16* const to = cache + page * p.elements + lane * kEight +
                       (int64_t{kv_head} * 2 * kPageTokens + all.last % kPageTokens) * p.width;
      *reinterpret_cast<uint4*>(to) = new_key[lane];
      *reinterpret_cast<uint4*>(to + kPageTokens * p.width) = new_value[lane];
    }
  }
  /// Puts the new key, or its value, into the tile of keys from `key` on, where it is one of them.
  const auto add_new = [&](char* to, int32_t key, const uint4* element) {
    if (!adds || all.last - key >= kKeys) return;
    if (lane * kEight < p.size) *reinterpret_cast<uint4*>(Keys::at(to, all.last - key, lane)) = element[lane];
    __syncwarp();
  };
  if (thread == 0) kept = tile;
  cp_async_wait<2>();
  __syncthreads();  // all threads see the queries

  float out[1][kSize / 8][4] = {};
  Part part[2] = {kNoKeys, kNoKeys};  // of rows lane / 4 and lane / 4 + 8; maxima of unscaled scores
  const KeyRange visible[2] = {keys_of(p, tile, lane / 4), keys_of(p, tile, lane / 4 + 8)};
  for (int32_t key = begin; key < end; key += kKeys) {
    cp_async_wait<1>();
    __syncwarp();  // the warp sees the keys
    add_new(k_tile, key, new_key);
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
    add_new(v_tile, key, new_value);
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
  const BlockPlace here = block_of(p, splits);
  const SplitRange ran = splits_of(p, kept);
  for (int i = thread; i < kept.rows * kSize; i += kThreads) {
    const int row = i / kSize, d = i % kSize;
    Part merged = kNoKeys;
    float sum = 0;
    for (int run = 0; run < kWarps; run++) {
      const float2 factor = merge(merged, runs[run][row]);
      const char* const from = q_tile + Queries::kBytes + run * 2 * Keys::kBytes;
      sum = fmaf(sum, factor.x, reinterpret_cast<const float*>(from)[row * kSize + d] * factor.y);
    }
    if (ran.first == ran.last) {
      if (d < p.size)
        o[element_of(p, kept, here.kv_head, row) + d] =
            from_float<bf16>(kept.length > 0 ? sum / merged.mass : 0.0f);
    } else {
      const int64_t at = splits.at(here.place, p.heads / p.group, here.kv_head, here.split) + row;
      splits.sums[at * kSize + d] = sum;
      if (d == 0) splits.parts[at] = merged;
    }
  }
  if (ran.first < ran.last &&
      last_block(tickets + here.pair, static_cast<uint32_t>(ran.last - ran.first + 1)))
    combine<kSize>(o, p, splits, kept, here.place, here.kv_head);
}

template <bool kNew>
void launch_paged(Stream& stream, const Paged& p, const void* q, const NewTokens& tokens, void* cache,
                  void* o) {
  const int64_t kv_heads = p.heads / p.group, tiles = p.tokens * p.group / kRows + p.rows;
  const int64_t splits = std::max<int64_t>(1, (p.max_pages * kPageTokens + kSplit - 1) / kSplit);
  by_head_size(p.size, [&](auto padded) {
    constexpr int kSize = std::min<int>(padded(), 128);
    constexpr int64_t kShared = HeadTile<kRows, kSize>::kBytes + kWarps * 2 * HeadTile<kKeys, kSize>::kBytes;
    constexpr int64_t kRowBytes = kSize * sizeof(float) + sizeof(Part);
    const int64_t held = splits > 1 ? kv_heads * splits * kRows : 0;  // rows of workspace for a tile
    int64_t group_size = std::max<int64_t>(tiles, 1);
    if (held > 0)
      group_size = std::clamp<int64_t>(std::min(kMaxWorkspace / (held * kRowBytes), kTickets / kv_heads), 1,
                                       group_size);
    auto* const parts = held > 0 ? stream.scratch.take<Part>(group_size * held) : nullptr;
    auto* const sums = held > 0 ? stream.scratch.take<float>(group_size * held * kSize) : nullptr;
    // At least one block, which checks the rows.
    for (int64_t first = 0; first == 0 || first < tiles; first += group_size) {
      const int64_t count = std::max<int64_t>(std::min(group_size, tiles - first), 1);
      const Splits kept{first, static_cast<int32_t>(splits), parts, sums};
      stream.launch_early({}, paged_bf16_kernel<kSize, kNew>, count * kv_heads * splits, kThreads, kShared,
                          static_cast<const bf16*>(q), static_cast<bf16*>(cache), static_cast<bf16*>(o), p,
                          kept, tokens, stream.ticket, stream.faults);
    }
  });
}

}  // namespace

void attention_paged_bf16(Stream& stream, const Paged& p, const void* q, void* cache, void* o) {
  launch_paged<false>(stream, p, q, {}, cache, o);
}
void attention_step_bf16(Stream& stream, const Paged& p, const NewTokens& tokens, void* cache, void* o) {
  launch_paged<true>(stream, p, tokens.q.data, tokens, cache, o);
}

}  // namespace steptrain::cuda
