// The successor of cuda/attention/paged_bf16.cu: attention over the paged cache on tensor cores (mma.sync,
// cp.async), for bf16 heads of up to 128 elements, in which a block's copies are all under way before it
// waits for any. A block takes a tile of kRows rows, a KV head and one or more chunks of kChunk keys, counted
// from key 0. A chunk is one softmax: a warp makes the scores of its kKeys keys; warps agree on the maximum
// of each row; each multiplies the weights of all keys with 16 of every 64 columns of the values, so that
// nothing needs to be added up over warps. Sums are a fixed tree: the chunks of a section (kSection keys) in
// order, then the sections in order. Who computes a part of the tree follows from the shapes of the call: one
// block all of it, or many, whose parts the block that ends last joins by the same arithmetic. Where a key is
// masked it weighs exactly 0 and changes neither maximum nor sums, so a row's bits depend on its own keys
// alone, whatever rows share its tile or its batch.
// In a step of decoding (attention_step) a block copies keys and values of the cache before its turn, while
// the kernel in front still runs; then it norms and rotates the queries and the new key, which one of the
// blocks also stores.
#include <algorithm>

#include "cuda/attention/paged_tile.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int32_t kKeys = 32;                                        // of a warp
constexpr int32_t kChunk = kWarps * kKeys, kSection = 512 / kChunk;  // keys; chunks
static_assert(kPageTokens % kKeys == 0, "a warp's keys lie in one page");
constexpr int64_t kMaxWorkspace = int64_t{64} << 20;  // bytes
/// A block a chunk up to kFineChunks of a row, whose results the last block reads, and kFine blocks of a
/// multiprocessor; up to kWholeSections of a row one block, where there are as many rows; else a block a section.
/// By trial on an H100.
constexpr int64_t kFineChunks = 64, kFine = 3, kWholeSections = 4;
/// Of a multiprocessor, as many as registers allow, and of sm_80 as its shared memory holds.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kLargeBlocks = 2;
#else
constexpr int kLargeBlocks = 3;
#endif
template <int kSize>
constexpr int kBlocks = kSize > 64 ? kLargeBlocks : 4;

/// How the blocks of a launch divide the keys, and what they leave for the one of a tile and KV head that
/// ends last: [tile][KV head][unit][row].
struct Shares {
  int32_t blocks;     // of a tile and KV head
  int32_t span;       // chunks of a block
  int32_t unit;       // chunks whose sums a block leaves: 1 or kSection
  int32_t units;      // of a row, at most
  int64_t first = 0;  // tile of the launch
  Part* parts = nullptr;
  float* sums = nullptr;  // and the padded head

  __device__ int64_t at(int64_t pair, int32_t unit_index) const {
    return (pair * units + unit_index) * kRows;
  }
};

/// `even`: the rows' lengths differ little, as those of the tiles of a prompt do.
Shares share(int64_t pairs, int64_t chunks, int64_t multiprocessors, bool even) {
  const int64_t sections = (chunks + kSection - 1) / kSection;
  const auto shares = [](int64_t blocks, int64_t span, int64_t unit, int64_t units) {
    return Shares{static_cast<int32_t>(blocks), static_cast<int32_t>(span), static_cast<int32_t>(unit),
                  static_cast<int32_t>(units)};
  };
  if (chunks <= kFineChunks && pairs * chunks <= kFine * multiprocessors) return shares(chunks, 1, 1, chunks);
  if (2 * pairs >= 3 * multiprocessors && (sections <= kWholeSections || even))
    return shares(1, sections * kSection, kSection, sections);
  return shares(sections, kSection, kSection, sections);
}

/// What a block takes. Computed anew by each call, since registers are scarce.
struct BlockPlace {
  int32_t part;
  int64_t pair;  // of the launch
  int32_t kv_head;
  unsigned place;  // of the tile
};
__device__ inline BlockPlace block_of(const Paged& p, const Shares& shares) {
  int64_t block = blockIdx.x;
  forget(block);
  const auto number = static_cast<unsigned>(block), pair = number / static_cast<unsigned>(shares.blocks),
             kv_heads = static_cast<unsigned>(p.heads / p.group);
  return {static_cast<int32_t>(number % static_cast<unsigned>(shares.blocks)), pair,
          static_cast<int32_t>(pair % kv_heads), static_cast<unsigned>(shares.first) + pair / kv_heads};
}

/// Chunks, the last included.
struct Chunks {
  int32_t first, last;
};
/// Those that any row of the tile sees; of a row of length 0 the first.
__device__ inline Chunks chunks_of(const KeyRange& all) {
  return {all.first / kChunk, all.last > 0 ? all.last / kChunk : 0};
}

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

/// Sums of values of two rows, lane / 4 and lane / 4 + 8, in every fourth group of 16 columns from the warp's
/// on.
template <int kSize>
struct Sums {
  static constexpr int kGroups = kSize / 16, kMine = (kGroups + kWarps - 1) / kWarps;
  float value[kMine][2][4] = {};
  Part part[2] = {kNoKeys, kNoKeys};

  /// Empties `other`.
  __device__ void add(Sums& other) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float2 factor = merge(part[half], other.part[half]);
#pragma unroll
      for (int i = 0; i < kMine; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; e++)
            value[i][j][e] = fmaf(value[i][j][e], factor.x, other.value[i][j][e] * factor.y);
    }
    other = {};
  }
  /// body(half, column, the two elements from there on)
  template <typename Body>
  __device__ void each(int warp, int lane, Body body) const {
#pragma unroll
    for (int i = 0; i < kMine; i++) {
      if (warp + kWarps * i >= kGroups) break;
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          body(half, (warp + kWarps * i) * 16 + fragment_column(lane, 4 * j),
               make_float2(value[i][j][2 * half], value[i][j][2 * half + 1]));
    }
  }
};

/// new_group of cuda/attention/new_heads.cuh, to the bit, by 16 bytes at a time where each half of a head has
/// whole groups.
__device__ inline void new_eight(const Heads<bf16>& heads, const HeadShape& shape, const Rotary& rotary,
                                 int64_t at, float scale, int64_t angles, int64_t d, float (&x)[kEight]) {
  const int64_t half = shape.size / 2;
  if (half % kEight != 0) return new_group(heads, shape, rotary, at, scale, angles, d, x);
  const bool lower_half = d < half;
  const int64_t partner = lower_half ? d + half : d - half, angle = angles + (lower_half ? d : partner);
  const bool wide =
      (reinterpret_cast<uintptr_t>(rotary.cosines) | reinterpret_cast<uintptr_t>(rotary.sines)) % 16 == 0;
  float own[kEight], other[kEight], cosine[kEight], sine[kEight];
  load8(heads.data + at + d, kEight, true, own);
  load8(heads.data + at + partner, kEight, true, other);
  load8(rotary.cosines + angle, kEight, wide, cosine);
  load8(rotary.sines + angle, kEight, wide, sine);
#pragma unroll
  for (int i = 0; i < kEight; i++) {
    if (heads.weight) {
      own[i] = stored<bf16>(own[i] * scale * heads.weight_of(d + i));
      other[i] = stored<bf16>(other[i] * scale * heads.weight_of(partner + i));
    }
    x[i] = fmaf(own[i], cosine[i], lower_half ? 0.0f - other[i] * sine[i] : other[i] * sine[i]);
  }
}

/// The page of a tile's row that holds `key`, which is less than all its pages hold. -1, reported once by each
/// warp, where there is no such page. `early`: before the kernel's turn, past a cache that might hold an older
/// table.
__device__ inline int32_t page_of(const Paged& p, const PagedTile& tile, int32_t key,
                                  const FaultReporter& faults, bool early) {
  const int32_t* const at = p.pages + int64_t{tile.row} * p.max_pages + key / kPageTokens;
  const int32_t page = early ? *static_cast<const volatile int32_t*>(at) : *at;
  if (page >= 0 && page < p.pages_held) return page;
  if (threadIdx.x % kWarp == 0)
    report(faults, FaultKind::outside, p.pages_input, tile.row, page, p.pages_held, key / kPageTokens + 1);
  return -1;
}

/// Puts the queries of a tile, normed and rotated, into shared memory, and beside them, where the block
/// `adds` it, the new key and its value, which the block of the group's first heads stores in the cache.
template <int kSize>
__device__ void put_new(char* shared, bf16* cache, const Paged& p, const NewTokens& tokens,
                        const PagedTile& tile, int32_t kv_head, bool adds, const FaultReporter& faults) {
  using In = Layout<kSize>;
  const HeadShape& shape = tokens.shape;
  const int thread = static_cast<int>(threadIdx.x), place = thread / shape.lanes, lane = thread % shape.lanes;
  const int d = lane * kEight, slots = tile.rows + (adds ? 1 : 0);  // queries, then the new key
  const int32_t last = tile.length - 1;
  const int64_t new_at = (tile.begin * tokens.k.count + kv_head) * shape.size;
  bf16* to = nullptr;  // the new key's place in the cache
  if (adds && tile.first == 0) {
    const int64_t page = page_of(p, tile, last, faults, false);
    if (page >= 0)
      to = cache + page * p.elements + (int64_t{kv_head} * 2 * kPageTokens + last % kPageTokens) * p.width;
  }
  if (adds && thread >= kThreads - kSize / kEight) {
    const int chunk = thread - (kThreads - kSize / kEight);
    if (chunk * kEight < p.size) {
      const uint4 value = *reinterpret_cast<const uint4*>(tokens.v + new_at + chunk * kEight);
      reinterpret_cast<uint4*>(shared + In::kNewValue)[chunk] = value;
      if (to) *reinterpret_cast<uint4*>(to + kPageTokens * p.width + chunk * kEight) = value;
    }
  }
  for (int first = 0; first < slots; first += kThreads / shape.lanes) {
    const int slot = first + place;
    const bool inside = slot < slots && tile.length > 0, key = slot == tile.rows;
    const Heads<bf16> heads{key ? tokens.k.data : tokens.q.data, key ? tokens.k.weight : tokens.q.weight,
                            key ? tokens.k.weight_dtype : tokens.q.weight_dtype, 0};
    const int64_t at = !inside ? 0 : key ? new_at : element_of(p, tile, kv_head, slot);
    const float scale = head_scale(heads, shape, at, inside);
    if (inside && d < p.size) {
      float x[kEight];
      new_eight(heads, shape, tokens.rotary, at, scale, int64_t{last} * (shape.size / 2), d, x);
      store8(reinterpret_cast<bf16*>(key ? shared + In::kNewKey + d * 2
                                         : In::Queries::at(shared + In::kQueries, slot, lane)),
             kEight, true, x);
      if (key && to) store8(to + d, kEight, true, x);
    }
    __syncwarp();
  }
}

/// What the sums over a section's units, and over sections, are multiplied by.
struct Factors {
  float2 inner[kSection];
  float2 outer;
  float mass;  // of the section
};

/// Joins what the blocks of a tile and a KV head have left, by the arithmetic of Sums::add. kUnits: units of
/// a section.
template <int kSize, int kUnits>
__device__ void combine(bf16* o, const Paged& p, const Shares& shares, const PagedTile& tile, int64_t pair,
                        int32_t kv_head, char* shared) {
  constexpr int kLanes = 16, kTurns = kRows * kLanes / kThreads, kColumns = kSize / 4,
                kItems = (kRows * kColumns + kThreads - 1) / kThreads;
  constexpr int32_t kOfUnit = kSection / kUnits;
  static_assert(kLanes * kRows * sizeof(Factors) <= Layout<kSize>::kBytes);
  Factors* const factors = reinterpret_cast<Factors*>(shared);  // [section of the batch][row]
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
  const Chunks chunks = chunks_of(keys_of(p, tile));
  const int32_t first_unit = chunks.first / kOfUnit, last_unit = chunks.last / kOfUnit,
                last_section = chunks.last / kSection;
  const int64_t base = shares.at(pair, 0);
  float4 sums[kItems] = {};
  float mass[kItems] = {};
  float so_far[kTurns];  // the maximum of this thread's rows
  for (float& maximum : so_far) maximum = kMinimum;
  for (int32_t first = chunks.first / kSection; first <= last_section; first += kLanes) {
#pragma unroll
    for (int i = 0; i < kTurns; i++) {
      const int row = thread / kLanes + i * (kThreads / kLanes);
      const int32_t section = first + lane;
      Part parts[kUnits], part = kNoKeys;
      Factors own{};
#pragma unroll
      for (int u = 0; u < kUnits; u++) {
        const int32_t unit = section * kUnits + u;
        parts[u] = kNoKeys;
        if (row < tile.rows && unit >= first_unit && unit <= last_unit)
          parts[u] = shares.parts[base + int64_t{unit} * kRows + row];
      }
#pragma unroll
      for (int u = 0; u < kUnits; u++) own.inner[u] = merge(part, parts[u]);
      float to = part.maximum;  // of all sections up to this one
#pragma unroll
      for (int distance = 1; distance < kLanes; distance *= 2) {
        const float below = __shfl_up_sync(0xffffffffu, to, distance);
        if (lane >= distance) to = fmaxf(to, below);
      }
      to = fmaxf(to, so_far[i]);
      const float below = __shfl_up_sync(0xffffffffu, to, 1);
      const float before = lane == 0 ? so_far[i] : below;
      so_far[i] = __shfl_sync(0xffffffffu, to, thread % kWarp / kLanes * kLanes + kLanes - 1);
      own.outer = make_float2(exp2_approximate(before - to), exp2_approximate(part.maximum - to));
      own.mass = part.mass;
      factors[lane * kRows + row] = own;
    }
    __syncthreads();
    const int32_t sections = last_section - first + 1 < kLanes ? last_section - first + 1 : kLanes;
#pragma unroll
    for (int i = 0; i < kItems; i++) {
      const int row = (thread + i * kThreads) / kColumns, column = (thread + i * kThreads) % kColumns * 4;
      if (row >= tile.rows) break;
      [[maybe_unused]] constexpr int kUnrolled = kUnits == 1 ? 8 : 2;
#pragma unroll kUnrolled
      for (int32_t s = 0; s < sections; s++) {
        const Factors& by = factors[s * kRows + row];
        float4 section{};
#pragma unroll
        for (int u = 0; u < kUnits; u++) {
          const int32_t unit = (first + s) * kUnits + u;
          float4 x{};
          if (unit >= first_unit && unit <= last_unit)
            x = *reinterpret_cast<const float4*>(shares.sums + (base + int64_t{unit} * kRows + row) * kSize +
                                                 column);
          section.x = fmaf(section.x, by.inner[u].x, x.x * by.inner[u].y);
          section.y = fmaf(section.y, by.inner[u].x, x.y * by.inner[u].y);
          section.z = fmaf(section.z, by.inner[u].x, x.z * by.inner[u].y);
          section.w = fmaf(section.w, by.inner[u].x, x.w * by.inner[u].y);
        }
        sums[i].x = fmaf(sums[i].x, by.outer.x, section.x * by.outer.y);
        sums[i].y = fmaf(sums[i].y, by.outer.x, section.y * by.outer.y);
        sums[i].z = fmaf(sums[i].z, by.outer.x, section.z * by.outer.y);
        sums[i].w = fmaf(sums[i].w, by.outer.x, section.w * by.outer.y);
        mass[i] = fmaf(mass[i], by.outer.x, by.mass * by.outer.y);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kItems; i++) {
    const int row = (thread + i * kThreads) / kColumns, column = (thread + i * kThreads) % kColumns * 4;
    if (row >= tile.rows || column >= p.size) continue;
    const uint64_t first = round_to_bf16_pair(sums[i].x / mass[i], sums[i].y / mass[i]),
                   second = round_to_bf16_pair(sums[i].z / mass[i], sums[i].w / mass[i]);
    *reinterpret_cast<uint64_t*>(o + element_of(p, tile, kv_head, row) + column) = first | second << 32;
  }
}

/// kNew: q comes from `tokens`, and so do the last key of each row and its value.
template <int kSize, bool kNew>
__global__ void __launch_bounds__(kThreads, kBlocks<kSize>)
    paged_split_kernel(const bf16* q, bf16* cache, bf16* o, const __grid_constant__ Paged p,
                       const __grid_constant__ Shares shares, const __grid_constant__ NewTokens tokens,
                       uint32_t* tickets, FaultReporter faults) {
  using In = Layout<kSize>;
  char* const shared = dynamic_shared();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  if constexpr (!kNew) take_turn();
  const auto [part, pair, kv_head, place] = block_of(p, shares);
  PagedTile tile{};
  if (p.rows > 0) {
    if constexpr (kNew) {
      tile = step_tile(p, place, faults);
    } else {
      tile = find_tile(p, place, faults);
    }
  }
  const KeyRange all = keys_of(p, tile);
  const Chunks seen = chunks_of(all);
  int32_t begin = part * shares.span, end = begin + shares.span - 1;
  begin = begin < seen.first ? seen.first : begin;
  end = end > seen.last ? seen.last : end;
  const bool works = tile.there && begin <= end;

  const int32_t cached = kNew ? all.last : all.last + 1;  // keys that the cache has
  int32_t page = -1;                                      // of the warp's keys
  const auto turn_to = [&](int32_t chunk, bool early) {
    const int32_t key = chunk * kChunk + warp * kKeys;
    page = -1;
    if (chunk <= end && key <= all.last && key + kKeys > all.first)
      page = page_of(p, tile, key, faults, early);
  };
  /// Starts the copy of the warp's keys of a chunk (or their values, kPageTokens rows further), with zeros
  /// for those that no row sees. The new key's place is left alone.
  const auto fetch = [&](char* to, int32_t chunk, int32_t further) {
    const int32_t key = chunk * kChunk + warp * kKeys;
    const bf16* const from = cache + (page >= 0 ? page * p.elements : 0) +
                             (int64_t{kv_head} * 2 * kPageTokens + key % kPageTokens + further) * p.width;
    if (chunk <= end) {
#pragma unroll
      for (int i = lane; i < kKeys * In::Keys::kChunks; i += kWarp) {
        const int row = i / In::Keys::kChunks, part = i % In::Keys::kChunks;
        const bool inside =
            page >= 0 && key + row >= all.first && key + row < cached && part * kEight < p.size;
        if (!kNew || key + row != all.last)
          cp_async(In::Keys::at(to, warp * kKeys + row, part),
                   from + (inside ? row * p.width + part * kEight : 0), inside);
      }
    }
    cp_async_commit();
  };
  if (works) {
    for (int i = thread; i < kRows * In::Queries::kChunks; i += kThreads) {
      const int row = i / In::Queries::kChunks, part = i % In::Queries::kChunks;
      const bool inside = row < tile.rows && part * kEight < p.size;
      if (!kNew || !inside)
        cp_async(In::Queries::at(shared + In::kQueries, row, part),
                 q + (inside ? element_of(p, tile, kv_head, row) + part * kEight : 0), inside);
    }
    cp_async_commit();
    turn_to(begin, kNew);
    fetch(shared + In::kKeysAt, begin, 0);
    fetch(shared + In::kValues, begin, kPageTokens);
  }
  if constexpr (kNew) {
    take_turn();
  } else if (blockIdx.x == 0 && shares.first == 0) {
    check_rows(p, faults);  // in a step each row has a block, which checks it
  }
  if (!works) return;

  const bool adds = kNew && tile.length > 0 && end == seen.last;
  if constexpr (kNew) put_new<kSize>(shared, cache, p, tokens, tile, kv_head, adds, faults);
  PagedTile* const kept = reinterpret_cast<PagedTile*>(shared + In::kTile);  // for the end
  if (thread == 0) *kept = tile;
  cp_async_wait<2>();
  __syncthreads();  // all threads see the queries, and the new key

  Sums<kSize> row_sums, section;
  const KeyRange visible[2] = {keys_of(p, tile, lane / 4), keys_of(p, tile, lane / 4 + 8)};
  float* const maxima = reinterpret_cast<float*>(shared + In::kMaxima);  // [warp][row]
  float* const masses = reinterpret_cast<float*>(shared + In::kMasses);
  const bool alone = begin == seen.first && end == seen.last;
  /// Leaves sums for the block that ends last.
  const auto leave = [&](const Sums<kSize>& sums, int32_t unit) {
    const int64_t at = shares.at(block_of(p, shares).pair, unit);
    const int32_t rows = kept->rows;
    sums.each(warp, lane, [&](int half, int column, float2 x) {
      const int row = lane / 4 + 8 * half;
      if (row < rows) *reinterpret_cast<float2*>(shares.sums + (at + row) * kSize + column) = x;
    });
    for (int half = 0; half < 2; half++)
      if (warp == 0 && lane % 4 == 0 && lane / 4 + 8 * half < rows)
        shares.parts[at + lane / 4 + 8 * half] = sums.part[half];
  };
  for (int32_t chunk = begin; chunk <= end; chunk++) {
    cp_async_wait<1>();  // the warp's keys
    if (adds && chunk == seen.last && warp == all.last % kChunk / kKeys && lane * kEight < kSize) {
      const int32_t row = all.last % kChunk;
      const uint4 none{};
      const bool holds = lane * kEight < p.size;
      *reinterpret_cast<uint4*>(In::Keys::at(shared + In::kKeysAt, row, lane)) =
          holds ? reinterpret_cast<const uint4*>(shared + In::kNewKey)[lane] : none;
      *reinterpret_cast<uint4*>(In::Keys::at(shared + In::kValues, row, lane)) =
          holds ? reinterpret_cast<const uint4*>(shared + In::kNewValue)[lane] : none;
    }
    __syncwarp();
    float scores[1][kKeys / 8][4];
    multiply_heads<typename In::Queries, typename In::Keys, 1, kKeys, kSize>(
        scores, shared + In::kQueries, 0, shared + In::kKeysAt, warp * kKeys, lane);
    __syncwarp();  // no lane still reads the keys
    turn_to(chunk + 1, false);
    fetch(shared + In::kKeysAt, chunk + 1, 0);
    float maximum[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      maximum[half] = kMinimum;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& score = scores[0][j][2 * half + e];
          const int32_t key = chunk * kChunk + warp * kKeys + fragment_column(lane, 4 * j + e);
          if (key < visible[half].first || key > visible[half].last) score = kMasked;
          maximum[half] = fmaxf(maximum[half], score);
        }
      // Four lanes share a row.
      maximum[half] = fmaxf(maximum[half], __shfl_xor_sync(0xffffffffu, maximum[half], 1));
      maximum[half] = fmaxf(maximum[half], __shfl_xor_sync(0xffffffffu, maximum[half], 2));
      if (lane % 4 == 0) maxima[warp * kRows + lane / 4 + 8 * half] = maximum[half];
    }
    __syncthreads();
    Sums<kSize> sums;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      for (int other = 0; other < kWarps; other++)
        maximum[half] = fmaxf(maximum[half], maxima[other * kRows + lane / 4 + 8 * half]);
      const float shift = maximum[half] * p.scale;
      float mass = 0;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& score = scores[0][j][2 * half + e];
          score = exp2_approximate(fmaf(score, p.scale, -shift));
          mass += score;
        }
      mass += __shfl_xor_sync(0xffffffffu, mass, 1);
      mass += __shfl_xor_sync(0xffffffffu, mass, 2);
      if (lane % 4 == 0) masses[warp * kRows + lane / 4 + 8 * half] = mass;
      sums.part[half].maximum = shift;
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; j++)
      In::Weights::put(shared + In::kWeights, 0, warp * kKeys + 8 * j, scores[0][j], lane);
    cp_async_wait<1>();
    __syncthreads();  // all threads see weights, masses and values
#pragma unroll
    for (int half = 0; half < 2; half++)
      for (int other = 0; other < kWarps; other++)
        sums.part[half].mass += masses[other * kRows + lane / 4 + 8 * half];
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      uint32_t a[4];
      In::Weights::load_a(a, shared + In::kWeights, 0, k, lane);
#pragma unroll
      for (int i = 0; i < Sums<kSize>::kMine; i++) {
        const int group = warp + kWarps * i;
        if (group >= Sums<kSize>::kGroups) break;
        uint32_t b[4];
        In::Keys::load_b_by_row(b, shared + In::kValues, k, group * 16, lane);
        mma(sums.value[i][0], a, b[0], b[1]);
        mma(sums.value[i][1], a, b[2], b[3]);
      }
    }
    if (chunk < end) {
      __syncthreads();  // no thread still reads values, weights and masses
      fetch(shared + In::kValues, chunk + 1, kPageTokens);
    }
    if (!alone && shares.unit == 1) {
      leave(sums, chunk);
      continue;
    }
    section.add(sums);
    if (chunk < end && (chunk + 1) % kSection != 0) continue;
    if (alone) {
      row_sums.add(section);
    } else {
      leave(section, chunk / kSection);
      section = {};
    }
  }
  const BlockPlace here = block_of(p, shares);
  const PagedTile done = *kept;
  if (alone) {
    row_sums.each(warp, lane, [&](int half, int column, float2 x) {
      const int row = lane / 4 + 8 * half;
      if (row >= done.rows || column >= p.size) return;
      const float mass = row_sums.part[half].mass;
      *reinterpret_cast<uint32_t*>(o + element_of(p, done, here.kv_head, row) + column) =
          done.length > 0 ? round_to_bf16_pair(x.x / mass, x.y / mass) : 0;
    });
    return;
  }
  const Chunks of_all = chunks_of(keys_of(p, done));
  if (!last_block(tickets + here.pair,
                  static_cast<uint32_t>(of_all.last / shares.span - of_all.first / shares.span + 1)))
    return;
  if (shares.unit == 1) {
    combine<kSize, kSection>(o, p, shares, done, here.pair, here.kv_head, shared);
  } else {
    combine<kSize, 1>(o, p, shares, done, here.pair, here.kv_head, shared);
  }
}

template <bool kNew>
void launch_split(Stream& stream, const Paged& p, const void* q, const NewTokens& tokens, void* cache,
                  void* o) {
  const int64_t kv_heads = p.heads / p.group,
                tiles = kNew ? int64_t{p.rows} * tiles_of_step(p) : p.tokens * p.group / kRows + p.rows;
  const int64_t chunks = std::max<int64_t>(1, (p.max_pages * kPageTokens + kChunk - 1) / kChunk);
  by_head_size(p.size, [&](auto padded) {
    constexpr int kSize = std::min<int>(padded(), 128);
    constexpr int64_t kRowBytes = kSize * sizeof(float) + sizeof(Part);
    Shares shares =
        share(tiles * kv_heads, chunks, stream.hardware.multiprocessors, !kNew && tiles >= 4 * p.rows);
    int64_t together = std::max<int64_t>(tiles, 1);  // tiles of a launch
    if (shares.blocks > 1) {
      const int64_t held = kv_heads * shares.units * kRows;  // rows of workspace for a tile
      together =
          std::clamp<int64_t>(std::min(kMaxWorkspace / (held * kRowBytes), kTickets / kv_heads), 1, together);
      shares.parts = stream.scratch.take<Part>(together * held);
      shares.sums = stream.scratch.take<float>(together * held * kSize);
    }
    // At least one block, which checks the offsets.
    for (; shares.first == 0 || shares.first < tiles; shares.first += together) {
      const int64_t blocks =
          std::max<int64_t>(std::min(together, tiles - shares.first), 1) * kv_heads * shares.blocks;
      const auto launch = [&](auto... reads) {
        stream.launch_early({reads...}, paged_split_kernel<kSize, kNew>, blocks, kThreads,
                            Layout<kSize>::kBytes, static_cast<const bf16*>(q), static_cast<bf16*>(cache),
                            static_cast<bf16*>(o), p, shares, tokens, stream.ticket, stream.faults);
      };
      if constexpr (kNew) {
        launch(Span{p.lengths, int64_t{p.rows} * 4}, Span{p.pages, int64_t{p.rows} * p.max_pages * 4},
               Span{cache, p.pages_held * p.elements * 2});
      } else {
        launch();
      }
    }
  });
}

}  // namespace

void attention_paged_split(Stream& stream, const Paged& p, const void* q, void* cache, void* o) {
  launch_split<false>(stream, p, q, {}, cache, o);
}
void attention_step_split(Stream& stream, const Paged& p, const NewTokens& tokens, void* cache, void* o) {
  launch_split<true>(stream, p, tokens.q.data, tokens, cache, o);
}

}  // namespace steptrain::cuda
